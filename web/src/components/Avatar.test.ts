import { expect, test } from "vitest";
import { initialsOf } from "./Avatar";

test.each([
  ["Ada Lovelace", "AL"],
  ["Ada King Lovelace", "AL"],
  ["grace.hopper@example.com", "GH"],
  ["élodie", "É"],
  ["", "?"],
])("the initials of %j are %s", (name, initials) => {
  expect(initialsOf(name)).toBe(initials);
});
