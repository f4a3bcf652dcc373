import { expect, test } from "vitest";
import { messageOf, newComment } from "./comments";

const added = { kind: "new", raw: "  return 1", before: null, after: 12, isUnended: false } as const;
const gone = { kind: "gone", raw: "  return 2", before: 9, after: null, isUnended: false } as const;

test("the agent reads the file, the line and its text", () => {
  expect(messageOf([newComment("/a.py", added, " Why 1?\n")])).toBe(
    "A comment on your change:\n\n/a.py, line 12:\n> +  return 1\n\nWhy 1?",
  );
});

test("several comments are one message, and a removed line is named as such", () => {
  const text = messageOf([newComment("/a.py", added, "Why?"), newComment("/a.py", gone, "Keep it.")]);
  expect(text).toContain("2 comments on your changes:");
  expect(text).toContain("/a.py, removed line 9:\n> -  return 2\n\nKeep it.");
});
