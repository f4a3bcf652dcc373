import { expect, test } from "vitest";
import { changedQuery } from "./query";

test("A name with escapes stays that name, whatever it looks like when it is decoded.", () => {
  for (const path of [
    "/h/a%2f..%2fvictim.md",
    "/a%20b.md",
    "/100%.md",
    "/a+b.md",
    "/a b.md",
    "/%25.md",
    "/ü&x=1#y.md",
  ]) {
    const once = changedQuery("", { path });
    expect(new URLSearchParams(once).get("path")).toBe(path);
    expect(new URLSearchParams(changedQuery(once, { view: "history" })).get("path")).toBe(path);
  }
});

test("A parameter is removed, and the others stay.", () => {
  expect(changedQuery("?path=%2Fa&line=3", { line: null })).toBe("?path=%2Fa");
  expect(changedQuery("?line=3", { line: null })).toBe("");
});
