import { expect, test } from "vitest";
import { relativeTime } from "./RelativeTime";

const now = new Date("2026-06-01T12:00:00Z");

test.each([
  ["2026-06-01T11:59:40Z", "just now"],
  ["2026-06-01T11:58:00Z", "2 min. ago"],
  ["2026-05-31T11:00:00Z", "yesterday"],
  ["2026-06-01T15:00:00Z", "in 3 hr."],
])("formats %s as %s", (time, format) => {
  expect(relativeTime(new Date(time), now)).toBe(format);
});
