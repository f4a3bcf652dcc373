import { Check, Copy } from "lucide-react";
import { Fragment, useState } from "react";
import { IconButton } from "./Button";
import { type Part, shownArguments, shownParts } from "./shownText";

/** Classes of text that is shown as it is: it wraps anywhere, keeps its spaces, and runs in the order of its characters,
 * as in a terminal. Letters written from right to left would otherwise move what stands between them. */
export const EXACT = "whitespace-break-spaces wrap-anywhere [direction:ltr] [unicode-bidi:bidi-override]";

interface Props {
  text: string;
  /** Label for screen readers. */
  label: string;
  /** Allow more height before the text scrolls. */
  isTall?: boolean;
}

/** Code with marks for what would not be seen, and a button that copies the original text. */
export function Code({ text, label, isTall }: Props) {
  return (
    <div className="group relative">
      <pre
        tabIndex={0}
        role="region"
        aria-label={label}
        className={`overflow-x-hidden overflow-y-auto rounded-md border border-line bg-sunken px-3 py-2 font-mono text-xs leading-5 ${EXACT} ${isTall ? "max-h-[60vh]" : "max-h-72"}`}
      >
        <ShownText text={text} />
      </pre>
      <CopyButton text={text} />
    </div>
  );
}

/** Text in its lines. */
export function ShownText({ text }: { text: string }) {
  return text.split("\n").map((line, number) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: the lines of a text have no other name
    <Fragment key={number}>
      {number > 0 && "\n"}
      <Parts parts={shownParts(line)} />
    </Fragment>
  ));
}

/** A line as it is shown. Marks have a style of their own, because their characters can be in the text. */
export function Parts({ parts }: { parts: readonly Part[] }) {
  return parts.map(({ text, isMark }, number) =>
    isMark ? (
      // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a line have no other name
      <span key={number} data-mark className={/^[→·]/.test(text) ? "text-muted" : MARK}>
        {text}
      </span>
    ) : (
      // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a line have no other name
      <Fragment key={number}>{text}</Fragment>
    ),
  );
}

/** The arguments of a call by name. Texts keep their lines. */
export function ArgumentList({ given, label }: { given: unknown; label: string }) {
  const found = shownArguments(given);
  if (found.length === 0) return null;
  return (
    <dl
      aria-label={label}
      className="space-y-1 rounded-md border border-line bg-sunken px-3 py-2 font-mono text-xs leading-5"
    >
      {found.map(({ name, lines, isText }) => (
        <div key={name} className={isText ? "" : "flex flex-wrap gap-x-2"}>
          <dt className="text-muted wrap-anywhere">{name}</dt>
          <dd className={`min-w-0 ${isText ? "border-l-2 border-line-strong pl-2" : ""} ${EXACT}`}>
            <ShownText text={lines.join("\n")} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

const MARK = "rounded-sm bg-warn-soft text-warn";

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
