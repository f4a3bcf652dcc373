import { expect, test } from "vitest";
import { entriesOf, inOrder } from "./fileTree";
import { fileOfApproval } from "./reviewFiles";

const files = ["/src/app/a.py", "/src/app/b.py", "/README.md", "/src/app/deep/er/c.py"].map((path) =>
  fileOfApproval({ path, change: "created" }, 0),
);

test("folders with a single folder inside are one entry", () => {
  expect(entriesOf(files, new Set()).map(({ kind, name, depth }) => [kind, name, depth])).toEqual([
    ["folder", "src/app", 0],
    ["folder", "deep/er", 1],
    ["file", "c.py", 2],
    ["file", "a.py", 1],
    ["file", "b.py", 1],
    ["file", "README.md", 0],
  ]);
});

test("a closed folder keeps the count of its files", () => {
  const [closed, ...others] = entriesOf(files, new Set(["/src/app"]));
  expect(closed?.kind === "folder" && closed.files.length).toBe(3);
  expect(others.map(({ name }) => name)).toEqual(["README.md"]);
});

test("files are shown in the order of the tree", () => {
  expect(
    inOrder(files)
      .map(({ path }) => path)
      .at(-1),
  ).toBe("/README.md");
});
