/** Parses a unified diff into lines as they are shown, and pairs them side by side. Pure. */
import { escapedLine, type Part, shownParts, textOfParts } from "./shownText";

export type LineKind = "hunk" | "same" | "gone" | "new";

export interface DiffLine {
  kind: LineKind;
  /** The line as it is shown, and its parts. */
  text: string;
  parts: readonly Part[];
  /** Line number before and after; null where the line does not exist. */
  before: number | null;
  after: number | null;
}

/** A row of two columns; a side is null where it has no line. A hunk header spans both. */
export interface PairedLine {
  left: DiffLine | null;
  right: DiffLine | null;
}

const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/;
const NO_NEWLINE: Part = { text: "⟦no newline at the end⟧", isMark: true };

/** A line of a diff as it is in the file, without its sign. */
export interface RawLine {
  kind: LineKind;
  raw: string;
  before: number | null;
  after: number | null;
  /** The file ends here without a newline. */
  isUnended: boolean;
}

export function linesOf(diff: string): DiffLine[] {
  return rawLinesOf(diff).map((line) => {
    const parts = line.kind === "hunk" ? [{ text: escapedLine(line.raw), isMark: false }] : shownPartsOf(line);
    return { kind: line.kind, text: textOfParts(parts), parts, ...numbersOf(line) };
  });
}

/** A hunk header is shown without numbers. */
function numbersOf({ kind, before, after }: RawLine): Pick<DiffLine, "before" | "after"> {
  return kind === "hunk" ? { before: null, after: null } : { before, after };
}

/** Returns a line's text and marks, with a mark for a missing newline at the end of the file. */
export function shownPartsOf({ raw, isUnended }: RawLine): Part[] {
  return isUnended ? [...shownParts(raw), NO_NEWLINE] : shownParts(raw);
}

export function rawLinesOf(diff: string): RawLine[] {
  const lines: RawLine[] = [];
  let before = 0;
  let after = 0;
  let isInHunk = false;
  const all = diff.replace(/\n$/, "").split("\n");
  for (const [number, line] of all.entries()) {
    const hunk = HUNK.exec(line);
    if (hunk) {
      before = Number(hunk[1]);
      after = Number(hunk[2]);
      isInHunk = true;
      lines.push({ kind: "hunk", raw: line, before, after, isUnended: false });
      continue;
    }
    // "No newline at end of file" is not a line of the file. It is a mark at the end of the line before it.
    if (!isInHunk || line.startsWith("\\")) continue;
    const shown = { raw: line.slice(1), isUnended: all[number + 1]?.startsWith("\\") ?? false };
    if (line.startsWith("+")) lines.push({ kind: "new", ...shown, before: null, after: after++ });
    else if (line.startsWith("-")) lines.push({ kind: "gone", ...shown, before: before++, after: null });
    else lines.push({ kind: "same", ...shown, before: before++, after: after++ });
  }
  return lines;
}

/** Pairs removed lines with the lines that replaced them. */
export function paired(lines: readonly DiffLine[]): PairedLine[] {
  const rows: PairedLine[] = [];
  let at = 0;
  while (at < lines.length) {
    const gone = runOf(lines, at, "gone");
    const came = runOf(lines, at + gone.length, "new");
    if (gone.length + came.length === 0) {
      const line = lines[at++] as DiffLine;
      rows.push({ left: line, right: line });
      continue;
    }
    for (let row = 0; row < Math.max(gone.length, came.length); row++) {
      rows.push({ left: gone[row] ?? null, right: came[row] ?? null });
    }
    at += gone.length + came.length;
  }
  return rows;
}

function runOf(lines: readonly DiffLine[], start: number, kind: LineKind): DiffLine[] {
  let end = start;
  while (lines[end]?.kind === kind) end++;
  return lines.slice(start, end);
}

/** Returns the range in which two lines differ: `[start, end of the first, end of the second]`. */
export function difference(first: string, second: string): [number, number, number] {
  let start = 0;
  while (start < first.length && start < second.length && first[start] === second[start]) start++;
  let end = 0;
  const most = Math.min(first.length, second.length) - start;
  while (end < most && first[first.length - 1 - end] === second[second.length - 1 - end]) end++;
  return [start, first.length - end, second.length - end];
}
