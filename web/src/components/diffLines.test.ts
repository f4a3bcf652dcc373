import { expect, test } from "vitest";
import { difference, linesOf, paired } from "./diffLines";

const DIFF = `--- /a.txt
+++ /a.txt
@@ -1,3 +1,4 @@
 one
-two
+zwei
+drei
 four
\\ No newline at end of file
`;

test("lines have their numbers in the files", () => {
  expect(linesOf(DIFF).map(({ kind, text, before, after }) => [kind, text, before, after])).toEqual([
    ["hunk", "@@ -1,3 +1,4 @@", null, null],
    ["same", "one", 1, 1],
    ["gone", "two", 2, null],
    ["new", "zwei", null, 2],
    ["new", "drei", null, 3],
    ["same", "four⟦no newline at the end⟧", 3, 4],
  ]);
});

test("removed lines are paired with added lines", () => {
  const rows = paired(linesOf(DIFF)).map(({ left, right }) => [left?.text ?? null, right?.text ?? null]);
  expect(rows.slice(2, 4)).toEqual([
    ["two", "zwei"],
    [null, "drei"],
  ]);
});

test("the difference excludes the common start and end", () => {
  expect(difference("let a = 1;", "let b = 1;")).toEqual([4, 5, 5]);
  expect(difference("aa", "aaa")).toEqual([2, 2, 3]);
});
