/** The keys of a review: they move between hunks and files, and act on the one that has the focus. */
import { type RefObject, useMemo, useRef } from "react";
import { type Shortcut, useShortcuts } from "../../app/shortcuts";
import { loadMore, toFirstLine } from "./lineKeys";
import type { ReviewFile, ReviewHunk } from "./reviewFiles";
import type { Viewed } from "./viewed";

type Act = (file: ReviewFile, hunk: ReviewHunk | null) => void;

/** A key that decides about the file or hunk that has the focus. */
export interface FileKey {
  keys: string;
  does: string;
  act: Act;
}

/** A key that decides about everything on the page, wherever the focus is. */
export interface PageKey {
  keys: string;
  does: string;
  act: (viewed: Viewed) => void;
}

/** Where a person is: a hunk of a file, or a file that shows none. */
export interface Place {
  path: string;
  hunk: string | null;
}

interface Keys {
  /** Where the next step starts. */
  from: () => Place | null;
  /** What has the focus and is in sight. Only that is acted on. */
  target: () => Place | null;
  files: readonly ReviewFile[];
  isFolded: (file: ReviewFile) => boolean;
  go: (place: Place) => void;
  view: (file: ReviewFile) => void;
  comment: Act;
  send: () => void;
  filter: RefObject<HTMLInputElement | null>;
  /** What this kind of review decides. The keys stay the same while it is open. */
  decide: readonly FileKey[];
  decideAll: readonly PageKey[];
  viewed: Viewed;
}

export function useReviewKeys(keys: Keys): void {
  const now = useRef(keys);
  now.current = keys;
  const names = [...keys.decide, ...keys.decideAll].map((one) => `${one.keys} ${one.does}`).join("\n");
  useShortcuts(
    // biome-ignore lint/correctness/useExhaustiveDependencies: the names stand for the keys
    useMemo<Shortcut[]>(() => {
      const step = (by: number, isFile: boolean) => () => {
        const { files, from, isFolded } = now.current;
        const next = nextPlace(files, isFolded, from(), by, isFile);
        if (next !== null) now.current.go(next);
      };
      const here = (act: Act) => () => {
        const found = subjectOf(now.current.files, now.current.target());
        if (found !== null) act(found.file, found.hunk);
      };
      const all = [
        { keys: "j", does: "Next change", act: step(1, false) },
        { keys: "k", does: "Previous change", act: step(-1, false) },
        { keys: "J", does: "Next file", act: step(1, true) },
        { keys: "K", does: "Previous file", act: step(-1, true) },
        { keys: "/", does: "Find a file", act: () => now.current.filter.current?.focus() },
        ...now.current.decide.map(({ keys, does }, at) => ({
          keys,
          does,
          act: here((file, hunk) => now.current.decide[at]?.act(file, hunk)),
        })),
        ...now.current.decideAll.map(({ keys, does }, at) => ({
          keys,
          does,
          act: () => now.current.decideAll[at]?.act(now.current.viewed),
        })),
        { keys: "v", does: "Mark the file as viewed", act: here((file) => now.current.view(file)) },
        { keys: "c", does: "Comment on the change", act: here((file, hunk) => now.current.comment(file, hunk)) },
        { keys: "↓", does: "Go to the lines of the change; c comments on one", act: here(toFirstLine) },
        { keys: "m", does: "Load more lines of the file", act: here(loadMore) },
        { keys: "s", does: "Send the comments to the agent", act: () => now.current.send() },
      ];
      return all.map((one) => ({ ...one, group: "Review" }));
    }, [names]),
  );
}

/** Returns the file and hunk at a place; null if it is not, or no longer, in the review. */
export function subjectOf(
  files: readonly ReviewFile[],
  place: Place | null,
): { file: ReviewFile; hunk: ReviewHunk | null } | null {
  const file = files.find(({ path }) => path === place?.path);
  if (file === undefined || place === null) return null;
  const hunk = file.hunks.find(({ id }) => id === place.hunk) ?? null;
  // A hunk that is gone is not the whole file.
  return place.hunk !== null && hunk === null ? null : { file, hunk };
}

/** Returns the next change or file in the order of the page. */
export function nextPlace(
  files: readonly ReviewFile[],
  isFolded: (file: ReviewFile) => boolean,
  from: Place | null,
  by: number,
  isFile: boolean,
): Place | null {
  const stops = files.flatMap((file) => (isFile ? [startOf(file, isFolded(file))] : stopsOf(file, isFolded(file))));
  const at = stops.findIndex(({ path, hunk }) => path === from?.path && (isFile || hunk === from.hunk));
  // Somewhere else in the file, for example after scrolling: its first change.
  const next =
    at >= 0
      ? at + by
      : Math.max(
          0,
          stops.findIndex(({ path }) => path === from?.path),
        );
  return stops[Math.min(stops.length - 1, Math.max(0, next))] ?? null;
}

function stopsOf(file: ReviewFile, isFolded: boolean): Place[] {
  if (isFolded || file.hunks.length === 0) return [{ path: file.path, hunk: null }];
  return file.hunks.map(({ id }) => ({ path: file.path, hunk: id }));
}

export function startOf(file: ReviewFile, isFolded: boolean): Place {
  return stopsOf(file, isFolded)[0] as Place;
}
