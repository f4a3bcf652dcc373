import { Fragment } from "react";
import { CopyButton } from "./CopyButton";
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
  /** Show line numbers, from this one on. */
  firstLine?: number;
}

/** Code with marks for what would not be seen, and a button that copies the original text. */
export function Code({ text, label, isTall, firstLine }: Props) {
  return (
    <div className="group relative">
      <pre
        tabIndex={0}
        role="region"
        aria-label={label}
        className={`overflow-x-hidden overflow-y-auto rounded-md border border-line bg-sunken px-3 py-2 font-mono text-xs leading-5 ${EXACT} ${isTall ? "max-h-[60vh]" : "max-h-72"}`}
      >
        {firstLine === undefined ? <ShownText text={text} /> : <NumberedLines text={text} firstLine={firstLine} />}
      </pre>
      <CopyButton text={text} className="absolute top-1 right-1" />
    </div>
  );
}

function NumberedLines({ text, firstLine }: { text: string; firstLine: number }) {
  const lines = text.replace(/\n$/, "").split("\n");
  const width = String(firstLine + lines.length - 1).length;
  return lines.map((line, number) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: the lines of a text have no other name
    <span key={number} className="flex gap-3">
      <span aria-hidden className="shrink-0 text-muted select-none">
        {String(firstLine + number).padStart(width)}
      </span>
      <span className="min-h-5 min-w-0">
        <Parts parts={shownParts(line)} />
      </span>
    </span>
  ));
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
