import { expect, test } from "vitest";
import { hasLinesOf, rowsOf } from "./fileRows";
import { hunksOf } from "./reviewFiles";

const DIFF = `--- /a.txt
+++ /a.txt
@@ -4,3 +4,3 @@
 four
-five
+FIVE
 six
@@ -10 +10,2 @@
 ten
+more
`;
const AFTER = ["1", "2", "3", "four", "FIVE", "six", "7", "8", "9", "ten", "more", "end"];
const none = { isSplit: false, expanded: new Set<number>(), content: null, hasRest: true };

test("unchanged lines are counted before each hunk, and can follow the last one", () => {
  const rows = rowsOf(hunksOf(DIFF), none);
  expect(rows.flatMap((row) => (row.kind === "hunk" ? [row.gap] : []))).toEqual([3, 3]);
  expect(rows.at(-1)).toEqual({ kind: "rest", key: "rest", gap: null });
});

test("a row alone knows the line that it is compared with, and a split row has both", () => {
  const alone = rowsOf(hunksOf(DIFF), none).flatMap((row) =>
    row.kind === "line" ? [[row.left?.raw, row.right?.raw]] : [],
  );
  expect(alone.slice(0, 4)).toEqual([
    ["four", "four"],
    ["five", "FIVE"],
    ["FIVE", "five"],
    ["six", "six"],
  ]);
  const split = rowsOf(hunksOf(DIFF), { ...none, isSplit: true });
  expect(split.filter((row) => row.kind === "line")).toHaveLength(5);
});

test("expanded, the unchanged lines have their numbers on both sides", () => {
  const rows = rowsOf(hunksOf(DIFF), { ...none, content: AFTER, expanded: new Set([1, -1]) });
  const shown = rows.flatMap((row) => (row.kind === "line" && row.hunk === null ? [row.left] : []));
  expect(shown.map((line) => [line?.raw, line?.before, line?.after])).toEqual([
    ["7", 7, 7],
    ["8", 8, 8],
    ["9", 9, 9],
    ["end", 11, 12],
  ]);
});

test("a new and a deleted file have no unchanged lines", () => {
  const [made] = rowsOf(hunksOf("@@ -0,0 +1,1 @@\n+a\n"), none);
  const [gone] = rowsOf(hunksOf("@@ -1,1 +0,0 @@\n-a\n"), none);
  expect([made, gone].map((row) => row?.kind === "hunk" && row.gap)).toEqual([0, 0]);
});

test("content that changed since is not shown as unchanged", () => {
  expect(hasLinesOf(AFTER, hunksOf(DIFF), "after")).toBe(true);
  expect(hasLinesOf(AFTER.toSpliced(0, 1), hunksOf(DIFF), "after")).toBe(false);
});
