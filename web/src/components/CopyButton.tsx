import { Check, Copy } from "lucide-react";
import { useState } from "react";
import { IconButton } from "./Button";
import { copyText } from "./clipboard";

interface Props {
  text: string;
  label?: string;
  className?: string;
}

/** Copies a text. Shown while the pointer is on its `group` or it has the focus, and always without a pointer. */
export function CopyButton({ text, label = "Copy", className = "" }: Props) {
  const [isCopied, setIsCopied] = useState(false);
  return (
    <IconButton
      label={isCopied ? "Copied" : label}
      className={`bg-sunken opacity-0 group-hover:opacity-100 focus:opacity-100 pointer-coarse:opacity-100 ${className}`}
      onClick={() => copyText(text).then(() => setIsCopied(true))}
      onBlur={() => setIsCopied(false)}
      onPointerLeave={() => setIsCopied(false)}
    >
      {isCopied ? <Check aria-hidden className="size-3.5" /> : <Copy aria-hidden className="size-3.5" />}
    </IconButton>
  );
}
