import { expect, test } from "vitest";
import type { Entry } from "./files";
import { foldersAbove, neighbour, rowsOf } from "./rows";

const entry = (path: string, isFolder = false): Entry => ({
  id: null,
  synced: true,
  name: path.slice(path.lastIndexOf("/") + 1),
  display_name: path,
  path,
  file_type: isFolder ? "Folder" : "Document",
  is_virtual: false,
  updated_at: "2026-01-01T00:00:00Z",
});
const folders = new Map([
  ["/", [entry("/docs", true), entry("/a.md")]],
  ["/docs", [entry("/docs/deep", true), entry("/docs/b.md")]],
]);

test("an open folder shows its entries one level deeper", () => {
  const rows = rowsOf(folders, new Set(["/docs"]));

  expect(rows.map((row) => [row.entry.path, row.level, row.isOpen])).toEqual([
    ["/docs", 1, true],
    ["/docs/deep", 2, false],
    ["/docs/b.md", 2, false],
    ["/a.md", 1, false],
  ]);
  expect(rows.map((row) => [row.position, row.siblings])).toEqual([
    [1, 2],
    [1, 2],
    [2, 2],
    [2, 2],
  ]);
});

test("a closed folder hides its entries", () => {
  expect(rowsOf(folders, new Set()).map((row) => row.entry.path)).toEqual(["/docs", "/a.md"]);
});

test("keys move up, down, in, out, and to both ends", () => {
  const rows = rowsOf(folders, new Set(["/docs"]));
  const from = (path: string, key: string) => neighbour(rows, path, key);

  expect(from("/docs", "ArrowDown")).toBe("/docs/deep");
  expect(from("/docs", "ArrowUp")).toBeUndefined();
  expect(from("/docs", "ArrowRight")).toBe("/docs/deep");
  expect(from("/docs/b.md", "ArrowLeft")).toBe("/docs");
  expect(from("/docs/b.md", "ArrowRight")).toBeUndefined();
  expect(from("/docs", "End")).toBe("/a.md");
  expect(from("/a.md", "Home")).toBe("/docs");
  expect(from("/gone.md", "ArrowDown")).toBe("/docs");
});

test("foldersAbove lists parent folders, outermost first", () => {
  expect(foldersAbove("/docs/deep/c.md")).toEqual(["/docs", "/docs/deep"]);
  expect(foldersAbove("/a.md")).toEqual([]);
});
