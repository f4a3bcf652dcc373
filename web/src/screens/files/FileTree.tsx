/** The tree: folders are loaded when they are opened; arrow keys walk it. */
import { useQueries } from "@tanstack/react-query";
import { ChevronRight, CircleCheck, CircleDashed, File, Folder, FolderOpen, LoaderCircle } from "lucide-react";
import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";
import { Empty } from "../../parts/Empty";
import { ErrorNote } from "../../parts/ErrorNote";
import { Loading } from "../../parts/Loading";
import { type Entry, folderQuery, MOST_ENTRIES } from "./files";
import { foldersAbove, neighbour, type Row, rowsOf } from "./rows";

interface Props {
  workspaceId: string;
  /** The path of the file that is shown. */
  shown: string | null;
  onShow: (path: string) => void;
}

export function FileTree({ workspaceId, shown, onShow }: Props) {
  const [open, setOpen] = useState<ReadonlySet<string>>(() => new Set(shown === null ? [] : foldersAbove(shown)));
  const [current, setCurrent] = useState(shown ?? "");
  const tree = useRef<HTMLDivElement>(null);
  const paths = useMemo(() => ["/", ...open], [open]);
  const asked = useQueries({ queries: paths.map((path) => folderQuery(workspaceId, path)) });

  useEffect(() => {
    if (shown !== null) setOpen((before) => new Set([...before, ...foldersAbove(shown)]));
  }, [shown]);

  const folders = new Map<string, Entry[]>();
  paths.forEach((path, index) => {
    const entries = asked[index]?.data?.entries;
    if (entries !== undefined) folders.set(path, entries);
  });
  const rows = rowsOf(folders, open);
  // One row can be reached by Tab: the one that was last walked to, or else the first.
  const stop = rows.some((row) => row.entry.path === current) ? current : rows[0]?.entry.path;
  const root = asked[0];

  function turn(row: Row, isOpen: boolean) {
    setOpen((before) => {
      const after = new Set(before);
      if (isOpen) after.add(row.entry.path);
      else after.delete(row.entry.path);
      return after;
    });
  }

  function choose(row: Row) {
    setCurrent(row.entry.path);
    if (row.isFolder) turn(row, !row.isOpen);
    else onShow(row.entry.path);
  }

  function walk(event: KeyboardEvent, row: Row) {
    if (event.key === "Enter" || event.key === " ") choose(row);
    else if (event.key === "ArrowRight" && row.isFolder && !row.isOpen) turn(row, true);
    else if (event.key === "ArrowLeft" && row.isOpen) turn(row, false);
    else {
      const next = neighbour(rows, row.entry.path, event.key);
      if (next === undefined) return;
      setCurrent(next);
      tree.current?.querySelector<HTMLElement>(`[data-path="${CSS.escape(next)}"]`)?.focus();
    }
    event.preventDefault();
  }

  if (root?.isPending) return <Loading what="the files" />;
  if (root?.error) return <ErrorNote error={root.error} />;
  if (rows.length === 0)
    return <Empty title="No files yet">Make one with the buttons above, or let an agent do so.</Empty>;
  return (
    <div ref={tree} role="tree" aria-label="Files" className="py-1">
      {rows.map((row) => (
        <TreeRow
          key={row.entry.path}
          row={row}
          isShown={row.entry.path === shown}
          isStop={row.entry.path === stop}
          isLoading={row.isOpen && !folders.has(row.entry.path)}
          onChoose={() => choose(row)}
          onKeyDown={(event) => walk(event, row)}
        />
      ))}
      {[...folders].map(
        ([path, entries]) =>
          entries.length >= MOST_ENTRIES && (
            <p key={path} className="px-3 py-1 text-xs text-warn">
              Only the first {MOST_ENTRIES.toLocaleString()} entries of {path} are shown. Search for the others.
            </p>
          ),
      )}
    </div>
  );
}

interface RowProps {
  row: Row;
  isShown: boolean;
  isStop: boolean;
  isLoading: boolean;
  onChoose: () => void;
  onKeyDown: (event: KeyboardEvent) => void;
}

function TreeRow({ row, isShown, isStop, isLoading, onChoose, onKeyDown }: RowProps) {
  const { entry, level, isFolder, isOpen } = row;
  const Icon = isFolder ? (isOpen ? FolderOpen : Folder) : File;
  return (
    <div
      role="treeitem"
      data-path={entry.path}
      aria-label={`${entry.name}${isFolder ? ", folder" : ""}${entry.synced ? "" : ", only on disk"}`}
      aria-level={level}
      aria-posinset={row.position}
      aria-setsize={row.siblings}
      aria-expanded={isFolder ? isOpen : undefined}
      aria-selected={isShown}
      tabIndex={isStop ? 0 : -1}
      onClick={onChoose}
      onKeyDown={onKeyDown}
      style={{ paddingLeft: `${level * 14 - 6}px` }}
      className="flex min-h-7 cursor-pointer items-center gap-1.5 pr-2 -outline-offset-2 hover:bg-accent-soft aria-selected:bg-accent-soft aria-selected:font-medium"
    >
      {isLoading ? (
        <LoaderCircle aria-hidden className="size-3.5 shrink-0 animate-spin text-muted" />
      ) : (
        <ChevronRight
          aria-hidden
          className={`size-3.5 shrink-0 text-muted ${isFolder ? "" : "invisible"} ${isOpen ? "rotate-90" : ""}`}
        />
      )}
      <Icon aria-hidden className={`size-4 shrink-0 ${isFolder ? "text-accent" : "text-muted"}`} />
      <span className="min-w-0 grow truncate">{entry.name}</span>
      <SyncedMark synced={entry.synced} />
    </div>
  );
}

/** Whether the history knows it; otherwise it is on disk only, until someone touches it. */
export function SyncedMark({ synced }: { synced: boolean }) {
  return synced ? (
    <span title="In the history: every change of it is kept">
      <CircleCheck aria-hidden className="size-3.5 text-good" />
    </span>
  ) : (
    <span title="Only on disk: nothing of it is kept in the history yet">
      <CircleDashed aria-hidden className="size-3.5 text-warn" />
    </span>
  );
}
