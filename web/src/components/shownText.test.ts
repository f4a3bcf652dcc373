import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { escaped, escapedLine } from "./shownText";

interface Case {
  what: string;
  text: string;
  shown: string;
  line: string;
}

const CASES: Case[] = JSON.parse(
  readFileSync(join(import.meta.dirname, "../../../tests/shown_text_cases.json"), "utf-8"),
);

test.each(CASES)("$what is escaped as the server escapes it", ({ text, shown, line }) => {
  expect(escaped(text)).toBe(shown);
  expect(escapedLine(text)).toBe(line);
});
