/** A unified diff: side by side where there is room, one below the other where there is not. Any length: only the lines
 * that are seen are in the page. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef } from "react";
import { type DiffLine, difference, linesOf, type PairedLine, paired } from "./diffLines";
import { useIsWide } from "./useIsWide";

const LINE_HEIGHT = 20;

const TONES: Record<DiffLine["kind"], string> = {
  hunk: "bg-accent-soft text-muted",
  same: "",
  gone: "bg-bad-soft",
  new: "bg-good-soft",
};
const SIGNS: Record<DiffLine["kind"], string> = { hunk: " ", same: " ", gone: "−", new: "+" };

interface Props {
  diff: string;
  /** What it is of, for those who do not see it. */
  label: string;
}

export function Diff({ diff, label }: Props) {
  const lines = useMemo(() => linesOf(diff), [diff]);
  // What only came, or only went, has nothing to stand beside.
  const hasSides = useMemo(() => lines.some(isKept) || (lines.some(isNew) && lines.some(isGone)), [lines]);
  const isWide = useIsWide(900) && hasSides;
  const rows = useMemo(() => (isWide ? paired(lines) : lines.map(alone)), [isWide, lines]);
  const characters = useMemo(() => lines.reduce((most, line) => Math.max(most, line.text.length), 0), [lines]);
  const scroll = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => LINE_HEIGHT,
    overscan: 20,
  });
  return (
    <div
      ref={scroll}
      tabIndex={0}
      role="region"
      aria-label={`Diff of ${label}`}
      className="max-h-[60vh] overflow-auto rounded-md border border-line bg-surface font-mono text-xs leading-5"
    >
      <div
        className="relative"
        style={{ height: virtual.getTotalSize(), minWidth: `${(characters + 8) * (isWide ? 2 : 1)}ch` }}
      >
        {virtual.getVirtualItems().map((item) => {
          const row = rows[item.index] as PairedLine;
          return (
            <div
              key={item.key}
              className="absolute top-0 left-0 flex w-full"
              style={{ height: LINE_HEIGHT, transform: `translateY(${item.start}px)` }}
            >
              {isWide ? <Pair {...row} /> : <Side line={row.left} other={null} isLeft isWhole />}
            </div>
          );
        })}
      </div>
    </div>
  );
}

const isKept = (line: DiffLine) => line.kind === "same";
const isNew = (line: DiffLine) => line.kind === "new";
const isGone = (line: DiffLine) => line.kind === "gone";

function alone(line: DiffLine): PairedLine {
  return { left: line, right: null };
}

function Pair({ left, right }: PairedLine) {
  if (left?.kind === "hunk") return <Side line={left} other={null} isLeft isWhole />;
  return (
    <>
      <Side line={left} other={right} isLeft />
      <Side line={right} other={left} />
    </>
  );
}

interface SideProps {
  line: DiffLine | null;
  other: DiffLine | null;
  isLeft?: boolean;
  isWhole?: boolean;
}

function Side({ line, other, isLeft, isWhole }: SideProps) {
  const width = isWhole ? "w-full" : isLeft ? "w-1/2 border-r border-line" : "w-1/2";
  if (line === null) return <div className={`${width} bg-sunken`} />;
  const number = isLeft ? (line.before ?? line.after) : (line.after ?? line.before);
  return (
    <div className={`flex whitespace-pre ${width} ${TONES[line.kind]}`}>
      <span aria-hidden className="w-[5ch] shrink-0 pr-[1ch] text-right text-muted select-none">
        {number}
      </span>
      <span className="w-[2ch] shrink-0 select-none">{SIGNS[line.kind]}</span>
      <span>
        <Marked line={line} other={other} />
      </span>
    </div>
  );
}

/** A line that stands beside the one it replaced shows what of it is different. */
function Marked({ line, other }: { line: DiffLine; other: DiffLine | null }) {
  if (other === null || other.kind === line.kind) return line.text;
  const [start, end] = difference(line.text, other.text);
  if (start === 0 && end === line.text.length) return line.text;
  return (
    <>
      {line.text.slice(0, start)}
      <mark className={`rounded-sm text-ink ${line.kind === "gone" ? "bg-bad/25" : "bg-good/25"}`}>
        {line.text.slice(start, end)}
      </mark>
      {line.text.slice(end)}
    </>
  );
}
