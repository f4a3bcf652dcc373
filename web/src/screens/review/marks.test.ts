import { expect, test } from "vitest";
import { type Marks, marksFrom, marksOf, textOfMarks, toggled } from "./marks";
import type { ReviewFile } from "./reviewFiles";

function file(path: string, ...ids: string[]): ReviewFile {
  const hunks = ids.map((id) => ({ id, lines: [], added: 1, removed: 1, isRevertible: true, byOthers: null }));
  return { path, hunks, version: "first" } as unknown as ReviewFile;
}

const ofPath = (marks: Marks, path: string) => marks.get(path)?.ids;

const hunk = (of: ReviewFile, at: number) => of.hunks[at] as ReviewFile["hunks"][number];

test("Marks survive a reload.", () => {
  const a = file("/a b%2f.md", "one", "two");
  const marked = toggled(toggled(new Map(), a, hunk(a, 1)), file("/c", "one"), hunk(file("/c", "one"), 0));
  expect(marksFrom(textOfMarks(marked))).toEqual(marked);
  expect(marksFrom("{broken")).toEqual(new Map());
  expect(marksFrom(null)).toEqual(new Map());
});

test("A second press unmarks, and what is gone from the file is forgotten then.", () => {
  const before = file("/a", "one", "two");
  const marked = toggled(toggled(new Map(), before, hunk(before, 0)), before, hunk(before, 1));
  expect(ofPath(marked, "/a")).toEqual(new Set(["one", "two"]));
  const after = { ...file("/a", "new", "two"), version: "second" };
  expect(marksOf(marked, after)).toEqual(new Set(["two"]));
  expect(ofPath(toggled(marked, after, hunk(after, 0)), "/a")).toEqual(new Set(["two", "new"]));
  expect(toggled(marked, after, hunk(after, 1))).toEqual(new Map());
});

test("A mark holds although its hunk is not loaded, as after a reload of a long change.", () => {
  const whole = file("/long", "first", "last");
  const marked = toggled(new Map(), whole, hunk(whole, 1));
  const reloaded = file("/long", "first");
  expect(marksOf(marksFrom(textOfMarks(marked)), reloaded)).toEqual(new Set(["last"]));
  expect(ofPath(toggled(marked, reloaded, hunk(reloaded, 0)), "/long")).toEqual(new Set(["last", "first"]));
});
