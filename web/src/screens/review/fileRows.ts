/** The rows of a file in a review: hunks, gaps of unchanged lines, and lines alone or in pairs. Pure. */
import type { RawLine } from "../../components/diffLines";
import type { ReviewHunk } from "./reviewFiles";

export type Row =
  /** The header of a hunk. `gap` unchanged lines before it are not shown. */
  | { kind: "hunk"; key: string; hunk: ReviewHunk; number: number; gap: number }
  /** The unchanged lines after the last hunk. Their number is not known before the file is read. */
  | { kind: "rest"; key: string; gap: number | null }
  | { kind: "line"; key: string; hunk: ReviewHunk | null; left: RawLine | null; right: RawLine | null };

/** The unchanged lines that a person wants to see, by the hunk that follows them; the rest is `-1`. */
export type Expanded = ReadonlySet<number>;

interface Options {
  isSplit: boolean;
  expanded: Expanded;
  /** The lines of the file after the change, if they were read. */
  content: readonly string[] | null;
  hasRest: boolean;
}

export function rowsOf(hunks: readonly ReviewHunk[], { isSplit, expanded, content, hasRest }: Options): Row[] {
  const rows: Row[] = [];
  let before = 1;
  let after = 1;
  for (const [number, hunk] of hunks.entries()) {
    const lines = hunk.lines.slice(1);
    const first = Math.max(0, gapBefore(lines[0], before, after));
    const isOpen = expanded.has(number) && content !== null;
    if (isOpen) addSame(rows, content, before, after, first);
    rows.push({ kind: "hunk", key: `hunk ${hunk.id}`, hunk, number, gap: isOpen ? 0 : first });
    addLines(rows, hunk, lines, isSplit);
    before = endOf(lines, "before", before + first);
    after = endOf(lines, "after", after + first);
  }
  const rest = content === null ? null : Math.max(0, content.length - after + 1);
  if (expanded.has(-1) && content !== null) addSame(rows, content, before, after, rest ?? 0);
  else if (hasRest && rest !== 0 && hunks.length > 0) rows.push({ kind: "rest", key: "rest", gap: rest });
  return rows;
}

/** A removed line has its number on the old side, an added line on the new side. */
function gapBefore(line: RawLine | undefined, before: number, after: number): number {
  if (line?.before != null) return line.before - before;
  return (line?.after ?? after) - after;
}

function addLines(rows: Row[], hunk: ReviewHunk, lines: readonly RawLine[], isSplit: boolean): void {
  const add = (left: RawLine | null, right: RawLine | null, isAlone = !isSplit) =>
    // Two hunks can have the same line of context between them.
    rows.push({ kind: "line", key: `${hunk.id} ${keyOf(isAlone ? left : (right ?? left))}`, hunk, left, right });
  let at = 0;
  while (at < lines.length) {
    const line = lines[at] as RawLine;
    if (line.kind === "same") {
      add(line, line);
      at++;
      continue;
    }
    const gone = runOf(lines, at, "gone");
    const came = runOf(lines, at + gone.length, "new");
    if (isSplit) {
      for (let row = 0; row < Math.max(gone.length, came.length); row++) add(gone[row] ?? null, came[row] ?? null);
    } else {
      // Alone, the second is the line that this one is compared with.
      for (const [row, one] of gone.entries()) add(one, came[row] ?? null);
      for (const [row, one] of came.entries()) add(one, gone[row] ?? null);
    }
    at += Math.max(1, gone.length + came.length);
  }
}

function addSame(rows: Row[], content: readonly string[], before: number, after: number, count: number): void {
  for (let at = 0; at < count; at++) {
    const raw = content[after - 1 + at] ?? "";
    const line: RawLine = { kind: "same", raw, before: before + at, after: after + at, isUnended: false };
    rows.push({ kind: "line", key: keyOf(line), hunk: null, left: line, right: line });
  }
}

function runOf(lines: readonly RawLine[], start: number, kind: RawLine["kind"]): RawLine[] {
  let end = start;
  while (lines[end]?.kind === kind) end++;
  return lines.slice(start, end);
}

function endOf(lines: readonly RawLine[], side: "before" | "after", otherwise: number): number {
  const last = lines.findLast((line) => line[side] !== null)?.[side];
  return last == null ? otherwise : last + 1;
}

/** Names a line of a file: its side and number. */
export function keyOf(line: RawLine | null): string {
  if (line === null) return "";
  return line.after === null ? `old ${line.before}` : `new ${line.after}`;
}

/** Whether a file's content has the lines that the hunks show, on one side. */
export function hasLinesOf(
  content: readonly string[],
  hunks: readonly ReviewHunk[],
  side: "before" | "after",
): boolean {
  return hunks.every((hunk) =>
    hunk.lines.every((line) => {
      const number = line.kind === "hunk" ? null : line[side];
      return number === null || content[number - 1] === line.raw;
    }),
  );
}
