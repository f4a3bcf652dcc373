import { expect, test } from "vitest";
import { bytes, days } from "./amounts";

test.each([
  [0, "0 bytes"],
  [999, "999 bytes"],
  [1_500, "1.5 kB"],
  [52_428_800, "52 MB"],
  [2_000_000_000, "2.0 GB"],
])("formats %d bytes as %s", (amount, text) => {
  expect(bytes(amount)).toBe(text);
});

test.each([
  [7, "7 days"],
  [1, "1 day"],
  [0.5, "12 hours"],
  [1 / 1440, "1 minute"],
  [30 / 86_400, "30 seconds"],
])("formats %d days as %s", (amount, text) => {
  expect(days(amount)).toBe(text);
});
