/** Parses a unified diff into lines and pairs them side by side. Pure. */

export type LineKind = "hunk" | "same" | "gone" | "new";

export interface DiffLine {
  kind: LineKind;
  text: string;
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

export function linesOf(diff: string): DiffLine[] {
  const lines: DiffLine[] = [];
  let before = 0;
  let after = 0;
  let isInHunk = false;
  for (const line of diff.replace(/\n$/, "").split("\n")) {
    const hunk = HUNK.exec(line);
    if (hunk) {
      before = Number(hunk[1]);
      after = Number(hunk[2]);
      isInHunk = true;
      lines.push({ kind: "hunk", text: line, before: null, after: null });
      continue;
    }
    if (!isInHunk) continue;
    const text = line.slice(1);
    if (line.startsWith("+")) lines.push({ kind: "new", text, before: null, after: after++ });
    else if (line.startsWith("-")) lines.push({ kind: "gone", text, before: before++, after: null });
    // "No newline at end of file" is not a line of the file.
    else if (line.startsWith("\\")) continue;
    else lines.push({ kind: "same", text, before: before++, after: after++ });
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
