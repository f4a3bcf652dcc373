/** The visible rows of the file tree. Pure. */
import type { Entry } from "./files";

export interface Row {
  entry: Entry;
  level: number;
  /** Position among its siblings, counted from 1, and their number. */
  position: number;
  siblings: number;
  isFolder: boolean;
  isOpen: boolean;
}

/** Returns the visible rows. `folders` maps the path of each loaded folder to its entries. */
export function rowsOf(folders: ReadonlyMap<string, Entry[]>, open: ReadonlySet<string>): Row[] {
  const rows: Row[] = [];
  add(rows, "/", 1, folders, open);
  return rows;
}

function add(
  rows: Row[],
  folder: string,
  level: number,
  folders: ReadonlyMap<string, Entry[]>,
  open: ReadonlySet<string>,
): void {
  const entries = folders.get(folder) ?? [];
  entries.forEach((entry, index) => {
    const isFolder = entry.file_type === "Folder";
    const isOpen = isFolder && open.has(entry.path);
    rows.push({ entry, level, position: index + 1, siblings: entries.length, isFolder, isOpen });
    if (isOpen) add(rows, entry.path, level + 1, folders, open);
  });
}

/** Returns the parent folders of a path, outermost first. */
export function foldersAbove(path: string): string[] {
  const parts = path.split("/").filter(Boolean).slice(0, -1);
  return parts.map((_, index) => `/${parts.slice(0, index + 1).join("/")}`);
}

/** Returns the path that a key moves to from a row, if any. */
export function neighbour(rows: readonly Row[], path: string, key: string): string | undefined {
  const at = rows.findIndex((row) => row.entry.path === path);
  const row = rows[at];
  if (row === undefined) return rows[0]?.entry.path;
  switch (key) {
    case "ArrowDown":
      return rows[at + 1]?.entry.path;
    case "ArrowUp":
      return rows[at - 1]?.entry.path;
    case "Home":
      return rows[0]?.entry.path;
    case "End":
      return rows.at(-1)?.entry.path;
    case "ArrowLeft":
      return rows.slice(0, at).findLast((above) => above.level < row.level)?.entry.path;
    case "ArrowRight": {
      const next = rows[at + 1];
      return next !== undefined && next.level > row.level ? next.entry.path : undefined;
    }
    default:
      return undefined;
  }
}
