/** The files of a review: one form for the open review of a session, a run and a pending approval. Pure. */
import type { Schema } from "../../api/client";
import { type RawLine, rawLinesOf } from "../../components/diffLines";
import { changeFacts, escapedLine, grouped } from "../../components/shownText";
import type { Change } from "../../events/messages";

/** The server takes no longer content for an edited file. */
const MOST_EDITED_BYTES = 200_000;

export type ChangeName = "created" | "modified" | "touched" | "moved" | "deleted" | "omitted";

/** A changed part of a file with its context. */
export interface ReviewHunk {
  id: string;
  /** Starts with the header. */
  lines: readonly RawLine[];
  added: number;
  removed: number;
  /** Whether a decision can revert it by itself. */
  isRevertible: boolean;
  /** Whose change it is, if not only the agent's: "written by you", "edited by Grace". */
  byOthers: string | null;
}

export interface ReviewFile {
  path: string;
  fromPath: string | null;
  change: ChangeName;
  added: number | null;
  removed: number | null;
  /** Who else changed it since the agent did: "you and Grace". */
  editedBy: string | null;
  /** What the lines do not say: modes, links, and why there are no lines. */
  facts: readonly string[];
  /** Why the changes could not be shown, although there are some. */
  flaw: string | null;
  hunks: readonly ReviewHunk[];
  /** How many the change has, with those that are not loaded. */
  hunkCount: number;
  /** Which of the change's lines are not loaded yet: from where on, and how many if that is known. Null: none. */
  rest: { from: number; count: number | null } | null;
  /** Names what is shown. A decision about the file repeats it. */
  version: string;
  /** The version names every byte of the change, however much of it is loaded. */
  isExact: boolean;
  /** The versions of an image, to be shown: before and after. */
  images: readonly { title: string; versionId: string }[];
  /** The content can be read, so that unchanged lines can be shown. */
  hasContent: boolean;
  /** A person can edit the content. */
  isEditable: boolean;
}

/** `nameOf` names who else changed a file. */
export function fileOfSession(
  one: Schema["ReviewFileOut"],
  nameOf: (author: Schema["OtherAuthorOut"]) => string,
): ReviewFile {
  const editedBy = one.others.length > 0 ? listed(one.others.map(nameOf)) : null;
  const hunks = one.hunks.map(({ id, diff, added, removed, author }) => ({
    id,
    lines: rawLinesOf(diff),
    added,
    removed,
    isRevertible: author === "agent",
    byOthers:
      author === "agent" ? null : `${author === "both" ? "edited" : "written"} by ${editedBy ?? "someone else"}`,
  }));
  const inside = one.inside ?? [];
  const insideHunks = inside.flatMap(hunksInside);
  const sides = [one.before, one.after].flatMap((side) => (side === null ? [] : [side]));
  const hash = one.after?.sha256 ?? null;
  const facts = [
    ...(one.kind === "file" ? [] : [one.kind === "git" ? "git directory" : one.kind]),
    ...(one.mode ? [`mode ${one.mode.join(" → ")}`] : []),
    // Other facts follow in the same line.
    ...(one.note ? [escapedLine(one.note).replace(/\.$/, "")] : []),
    ...inside.flatMap(({ path, note }) => (note ? [`${escapedLine(path)}: ${escapedLine(note)}`] : [])),
    // All that can be said of an image or an archive.
    ...(one.note && sides.length > 0 ? [sides.map(({ size }) => `${grouped(size)} bytes`).join(" → ")] : []),
    ...(one.note && hash !== null ? [`sha256 ${hash}`] : []),
  ];
  return {
    path: one.path,
    fromPath: one.from_path,
    change: one.change,
    added: one.added,
    removed: one.removed,
    editedBy,
    facts,
    flaw: one.flaw === null ? null : escapedLine(one.flaw),
    hunks: [...hunks, ...insideHunks],
    hunkCount: one.hunks_total + insideHunks.length,
    isExact: true,
    images: imagesOf(one),
    rest: one.next_line === null ? null : { from: one.next_line, count: one.lines - one.next_line },
    version: one.version,
    hasContent: one.kind === "file" && one.change !== "deleted",
    isEditable:
      one.kind === "file" && one.change !== "deleted" && hunks.length > 0 && (one.size ?? 0) <= MOST_EDITED_BYTES,
  };
}

const IMAGE = /\.(?:png|jpe?g|gif|webp)$/i;
/** A larger image would hold up the page. */
const MOST_IMAGE_BYTES = 5_000_000;

function imagesOf({ path, before, after, hunks }: Schema["ReviewFileOut"]): ReviewFile["images"] {
  if (!IMAGE.test(path) || hunks.length > 0) return [];
  const sides = [
    { title: "Before", side: before },
    { title: "After", side: after },
  ];
  return sides.flatMap(({ title, side }) =>
    side?.version_id != null && side.size <= MOST_IMAGE_BYTES ? [{ title, versionId: side.version_id }] : [],
  );
}

/** The lines of a file in a git directory. They are decided with the directory. */
function hunksInside({ path, change, diff }: Schema["UncommonGitFileOut"]): ReviewHunk[] {
  return hunksOf(diff ?? "").map(({ lines: [head, ...lines], ...hunk }) => ({
    ...hunk,
    id: `${path} ${hunk.id}`.replace(/\s+/g, "-"),
    lines: [...(head ? [{ ...head, raw: `${path} (${change}) ${head.raw}` }] : []), ...lines],
    isRevertible: false,
  }));
}

export function fileOfApproval(one: Change, at: number): ReviewFile {
  const sides = [one.before, one.after].map((side) => `${side?.sha256 ?? ""} ${side?.mode ?? ""}`);
  const hunks = hunksOf(one.diff ?? "");
  return {
    path: one.path ?? `omitted ${at}`,
    fromPath: one.from ?? null,
    change: one.change as ChangeName,
    added: one.added ?? null,
    removed: one.removed ?? null,
    editedBy: null,
    facts: one.change === "omitted" ? [`${grouped(one.count ?? 0)} more files`] : changeFacts(one),
    flaw: null,
    hunks,
    hunkCount: hunks.length,
    images: [],
    isExact: [one.before, one.after].every((side) => side == null || side.sha256 !== null),
    rest: restOf(one),
    version: sides.join(" "),
    hasContent: one.kind === "file" && one.before != null,
    isEditable: one.kind === "file" && one.after != null && Boolean(one.diff),
  };
}

export function fileOfRun(one: Schema["ChangedFile"]): ReviewFile {
  const hunks = hunksOf(one.diff ?? "");
  return {
    path: one.path,
    fromPath: one.from_path,
    change: one.change,
    added: one.added,
    removed: one.removed,
    editedBy: null,
    facts: one.kind === "file" ? (one.diff ? [] : ["no diff"]) : [one.kind],
    flaw: null,
    rest: null,
    hunks,
    hunkCount: hunks.length,
    isExact: false,
    images: [],
    version: `${one.file_id} ${one.diff?.length ?? 0}`,
    hasContent: false,
    isEditable: false,
  };
}

/** Lines of an approval that are on a page of their own, because the approval itself would be too long with them. */
function restOf(one: Change): ReviewFile["rest"] {
  if (one.change === "omitted") return { from: 0, count: null };
  if (one.next_line != null) return { from: one.next_line, count: null };
  const isElsewhere = one.diff_omitted || one.no_diff === "large" || one.no_diff === "unread";
  // What a page does not show either has a number.
  return isElsewhere && one.number == null && one.kind === "file" ? { from: 0, count: null } : null;
}

/** Returns the hunks with those of the next page. The last one may go on there. */
export function withMoreHunks<Hunk extends { id: string; diff: string }>(
  hunks: readonly Hunk[],
  more: readonly Hunk[],
): Hunk[] {
  const [last, next] = [hunks.at(-1), more[0]];
  if (last === undefined || next === undefined || last.id !== next.id) return [...hunks, ...more];
  return [...hunks.slice(0, -1), { ...last, diff: joinedHunk(last.diff, next.diff) }, ...more.slice(1)];
}

/** Returns the review with the lines that were loaded before, of files that are the same: what is read stays where it is. */
export function withLoadedLines(review: Schema["ReviewOut"], before: Schema["ReviewOut"]): Schema["ReviewOut"] {
  const known = new Map(before.files.map((file) => [file.path, file]));
  const files = review.files.map((file) => {
    const old = known.get(file.path);
    if (old === undefined || old.version !== file.version || file.next_line === null) return file;
    const hasMore = old.next_line === null || old.next_line > file.next_line;
    return hasMore ? { ...file, flaw: old.flaw, hunks: old.hunks, next_line: old.next_line } : file;
  });
  return { ...review, files };
}

/** Whether a review has the files that a person saw, and no others. */
export function isAsShown(
  files: readonly Pick<Schema["ReviewFileOut"], "path" | "version">[],
  shown: readonly Pick<ReviewFile, "path" | "version">[],
): boolean {
  const versions = new Map(shown.map(({ path, version }) => [path, version]));
  return files.length === shown.length && files.every(({ path, version }) => versions.get(path) === version);
}

/** Joins two parts of a hunk under one header. */
export function joinedHunk(diff: string, more: string): string {
  const [one, other] = [partsOfHunk(diff), partsOfHunk(more)];
  if (one === null || other === null) return diff + more;
  const old = joinedRange(one.old, other.old);
  return `@@ -${old} +${joinedRange(one.new, other.new)} @@\n${one.body}${other.body}`;
}

/** Returns a diff of one file with the lines of its next page. */
export function withMoreDiff(diff: string, more: string): string {
  const next = more.slice(Math.max(0, more.search(/^@@ /m)));
  const at = diff.lastIndexOf("\n@@ ") + 1;
  const end = next.indexOf("\n@@ ") + 1 || next.length;
  const [last, first] = [partsOfHunk(diff.slice(at)), partsOfHunk(next.slice(0, end))];
  const goesOn =
    last !== null &&
    first !== null &&
    endOf(last.old) === endBefore(first.old) &&
    endOf(last.new) === endBefore(first.new);
  if (!goesOn) return diff + next;
  return diff.slice(0, at) + joinedHunk(diff.slice(at), next.slice(0, end)) + next.slice(end);
}

/** The last line of a range, and the last one before it. */
const endOf = ([start, count]: LineRange) => (count === 0 ? start : start + count - 1);
const endBefore = ([start, count]: LineRange) => (count === 0 ? start : start - 1);

/** Returns the changes of an approval with those that were loaded by pages, by their numbers. */
export function withLoaded(changes: readonly Change[], loaded: ReadonlyMap<number, Change>): Change[] {
  const listed = changes.filter(({ change }) => change !== "omitted");
  const shown = listed.map((one, number) => loaded.get(number) ?? one);
  for (let number = listed.length; loaded.has(number); number++) shown.push(loaded.get(number) as Change);
  const missing = changes.reduce((sum, one) => sum + (one.change === "omitted" ? (one.count ?? 0) : 0), 0);
  const left = missing - (shown.length - listed.length);
  return left > 0 ? [...shown, { path: null, change: "omitted", count: left }] : shown;
}

type LineRange = readonly [start: number, count: number];

function partsOfHunk(diff: string): { old: LineRange; new: LineRange; body: string } | null {
  const header = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n/.exec(diff);
  if (header === null) return null;
  const [all, start, count, newStart, newCount] = header;
  return {
    old: [Number(start), Number(count ?? 1)],
    new: [Number(newStart), Number(newCount ?? 1)],
    body: diff.slice(all.length),
  };
}

/** A range without lines names the line before it. */
function joinedRange([start, count]: LineRange, [next, others]: LineRange): string {
  const first = count > 0 || others === 0 ? start : next;
  return count + others === 1 ? String(first) : `${first},${count + others}`;
}

function listed(names: readonly string[]): string {
  const all = [...new Set(names)];
  return all.length < 2 ? (all[0] ?? "") : `${all.slice(0, -1).join(", ")} and ${all.at(-1)}`;
}

/** Splits a diff of one file into its hunks. They are named by their place. */
export function hunksOf(diff: string): ReviewHunk[] {
  const hunks: (ReviewHunk & { lines: RawLine[] })[] = [];
  for (const line of rawLinesOf(diff)) {
    if (line.kind === "hunk") {
      const id = String(hunks.length);
      hunks.push({ id, lines: [line], added: 0, removed: 0, isRevertible: true, byOthers: null });
      continue;
    }
    const hunk = hunks.at(-1);
    if (hunk === undefined) continue;
    hunk.lines.push(line);
    if (line.kind === "new") hunk.added++;
    if (line.kind === "gone") hunk.removed++;
  }
  return hunks;
}

/** A short name of a text, to compare it with what was shown before. */
export async function hashOf(text: string): Promise<string> {
  // Only pages of a secure context have `crypto.subtle`.
  if (!globalThis.crypto?.subtle) return plainHash(text);
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(digest).slice(0, 12)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function plainHash(text: string): string {
  let hash = 0xcbf29ce484222325n;
  for (let at = 0; at < text.length; at++) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(text.charCodeAt(at))) * 0x100000001b3n);
  }
  return hash.toString(16);
}

/** What is shown of a file, as one text. */
export function shownContent(file: ReviewFile): string {
  const lines = file.isExact ? [] : file.hunks.flatMap((hunk) => hunk.lines.map((line) => `${line.kind} ${line.raw}`));
  return [file.path, file.fromPath, file.change, file.version, ...file.facts, ...lines].join("\n");
}
