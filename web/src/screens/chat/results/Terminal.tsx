/** A command and its output with the colours that it printed. Follows the output while the command runs. */
import { useLayoutEffect, useMemo, useRef, useState } from "react";
import { Button } from "../../../components/Button";
import { EXACT, Parts, ShownText } from "../../../components/Code";
import { CopyButton } from "../../../components/CopyButton";
import { shownParts } from "../../../components/shownText";
import { plainText, type Span, type Tone, terminalLines } from "./ansi";
import { counted } from "./callView";

/** More lines than a person reads at once. While a command runs, every piece of output renders them again. */
const MOST_LINES = 400;

interface Props {
  command: string;
  output: string;
  exitCode: number | null;
  isRunning: boolean;
}

export function Terminal({ command, output, exitCode, isRunning }: Props) {
  const scroll = useRef<HTMLDivElement>(null);
  const [isWhole, setIsWhole] = useState(false);
  const lines = useMemo(() => terminalLines(output), [output]);
  const hidden = isWhole ? 0 : Math.max(0, lines.length - MOST_LINES);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the end moves with the output
  useLayoutEffect(() => {
    if (isRunning && scroll.current) scroll.current.scrollTop = scroll.current.scrollHeight;
  }, [output, isRunning]);
  return (
    <div className="overflow-hidden rounded-md border border-line bg-sunken font-mono text-xs leading-5">
      <div className="group relative flex gap-2 border-b border-line py-1 pr-9 pl-3">
        <span aria-hidden className="text-good select-none">
          $
        </span>
        <div role="group" aria-label="Command" className={`max-h-40 min-w-0 grow overflow-y-auto ${EXACT}`}>
          <ShownText text={command} />
        </div>
        <CopyButton text={command} label="Copy the command" className="absolute top-0.5 right-1" />
      </div>
      {(lines.length > 0 || isRunning) && (
        <div className="group relative">
          <div
            ref={scroll}
            tabIndex={0}
            role="region"
            aria-label={isRunning ? "Output so far" : "Result"}
            className={`max-h-96 overflow-x-hidden overflow-y-auto py-2 pr-9 pl-3 -outline-offset-2 ${EXACT}`}
          >
            {hidden > 0 && (
              <div className="pb-1 font-sans">
                <Button small variant="quiet" onClick={() => setIsWhole(true)}>
                  Show {counted(hidden, "earlier line")}
                </Button>
              </div>
            )}
            {lines.slice(hidden).map((line, number) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: the lines of an output have no other name
              <div key={number} className="min-h-5">
                <Line spans={line} />
              </div>
            ))}
            {isRunning && <span aria-hidden className="inline-block h-3.5 w-2 animate-pulse bg-muted align-middle" />}
          </div>
          {output !== "" && (
            <CopyButton text={plainText(output)} label="Copy the output" className="absolute top-1 right-1" />
          )}
        </div>
      )}
      {exitCode !== null && exitCode !== 0 && (
        <p className="border-t border-line bg-bad-soft px-3 py-1 font-sans text-bad">Exit code {exitCode}</p>
      )}
      {!isRunning && lines.length === 0 && <p className="px-3 py-1 font-sans text-muted">No output</p>}
    </div>
  );
}

const TONES: Record<Tone, string> = {
  muted: "text-muted",
  bad: "text-bad",
  good: "text-good",
  warn: "text-warn",
  accent: "text-accent",
  violet: "text-violet",
  teal: "text-teal",
  ink: "text-ink",
};

function Line({ spans }: { spans: readonly Span[] }) {
  return spans.map((span, number) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: the spans of a line have no other name
    <span key={number} className={classOf(span)}>
      <Parts parts={shownParts(span.text)} />
    </span>
  ));
}

function classOf({ tone, isBold, isItalic, isUnderlined, isReversed }: Span): string {
  return [
    // Text and ground change places, whatever the colours were: both must stay readable.
    isReversed ? "bg-ink text-surface" : tone && TONES[tone],
    isBold && "font-bold",
    isItalic && "italic",
    isUnderlined && "underline",
  ]
    .filter(Boolean)
    .join(" ");
}
