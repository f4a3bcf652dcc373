/** The folders of the changed files. Folders with a single folder inside are one entry. Pure. */
import type { ReviewFile } from "./reviewFiles";

export type TreeEntry =
  | { kind: "folder"; path: string; name: string; depth: number; files: readonly ReviewFile[] }
  | { kind: "file"; path: string; name: string; depth: number; file: ReviewFile };

interface Folder {
  folders: Map<string, Folder>;
  files: ReviewFile[];
}

const folder = (): Folder => ({ folders: new Map(), files: [] });

/** Returns the entries in the order of the tree. What is in a closed folder is left out. */
export function entriesOf(files: readonly ReviewFile[], closed: ReadonlySet<string>): TreeEntry[] {
  const root = folder();
  for (const file of files) {
    let at = root;
    for (const name of namesOf(file).slice(0, -1)) {
      const next = at.folders.get(name) ?? folder();
      at.folders.set(name, next);
      at = next;
    }
    at.files.push(file);
  }
  const entries: TreeEntry[] = [];
  add(entries, root, "", 0, closed);
  return entries;
}

/** Returns the files in the order of the tree. */
export function inOrder(files: readonly ReviewFile[]): ReviewFile[] {
  return entriesOf(files, new Set()).flatMap((entry) => (entry.kind === "file" ? [entry.file] : []));
}

function add(entries: TreeEntry[], of: Folder, path: string, depth: number, closed: ReadonlySet<string>): void {
  for (const [name, inside] of [...of.folders].sort(byName)) {
    let [shown, within, whole] = [name, inside, `${path}/${name}`];
    while (within.files.length === 0 && within.folders.size === 1) {
      const [[next, deeper]] = [...within.folders] as [[string, Folder]];
      shown = `${shown}/${next}`;
      whole = `${whole}/${next}`;
      within = deeper;
    }
    entries.push({ kind: "folder", path: whole, name: shown, depth, files: allOf(within) });
    if (!closed.has(whole)) add(entries, within, whole, depth + 1, closed);
  }
  for (const file of of.files) {
    entries.push({ kind: "file", path: file.path, name: namesOf(file).at(-1) ?? file.path, depth, file });
  }
}

function allOf(of: Folder): ReviewFile[] {
  return [...[...of.folders.values()].flatMap(allOf), ...of.files];
}

function byName([one]: [string, Folder], [other]: [string, Folder]): number {
  return one < other ? -1 : 1;
}

function namesOf(file: ReviewFile): string[] {
  return file.path.split("/").filter((name) => name !== "");
}
