import { expect, test } from "vitest";
import { blocksOf, sectionsOf } from "./markdownBlocks";

test("splits at blank lines", () => {
  expect(blocksOf("a\nb\n\n\nc\n")).toEqual(["a\nb", "c"]);
});

test("keeps fenced code whole, also without its end", () => {
  expect(blocksOf("a\n\n```py\nx\n\ny\n```\n\nb")).toEqual(["a", "```py\nx\n\ny\n```", "b"]);
  expect(blocksOf("```\nx\n\ny")).toEqual(["```\nx\n\ny"]);
});

test("long text is split before paragraphs and headings only, and nothing of it is lost", () => {
  const paragraph = `${"Words. ".repeat(400)}\n\n`;
  const list = `- one\n\n  ${"Inside. ".repeat(800)}\n\n- two\n\n`;
  const code = `\`\`\`py\n${"\nx = 1\n".repeat(1_000)}\n\`\`\`\n\n`;
  const text = `${list}${paragraph.repeat(3)}${code}# Heading\n\n${paragraph}1. one\n\n2. two\n`;
  const sections = sectionsOf(text);
  expect(sections.join("")).toBe(text);
  expect(sections.map((section) => section.slice(0, 9))).toEqual([
    "- one\n\n  ",
    "Words. Wo",
    "Words. Wo",
    "# Heading",
  ]);
  expect(sectionsOf(paragraph.repeat(3))).toHaveLength(2);
});

test("short text, and text with definitions, stays in one piece", () => {
  const paragraph = `${"Words. ".repeat(400)}\n\n`;
  expect(sectionsOf("One.\n\nTwo.")).toEqual(["One.\n\nTwo."]);
  const text = `[1] ${paragraph.repeat(5)}[1]: https://example.org\n`;
  expect(sectionsOf(text)).toEqual([text]);
});
