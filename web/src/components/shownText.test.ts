import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Change } from "../events/messages";
import { linesOf } from "./diffLines";
import { changeHead, escaped, escapedLine, shownArguments, shownLine, shownParts, totalsOf } from "./shownText";

interface Cases {
  text: { what: string; text: string; shown: string; line: string }[];
  lines: { what: string; text: string; parts: [string, boolean][] }[];
  diffs: { what: string; diff: string; lines: [string, string][] }[];
  changes: { what: string; change: Change; head: string }[];
  totals: string;
  arguments: { what: string; arguments: unknown; lines: string[] }[];
}

const CASES: Cases = JSON.parse(
  readFileSync(join(import.meta.dirname, "../../../tests/shown_text_cases.json"), "utf-8"),
);

test.each(CASES.text)("$what is escaped as the server escapes it", ({ text, shown, line }) => {
  expect(escaped(text)).toBe(shown);
  expect(escapedLine(text)).toBe(line);
});

test.each(CASES.lines)("a line is shown as the server shows it: $what", ({ text, parts }) => {
  expect(shownParts(text).map((part) => [part.text, part.isMark])).toEqual(parts);
});

test.each(CASES.diffs)("a diff is shown as the server shows it: $what", ({ diff, lines }) => {
  expect(linesOf(diff).map((line) => [line.kind, line.text])).toEqual(lines);
});

test.each(CASES.changes)("a change is shown as the server shows it: $what", ({ change, head }) => {
  expect(changeHead(change)).toBe(head);
});

test("the totals are those of the server", () => {
  expect(totalsOf(CASES.changes.map(({ change }) => change))).toBe(CASES.totals);
});

test.each(CASES.arguments)("arguments are shown as the server shows them: $what", ({ arguments: given, lines }) => {
  const shown = shownArguments(given).flatMap(({ name, lines, isText }) =>
    isText
      ? [...(name === "" ? [] : [`  ${name}:`]), ...lines.map((line) => `  │ ${shownLine(line)}`.trimEnd())]
      : [`  ${name}: ${lines.map(shownLine).join("")}`],
  );
  expect(shown).toEqual(lines);
});
