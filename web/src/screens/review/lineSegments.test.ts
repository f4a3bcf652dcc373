import { expect, test } from "vitest";
import { shownParts } from "../../components/shownText";
import { segmentsOf } from "./lineSegments";

test("a line is cut where its syntax or a changed word begins or ends", () => {
  const spans = [{ from: 0, to: 6, style: "keyword" }];
  expect(segmentsOf(shownParts("return total"), spans, [[7, 12]])).toEqual([
    { text: "return", isMark: false, style: "keyword", isChanged: false },
    { text: " ", isMark: false, style: "", isChanged: false },
    { text: "total", isMark: false, style: "", isChanged: true },
  ]);
});

test("a mark stands for the characters of the file, whatever its own length", () => {
  const found = segmentsOf(shownParts("\ta\u202eb"), [{ from: 3, to: 4, style: "name" }], [[2, 3]]);
  expect(found.map(({ text, style, isChanged }) => [text, style, isChanged])).toEqual([
    ["→   ", "", false],
    ["a", "", false],
    ["\\u202e", "", true],
    ["b", "name", false],
  ]);
});

test("nothing of a line is lost or shown twice", () => {
  const text = "x = 'a\u200bb'  \t  # end  ";
  const shown = shownParts(text);
  const cut = segmentsOf(
    shown,
    [{ from: 4, to: 9, style: "string" }],
    [
      [0, 1],
      [5, 7],
    ],
  );
  expect(cut.map((one) => one.text).join("")).toBe(shown.map((one) => one.text).join(""));
});
