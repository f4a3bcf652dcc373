import { expect, test } from "vitest";
import { marksFrom, textOfMarks, toggled } from "./marks";
import type { ReviewFile } from "./reviewFiles";

function file(path: string, ...ids: string[]): ReviewFile {
  const hunks = ids.map((id) => ({ id, lines: [], added: 1, removed: 1, isRevertible: true, byOthers: null }));
  return { path, hunks } as unknown as ReviewFile;
}

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
  expect(marked.get("/a")).toEqual(new Set(["one", "two"]));
  const after = file("/a", "new", "two");
  expect(toggled(marked, after, hunk(after, 0)).get("/a")).toEqual(new Set(["two", "new"]));
  expect(toggled(marked, after, hunk(after, 1))).toEqual(new Map());
});
