import { expect, test } from "vitest";
import { blocksOf } from "./markdownBlocks";

test("splits at blank lines", () => {
  expect(blocksOf("a\nb\n\n\nc\n")).toEqual(["a\nb", "c"]);
});

test("keeps fenced code whole, also without its end", () => {
  expect(blocksOf("a\n\n```py\nx\n\ny\n```\n\nb")).toEqual(["a", "```py\nx\n\ny\n```", "b"]);
  expect(blocksOf("```\nx\n\ny")).toEqual(["```\nx\n\ny"]);
});
