import { expect, test } from "vitest";

const SOURCES = import.meta.glob<string>("./**/*.tsx", { query: "?raw", import: "default", eager: true });

/** Steps of 4 px, and the half step that aligns an icon with text. 7 and 9 are the widths of controls that text avoids. */
const STEPS = new Set(["0", "px", "auto", "0.5", "1", "2", "3", "4", "6", "7", "8", "9", "12", "16", "28"]);
const SPACING = /(?<![\w-])-?(?:[pm][xytblr]?|gap(?:-[xy])?|space-[xy])-(px|auto|\d+(?:\.\d+)?)(?![\w.-])/g;
/** Sizes of type and radii that are no token. */
const LOOSE = /(?<![\w-])(?:text-\[\d[^\]]*\]|leading-\[[^\]]*\]|rounded-\[[^\]]*\]|rounded(?![\w-]))(?=[\s"`])/g;

function findings(pattern: RegExp, isFlaw: (match: RegExpMatchArray) => boolean): string[] {
  return Object.entries(SOURCES).flatMap(([file, text]) =>
    [...text.matchAll(pattern)].filter(isFlaw).map((match) => `${file}: ${match[0]}`),
  );
}

test("spacing is on the scale", () => {
  expect(Object.keys(SOURCES).length).toBeGreaterThan(50);
  expect(findings(SPACING, (match) => !STEPS.has(match[1] ?? ""))).toEqual([]);
});

test("sizes of type and radii are tokens", () => {
  expect(findings(LOOSE, () => true)).toEqual([]);
});
