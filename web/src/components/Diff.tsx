/** A diff: side by side in wide columns, unified in narrow ones. Long lines wrap, because a person who approves
 * must see every change. Only visible lines are rendered, so a diff can have any length. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef } from "react";
import { type DiffLine, difference, linesOf, type PairedLine, paired } from "./diffLines";
import { escaped } from "./shownText";
import { useWidth } from "./useWidth";

const LINE_HEIGHT = 20;
/** Minimum width of two columns, and approximate width of a character, in pixels. */
const ROOM = 900;
const CHARACTER = 7.3;
/** Characters before a line's text: its number and its sign. */
const MARGIN = 7;

const TONES: Record<DiffLine["kind"], string> = {
  hunk: "bg-accent-soft text-muted",
  same: "",
  gone: "bg-bad-soft",
  new: "bg-good-soft",
};
const SIGNS: Record<DiffLine["kind"], string> = { hunk: " ", same: " ", gone: "−", new: "+" };

interface Props {
  diff: string;
  /** The path, for screen readers. */
  label: string;
}

export function Diff({ diff, label }: Props) {
  const lines = useMemo(() => linesOf(diff).map((line) => ({ ...line, text: escaped(line.text) })), [diff]);
  // A diff with only added or only removed lines has no second column.
  const hasSides = useMemo(() => lines.some(isKept) || (lines.some(isNew) && lines.some(isGone)), [lines]);
  const scroll = useRef<HTMLDivElement>(null);
  const width = useWidth(scroll);
  const isWide = width >= ROOM && hasSides;
  const rows = useMemo(() => (isWide ? paired(lines) : lines.map(alone)), [isWide, lines]);
  const columns = Math.max(20, Math.floor(width / (isWide ? 2 : 1) / CHARACTER) - MARGIN);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    // An estimate until the row is measured.
    estimateSize: (index) => LINE_HEIGHT * Math.max(1, Math.ceil(longest(rows[index]) / columns)),
    overscan: 20,
  });
  return (
    <div
      ref={scroll}
      tabIndex={0}
      role="region"
      aria-label={`Diff of ${label}`}
      className="max-h-[60vh] overflow-x-hidden overflow-y-auto rounded-md border border-line bg-surface font-mono text-xs leading-5"
    >
      <div className="relative" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const row = rows[item.index] as PairedLine;
          return (
            <div
              key={item.key}
              ref={virtual.measureElement}
              data-index={item.index}
              className="absolute top-0 left-0 flex w-full"
              style={{ minHeight: LINE_HEIGHT, transform: `translateY(${item.start}px)` }}
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

function longest(row: PairedLine | undefined): number {
  return Math.max(row?.left?.text.length ?? 0, row?.right?.text.length ?? 0);
}

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
    <div className={`flex whitespace-break-spaces ${width} ${TONES[line.kind]}`}>
      <span aria-hidden className="w-[5ch] shrink-0 pr-[1ch] text-right text-muted select-none">
        {number}
      </span>
      <span className="w-[2ch] shrink-0 select-none">{SIGNS[line.kind]}</span>
      <span className="min-w-0 grow wrap-anywhere" data-line={line.kind}>
        <Marked line={line} other={other} />
      </span>
    </div>
  );
}

/** Highlights what differs from the line in the other column. */
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
