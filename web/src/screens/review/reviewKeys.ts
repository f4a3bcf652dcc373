/** The keys of a review: they move between hunks and files, and act on the one that is current. */
import { type RefObject, useMemo, useRef } from "react";
import { type Shortcut, useShortcuts } from "../../app/shortcuts";
import { toFirstLine } from "./lineKeys";
import type { ReviewFile, ReviewHunk } from "./reviewFiles";

/** A key that decides about the current file or hunk. */
export interface FileKey {
  keys: string;
  does: string;
  act: (file: ReviewFile, hunk: ReviewHunk | null) => void;
}

/** Where a person is: a hunk of a file, or a file that shows none. */
export interface Place {
  path: string;
  hunk: string | null;
}

interface Keys {
  place: Place | null;
  files: readonly ReviewFile[];
  isFolded: (file: ReviewFile) => boolean;
  go: (place: Place) => void;
  view: (file: ReviewFile) => void;
  comment: (file: ReviewFile, hunk: ReviewHunk | null) => void;
  send: () => void;
  filter: RefObject<HTMLInputElement | null>;
  /** What this kind of review decides. The keys stay the same while it is open. */
  decide: readonly FileKey[];
}

export function useReviewKeys(keys: Keys): void {
  const now = useRef(keys);
  now.current = keys;
  const names = keys.decide.map((one) => `${one.keys} ${one.does}`).join("\n");
  useShortcuts(
    // biome-ignore lint/correctness/useExhaustiveDependencies: the names stand for the keys
    useMemo<Shortcut[]>(() => {
      const step = (by: number, isFile: boolean) => () => {
        const next = nextPlace(now.current, by, isFile);
        if (next !== null) now.current.go(next);
      };
      const here = (act: (file: ReviewFile, hunk: ReviewHunk | null) => void) => () => {
        const { files, place } = now.current;
        const file = files.find(({ path }) => path === place?.path);
        if (file) act(file, file.hunks.find(({ id }) => id === place?.hunk) ?? null);
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
        { keys: "v", does: "Mark the file as viewed", act: here((file) => now.current.view(file)) },
        { keys: "c", does: "Comment on the change", act: here((file, hunk) => now.current.comment(file, hunk)) },
        { keys: "↓", does: "Go to the lines of the change; c comments on one", act: here(toFirstLine) },
        { keys: "s", does: "Send the comments to the agent", act: () => now.current.send() },
      ];
      return all.map((one) => ({ ...one, group: "Review" }));
    }, [names]),
  );
}

function nextPlace({ files, place, isFolded }: Keys, by: number, isFile: boolean): Place | null {
  const stops = files.flatMap((file) => (isFile ? [startOf(file, isFolded(file))] : stopsOf(file, isFolded(file))));
  const at = stops.findIndex(({ path, hunk }) => path === place?.path && (isFile || hunk === place.hunk));
  // Somewhere else in the file, for example after scrolling: its first change.
  const next =
    at >= 0
      ? at + by
      : Math.max(
          0,
          stops.findIndex(({ path }) => path === place?.path),
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
