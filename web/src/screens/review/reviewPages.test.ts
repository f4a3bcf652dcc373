import { expect, test } from "vitest";
import type { Schema } from "../../api/client";
import { isAsShown, withLoaded, withLoadedLines, withMoreDiff, withMoreHunks } from "./reviewFiles";

test("a hunk that goes on the next page is one hunk with the numbers of all its lines", () => {
  const first = [
    { id: "a", diff: "@@ -1,2 +1 @@\n-x\n y\n" },
    { id: "b", diff: "@@ -0,0 +4,2 @@\n+one\n+two\n" },
  ];
  const more = [
    { id: "b", diff: "@@ -9,0 +6 @@\n+three\n" },
    { id: "c", diff: "@@ -30 +30 @@\n-p\n+q\n" },
  ];
  expect(withMoreHunks(first, more)).toEqual([
    first[0],
    { id: "b", diff: "@@ -0,0 +4,3 @@\n+one\n+two\n+three\n" },
    more[1],
  ]);
});

test("a diff goes on with the lines of its next page", () => {
  const head = "--- /a\n+++ /a\n";
  expect(
    withMoreDiff(`${head}@@ -1,2 +1,2 @@\n-a\n b\n+c\n`, `${head}@@ -3,1 +3,1 @@\n d\n@@ -9 +9 @@\n-e\n+f\n`),
  ).toBe(`${head}@@ -1,3 +1,3 @@\n-a\n b\n+c\n d\n@@ -9 +9 @@\n-e\n+f\n`);
  expect(withMoreDiff(`${head}@@ -1 +1 @@\n-a\n+c\n`, `${head}@@ -9 +9 @@\n-e\n+f\n`)).toBe(
    `${head}@@ -1 +1 @@\n-a\n+c\n@@ -9 +9 @@\n-e\n+f\n`,
  );
});

test("files that are not listed are counted until they are loaded", () => {
  const changes = [
    { path: "/a", change: "created" },
    { path: null, change: "omitted", count: 2 },
  ];
  expect(withLoaded(changes, new Map([[1, { path: "/b", change: "created", number: 1 }]]))).toEqual([
    { path: "/a", change: "created" },
    { path: "/b", change: "created", number: 1 },
    { path: null, change: "omitted", count: 1 },
  ]);
});

test("lines that were loaded stay when the review is fetched again, if their file is the same", () => {
  const review = (...files: [string, string, number, number | null][]) =>
    ({
      files: files.map(([path, version, hunks, next_line]) => ({ path, version, hunks: Array(hunks), next_line })),
    }) as unknown as Schema["ReviewOut"];
  const before = review(
    ["/all", "1", 9, null],
    ["/part", "1", 5, 2_000],
    ["/changed", "1", 9, null],
    ["/gone", "1", 1, null],
  );
  const fetched = review(
    ["/all", "1", 2, 1_000],
    ["/part", "1", 2, 1_000],
    ["/changed", "2", 2, 1_000],
    ["/new", "1", 2, 1_000],
  );
  expect(withLoadedLines(fetched, before)).toEqual(
    review(["/all", "1", 9, null], ["/part", "1", 5, 2_000], ["/changed", "2", 2, 1_000], ["/new", "1", 2, 1_000]),
  );
});

test("a review is as it was shown if it has the same files in the same versions, and no others", () => {
  const files = (...versions: string[]) => versions.map((version, at) => ({ path: `/${at}`, version }));
  expect(isAsShown(files("a", "b"), [...files("a", "b")].reverse())).toBe(true);
  expect(isAsShown(files("a", "b"), files("a", "c"))).toBe(false);
  expect(isAsShown(files("a", "b"), files("a"))).toBe(false);
  expect(isAsShown(files("a"), files("a", "b"))).toBe(false);
  expect(isAsShown([], [])).toBe(true);
});
