import { expect, test } from "vitest";
import { localTime } from "./times";

test("a time is shown by the clock of its schedule", () => {
  expect(localTime("2019-07-01T07:00:00Z", "Europe/Berlin")).toBe("Mon, 1 Jul 2019, 09:00");
  expect(localTime("2019-07-01T07:00:00Z", "UTC")).toBe("Mon, 1 Jul 2019, 07:00");
});
