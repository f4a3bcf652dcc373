import { expect, test } from "vitest";
import { plainText, terminalLines } from "./ansi";

const ESC = "\u001b";

test("colours and styles become spans, line by line", () => {
  const [first, second] = terminalLines(`${ESC}[32mok${ESC}[0m done\n${ESC}[1;31mFAILED${ESC}[0m\n`);
  expect(first?.map(({ text, tone }) => [text, tone])).toEqual([
    ["ok", "good"],
    [" done", null],
  ]);
  expect(second?.[0]).toMatchObject({ text: "FAILED", tone: "bad", isBold: true });
});

test("palette and true colours become the nearest tone", () => {
  const tones = terminalLines(`${ESC}[38;5;208mA${ESC}[38;2;10;200;30mB${ESC}[38;5;240mC`)[0]?.map(({ tone }) => tone);
  expect(tones).toEqual(["warn", "good", "muted"]);
});

test("a progress bar shows what it showed last", () => {
  expect(plainText("10 %\r50 %\r100 %\r\nready\r\n")).toBe("100 %\nready");
});

test("hidden text is visible, and moves of the cursor are left out", () => {
  expect(plainText(`${ESC}[8msecret${ESC}[28m ${ESC}[2Kshown`)).toBe("secret shown");
});

test("links keep their text, and other escapes stay to be marked", () => {
  expect(plainText(`${ESC}]8;;https://example.org${ESC}\\here${ESC}]8;;${ESC}\\`)).toBe("here");
  expect(plainText(`a${ESC}cb`)).toBe(`a${ESC}cb`);
  expect(plainText(`a${ESC}[`)).toBe("a\\u001b[");
});
