/** A diff: side by side in wide columns, unified in narrow ones. Long lines wrap, because a person who approves
 * must see every change. A long diff scrolls, and only its visible lines are rendered, until a person wants all. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { type RefObject, useEffect, useMemo, useRef, useState } from "react";
import { Button } from "./Button";
import { EXACT, Parts } from "./Code";
import { type DiffLine, difference, linesOf, type PairedLine, paired } from "./diffLines";
import { grouped, type Part } from "./shownText";
import { useWidth } from "./useWidth";

const LINE_HEIGHT = 20;
/** Minimum width of two columns, and approximate width of a character, in pixels. */
const ROOM = 900;
const CHARACTER = 7.3;
/** Characters before a line's text: its number and its sign. */
const MARGIN = 7;
/** Rows on the screen that fit into any box. More need a button that shows them all. */
const FEW = 20;

const TONES: Record<DiffLine["kind"], string> = {
  hunk: "bg-accent-soft text-muted",
  same: "",
  gone: "bg-bad-soft",
  new: "bg-good-soft",
};
const SIGNS: Record<DiffLine["kind"], string> = { hunk: " ", same: " ", gone: "-", new: "+" };

interface Props {
  diff: string;
  /** The path, for screen readers. */
  label: string;
}

export function Diff({ diff, label }: Props) {
  const lines = useMemo(() => linesOf(diff), [diff]);
  const [isWhole, setIsWhole] = useState(false);
  // A diff with only added or only removed lines has no second column.
  const hasSides = useMemo(() => lines.some(isKept) || (lines.some(isNew) && lines.some(isGone)), [lines]);
  const scroll = useRef<HTMLDivElement>(null);
  const width = useWidth(scroll);
  const isWide = width >= ROOM && hasSides;
  const rows = useMemo(() => (isWide ? paired(lines) : lines.map(alone)), [isWide, lines]);
  const columns = Math.max(20, Math.floor(width / (isWide ? 2 : 1) / CHARACTER) - MARGIN);
  const isLong = rows.reduce((sum, row) => sum + wrappedRows(row, columns), 0) > FEW;
  /** The end is out of sight: of few lines too, where one of them is long. */
  const [isBelow, setIsBelow] = useState(false);
  const look = () => {
    const box = scroll.current;
    setIsBelow(box !== null && box.scrollTop + box.clientHeight < box.scrollHeight - LINE_HEIGHT / 2);
  };
  // After every render: rows are measured when they are near.
  useEffect(look);
  return (
    <div className="overflow-hidden rounded-md border border-line bg-surface">
      <div
        ref={scroll}
        onScroll={look}
        tabIndex={0}
        role="region"
        aria-label={`Diff of ${label}`}
        className={`overflow-x-hidden overflow-y-auto -outline-offset-2 font-mono text-xs leading-5 ${isWhole ? "" : "max-h-[60vh]"}`}
      >
        {isWhole ? (
          rows.map((row, number) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the rows of a diff do not move
            <div key={number} className="flex w-full" style={{ minHeight: LINE_HEIGHT }}>
              <Row row={row} isWide={isWide} />
            </div>
          ))
        ) : (
          <VisibleRows rows={rows} isWide={isWide} columns={columns} scroll={scroll} />
        )}
      </div>
      {isLong && (
        <div className="flex items-center gap-2 border-t border-line px-2 py-1 text-xs text-muted">
          <span className="grow">
            {grouped(lines.length)} lines
            {isBelow && <span className="font-medium text-warn">, continued below: scroll to read all of it</span>}
          </span>
          <Button small variant="quiet" aria-expanded={isWhole} onClick={() => setIsWhole(!isWhole)}>
            {isWhole ? "Show less" : `Show all ${grouped(lines.length)} lines`}
          </Button>
        </div>
      )}
    </div>
  );
}

interface RowsProps {
  rows: readonly PairedLine[];
  isWide: boolean;
  /** Characters that fit into a row. */
  columns: number;
  scroll: RefObject<HTMLDivElement | null>;
}

function VisibleRows({ rows, isWide, columns, scroll }: RowsProps) {
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    // An estimate until the row is measured.
    estimateSize: (index) => LINE_HEIGHT * wrappedRows(rows[index], columns),
    overscan: 20,
  });
  return (
    <div className="relative" style={{ height: virtual.getTotalSize() }}>
      {virtual.getVirtualItems().map((item) => (
        <div
          key={item.key}
          ref={virtual.measureElement}
          data-index={item.index}
          className="absolute top-0 left-0 flex w-full"
          style={{ minHeight: LINE_HEIGHT, transform: `translateY(${item.start}px)` }}
        >
          <Row row={rows[item.index] as PairedLine} isWide={isWide} />
        </div>
      ))}
    </div>
  );
}

function Row({ row, isWide }: { row: PairedLine; isWide: boolean }) {
  return isWide ? <Pair {...row} /> : <Side line={row.left} other={null} isLeft isWhole />;
}

const isKept = (line: DiffLine) => line.kind === "same";
const isNew = (line: DiffLine) => line.kind === "new";
const isGone = (line: DiffLine) => line.kind === "gone";

/** Estimates the width of a line in characters. Some other letters are twice as wide as Latin ones. */
function widthOf(line: DiffLine | null | undefined): number {
  const length = line?.text.length ?? 0;
  return /[\u1100-\uffff]/.test(line?.text ?? "") ? 2 * length : length;
}

/** Estimates how many rows a line takes on the screen. */
function wrappedRows(row: PairedLine | undefined, columns: number): number {
  const length = Math.max(widthOf(row?.left), widthOf(row?.right));
  return Math.max(1, Math.ceil(length / columns));
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
    <div className={`flex ${EXACT} ${width} ${TONES[line.kind]}`}>
      <span aria-hidden className="w-[5ch] shrink-0 pr-[1ch] text-right text-muted select-none">
        {number}
      </span>
      <span className="w-[2ch] shrink-0 select-none">{SIGNS[line.kind]}</span>
      <span className="min-w-0 grow" data-line={line.kind}>
        <Marked line={line} other={other} />
      </span>
    </div>
  );
}

/** Highlights what differs from the line in the other column. */
function Marked({ line, other }: { line: DiffLine; other: DiffLine | null }) {
  if (other === null || other.kind === line.kind) return <Parts parts={line.parts} />;
  const [start, end] = difference(line.text, other.text);
  if (start === 0 && end === line.text.length) return <Parts parts={line.parts} />;
  return (
    <>
      <Parts parts={within(line.parts, 0, start)} />
      <mark className={`rounded-sm text-ink ${line.kind === "gone" ? "bg-bad/25" : "bg-good/25"}`}>
        <Parts parts={within(line.parts, start, end)} />
      </mark>
      <Parts parts={within(line.parts, end, line.text.length)} />
    </>
  );
}

/** Returns the parts of a line between two places. */
function within(parts: readonly Part[], start: number, end: number): Part[] {
  let at = 0;
  return parts.flatMap(({ text, isMark }) => {
    const piece = text.slice(Math.max(0, start - at), Math.max(0, end - at));
    at += text.length;
    return piece === "" ? [] : [{ text: piece, isMark }];
  });
}
