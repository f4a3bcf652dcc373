import { expect, test } from "vitest";
import type { ReviewFile } from "./reviewFiles";
import { nextPlace, type Place, subjectOf } from "./reviewKeys";
import { isSeen, placeOfElement } from "./usePlace";

function file(path: string, hunks: number): ReviewFile {
  const of = Array.from({ length: hunks }, (_, at) => ({
    id: `${at}`,
    lines: [],
    added: 1,
    removed: 1,
    isRevertible: true,
    byOthers: null,
  }));
  return {
    path,
    fromPath: null,
    change: "modified",
    added: hunks,
    removed: hunks,
    editedBy: null,
    facts: [],
    flaw: null,
    hunks: of,
    hunkCount: hunks,
    rest: null,
    version: "1",
    isExact: true,
    images: [],
    hasContent: true,
    isEditable: true,
  };
}

const FILES = [file("/a", 2), file("/b", 5), file("/c", 1)];
const none = () => false;

/** An element with the attributes of those around it, the innermost first. */
function element(...around: Record<string, string>[]) {
  const names: Record<string, string[]> = {
    "article[data-path]": ["path"],
    "[data-hunk], [data-line-of]": ["hunk", "lineOf"],
  };
  return {
    closest: (selector: string) => {
      const found = around.find((one) => names[selector]?.some((name) => name in one));
      return found === undefined ? null : { dataset: found };
    },
  };
}

test("Without a focus, nothing is acted on.", () => {
  expect(placeOfElement(null)).toBeNull();
  expect(placeOfElement(element())).toBeNull();
  expect(subjectOf(FILES, null)).toBeNull();
});

test("A change is acted on by its head and its lines, a file by anything else in it.", () => {
  expect(placeOfElement(element({ hunk: "3" }, { path: "/b" }))).toEqual({ path: "/b", hunk: "3" });
  expect(placeOfElement(element({ lineOf: "3" }, { path: "/b" }))).toEqual({ path: "/b", hunk: "3" });
  expect(placeOfElement(element({ path: "/b" }))).toEqual({ path: "/b", hunk: null });
  expect(subjectOf(FILES, { path: "/b", hunk: "3" })?.hunk?.id).toBe("3");
});

test("A change that is gone is not its file, and a file is no change.", () => {
  expect(subjectOf(FILES, { path: "/b", hunk: "gone" })).toBeNull();
  expect(subjectOf(FILES, { path: "/b", hunk: null })?.hunk).toBeNull();
});

test("The keys step from change to change, across files and back.", () => {
  const seen: (Place | null)[] = [];
  let at: Place | null = { path: "/a", hunk: "1" };
  for (let step = 0; step < 7; step++) {
    at = nextPlace(FILES, none, at, 1, false);
    seen.push(at);
  }
  expect(seen.map((one) => `${one?.path} ${one?.hunk}`)).toEqual([
    ...["/b 0", "/b 1", "/b 2", "/b 3", "/b 4"],
    ...["/c 0", "/c 0"],
  ]);
  expect(nextPlace(FILES, none, { path: "/b", hunk: "0" }, -1, false)).toEqual({ path: "/a", hunk: "1" });
  expect(nextPlace(FILES, none, { path: "/b", hunk: "4" }, 1, true)).toEqual({ path: "/c", hunk: "0" });
  expect(nextPlace(FILES, none, null, 1, false)).toEqual({ path: "/a", hunk: "0" });
});

test("A rest of a change at the edge of the view is not what a person looks at.", () => {
  const view = { top: 100, bottom: 800 };
  // Its head is in the view, or half of it, or it fills half of the view.
  expect(isSeen({ top: 700, bottom: 5_000 }, view)).toBe(true);
  expect(isSeen({ top: 60, bottom: 160 }, view)).toBe(true);
  expect(isSeen({ top: -4_000, bottom: 460 }, view)).toBe(true);
  expect(isSeen({ top: -4_000, bottom: 9_000 }, view)).toBe(true);
  // The end of a long one; what is above and below.
  expect(isSeen({ top: -4_000, bottom: 140 }, view)).toBe(false);
  expect(isSeen({ top: 0, bottom: 90 }, view)).toBe(false);
  expect(isSeen({ top: 795, bottom: 900 }, view)).toBe(false);
});
