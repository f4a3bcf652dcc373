/** What a person has prepared in the review of a session and not yet sent: marked hunks. And the last decision, to undo it.
 * Both survive a reload: a mark that is lost would let through what the person has seen and refused. */
import { useState } from "react";
import type { Schema } from "../../api/client";
import type { ReviewFile, ReviewHunk } from "./reviewFiles";

/** The ids of the marked hunks, by path. */
export type Marks = ReadonlyMap<string, ReadonlySet<string>>;

export interface KeptMarks {
  all: Marks;
  of: (file: ReviewFile) => ReviewHunk[];
  /** Hunks that were marked and are not there any more: the file has changed since. */
  lost: (file: ReviewFile) => number;
  toggle: (file: ReviewFile, hunk: ReviewHunk) => void;
  /** The files are decided. */
  forget: (paths: readonly string[]) => void;
}

export function useMarks(name: string): KeptMarks {
  const storage = `toolcrib.marks ${name}`;
  const [all, setAll] = useState<Marks>(() => marksFrom(read(localStorage, storage)));
  const store = (after: Marks) => {
    setAll(after);
    write(localStorage, storage, after.size === 0 ? null : textOfMarks(after));
  };
  const of = (file: ReviewFile) => file.hunks.filter(({ id }) => all.get(file.path)?.has(id));
  return {
    all,
    of,
    lost: (file) => (all.get(file.path)?.size ?? 0) - of(file).length,
    toggle: (file, hunk) => store(toggled(all, file, hunk)),
    forget: (paths) => store(new Map([...all].filter(([path]) => !paths.includes(path)))),
  };
}

/** Marks a hunk, or unmarks it. Marks of hunks that the file no longer has are dropped: the person has looked again. */
export function toggled(marks: Marks, file: ReviewFile, { id }: ReviewHunk): Marks {
  const before = marks.get(file.path);
  const ids = new Set(file.hunks.map((hunk) => hunk.id).filter((hunk) => before?.has(hunk)));
  if (!ids.delete(id)) ids.add(id);
  const others = [...marks].filter(([path]) => path !== file.path);
  return new Map(ids.size === 0 ? others : [...others, [file.path, ids]]);
}

export function textOfMarks(marks: Marks): string {
  return JSON.stringify([...marks].map(([path, ids]) => [path, [...ids]]));
}

export function marksFrom(text: string | null): Marks {
  try {
    const found: [string, string[]][] = JSON.parse(text ?? "[]");
    return new Map(found.map(([path, ids]) => [path, new Set(ids)]));
  } catch {
    return new Map();
  }
}

type Decided = Schema["ReviewDecisionOut"];

/** The last decision of this tab. */
export function useLastDecision(name: string): [Decided | null, (decided: Decided | null) => void] {
  const storage = `toolcrib.decided ${name}`;
  const [last, setLast] = useState<Decided | null>(() => decisionFrom(read(sessionStorage, storage)));
  const store = (decided: Decided | null) => {
    setLast(decided);
    write(sessionStorage, storage, decided === null ? null : JSON.stringify(decided));
  };
  return [last, store];
}

function decisionFrom(text: string | null): Decided | null {
  try {
    return text === null ? null : (JSON.parse(text) as Decided);
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
