/** What a person has prepared in the review of a session and not yet sent: marked hunks. And the last decision, to undo it.
 * Both survive a reload: a mark that is lost would let through what the person has seen and refused. */
import { useState } from "react";
import type { Schema } from "../../api/client";
import type { ReviewFile, ReviewHunk } from "./reviewFiles";

/** The marked hunks of a file, by their ids, and the version of the file in which they were marked. */
interface FileMarks {
  version: string;
  ids: ReadonlySet<string>;
}

/** By path. */
export type Marks = ReadonlyMap<string, FileMarks>;

export interface KeptMarks {
  /** The ids of the marked hunks. */
  of: (file: ReviewFile) => ReadonlySet<string>;
  /** How many hunks were marked and are not there any more: the file has changed since. */
  lost: (file: ReviewFile) => number;
  toggle: (file: ReviewFile, hunk: ReviewHunk) => void;
  /** The files are decided. */
  forget: (paths: readonly string[]) => void;
}

export function useMarks(name: string): KeptMarks {
  const storage = `toolcrib.marks ${name}`;
  const [all, setAll] = useState<Marks>(() => marksFrom(read(localStorage, storage)));
  // From the marks as they are then: a decision is answered later, and more may be marked by now.
  const change = (to: (before: Marks) => Marks) =>
    setAll((before) => {
      const after = to(before);
      write(localStorage, storage, after.size === 0 ? null : textOfMarks(after));
      return after;
    });
  return {
    of: (file) => marksOf(all, file),
    lost: (file) => (all.get(file.path)?.ids.size ?? 0) - marksOf(all, file).size,
    toggle: (file, hunk) => change((before) => toggled(before, file, hunk)),
    forget: (paths) => change((before) => new Map([...before].filter(([path]) => !paths.includes(path)))),
  };
}

const NONE: ReadonlySet<string> = new Set();

/** Returns the marks that hold. Those of the same version do, also of hunks that are not loaded yet. */
export function marksOf(marks: Marks, { path, version, hunks }: ReviewFile): ReadonlySet<string> {
  const before = marks.get(path);
  if (before === undefined) return NONE;
  if (before.version === version) return before.ids;
  return new Set(hunks.map(({ id }) => id).filter((id) => before.ids.has(id)));
}

/** Marks a hunk, or unmarks it. Marks of hunks that the file no longer has are dropped: the person has looked again. */
export function toggled(marks: Marks, file: ReviewFile, { id }: ReviewHunk): Marks {
  const ids = new Set(marksOf(marks, file));
  if (!ids.delete(id)) ids.add(id);
  const others = [...marks].filter(([path]) => path !== file.path);
  return new Map(ids.size === 0 ? others : [...others, [file.path, { version: file.version, ids }]]);
}

export function textOfMarks(marks: Marks): string {
  return JSON.stringify([...marks].map(([path, { version, ids }]) => [path, version, [...ids]]));
}

export function marksFrom(text: string | null): Marks {
  try {
    const found: [string, string, string[]][] = JSON.parse(text ?? "[]");
    return new Map(found.map(([path, version, ids]) => [path, { version, ids: new Set(ids) }]));
  } catch {
    return new Map();
  }
}

/** The last decision of this tab, and whether it was undone. */
export type LastDecision = Schema["ReviewDecisionOut"] & { isUndone?: boolean };

export function useLastDecision(name: string): [LastDecision | null, (decision: LastDecision) => void] {
  const storage = `toolcrib.decided ${name}`;
  const [last, setLast] = useState<LastDecision | null>(() => decisionFrom(read(sessionStorage, storage)));
  const store = (decision: LastDecision) => {
    setLast(decision);
    write(sessionStorage, storage, JSON.stringify(decision));
  };
  return [last, store];
}

function decisionFrom(text: string | null): LastDecision | null {
  try {
    return text === null ? null : (JSON.parse(text) as LastDecision);
  } catch {
    return null;
  }
}

function read(storage: Storage, name: string): string | null {
  try {
    return storage.getItem(name);
  } catch {
    return null;
  }
}

function write(storage: Storage, name: string, text: string | null): void {
  try {
    if (text === null) storage.removeItem(name);
    else storage.setItem(name, text);
  } catch {
    // Full or forbidden: it lasts as long as the page.
  }
}
