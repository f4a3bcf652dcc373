import { Check, Copy } from "lucide-react";
import { useState } from "react";
import { IconButton } from "./Button";
import { escaped } from "./shownText";

interface Props {
  text: string;
  /** Label for screen readers. */
  label: string;
  /** Allow more height before the text scrolls. */
  isTall?: boolean;
}

/** Code with deceptive characters escaped, and a button that copies the original text. */
export function Code({ text, label, isTall }: Props) {
  return (
    <div className="group relative">
      <pre
        tabIndex={0}
        role="region"
        aria-label={label}
        className={`overflow-auto rounded-md border border-line bg-sunken px-3 py-2 font-mono text-xs leading-5 whitespace-break-spaces wrap-anywhere ${isTall ? "max-h-[60vh]" : "max-h-72"}`}
      >
        {escaped(text)}
      </pre>
      <CopyButton text={text} />
    </div>
  );
}

function CopyButton({ text }: { text: string }) {
  const [isCopied, setIsCopied] = useState(false);
  return (
    <IconButton
      label={isCopied ? "Copied" : "Copy"}
      className="absolute top-1 right-1 bg-sunken opacity-0 group-hover:opacity-100 focus:opacity-100"
      onClick={() => navigator.clipboard.writeText(text).then(() => setIsCopied(true))}
      onBlur={() => setIsCopied(false)}
    >
      {isCopied ? <Check aria-hidden className="size-3.5" /> : <Copy aria-hidden className="size-3.5" />}
    </IconButton>
  );
}
