/** The files of a review: one form for the open review of a session, a run and a pending approval. Pure. */
import type { Schema } from "../../api/client";
import { type RawLine, rawLinesOf } from "../../components/diffLines";
import { changeFacts, escapedLine } from "../../components/shownText";
import type { Change } from "../../events/messages";

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
  hunks: readonly ReviewHunk[];
  /** Names what is shown. A decision about the file repeats it. */
  version: string;
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
  const facts = [
    ...(one.kind === "file" ? [] : [one.kind === "git" ? "git directory" : one.kind]),
    ...(one.mode ? [`mode ${one.mode.join(" → ")}`] : []),
    ...(one.note ? [escapedLine(one.note)] : []),
  ];
  return {
    path: one.path,
    fromPath: one.from_path,
    change: one.change,
    added: one.added,
    removed: one.removed,
    editedBy,
    facts,
    hunks,
    version: one.version,
    hasContent: one.kind === "file" && one.change !== "deleted",
    isEditable: one.kind === "file" && one.change !== "deleted" && hunks.length > 0,
  };
}

export function fileOfApproval(one: Change, at: number): ReviewFile {
  const sides = [one.before, one.after].map((side) => `${side?.sha256 ?? ""} ${side?.mode ?? ""}`);
  return {
    path: one.path ?? `omitted ${at}`,
    fromPath: one.from ?? null,
    change: one.change as ChangeName,
    added: one.added ?? null,
    removed: one.removed ?? null,
    editedBy: null,
    facts: one.change === "omitted" ? [`${one.count ?? 0} more files`] : changeFacts(one),
    hunks: hunksOf(one.diff ?? ""),
    version: sides.join(" "),
    hasContent: one.kind === "file" && one.before != null,
    isEditable: one.kind === "file" && one.after != null && Boolean(one.diff),
  };
}

export function fileOfRun(one: Schema["ChangedFile"]): ReviewFile {
  return {
    path: one.path,
    fromPath: one.from_path,
    change: one.change,
    added: one.added,
    removed: one.removed,
    editedBy: null,
    facts: one.kind === "file" ? (one.diff ? [] : ["no diff"]) : [one.kind],
    hunks: hunksOf(one.diff ?? ""),
    version: `${one.file_id} ${one.diff?.length ?? 0}`,
    hasContent: false,
    isEditable: false,
  };
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
  const lines = file.hunks.flatMap((hunk) => hunk.lines.map((line) => `${line.kind} ${line.raw}`));
  return [file.path, file.fromPath, file.change, file.version, ...file.facts, ...lines].join("\n");
}
