/** The file tree. Folders are loaded when they are opened; arrow keys move the focus. */

import { useQueries } from "@tanstack/react-query";
import { ChevronRight, CircleDashed, File, Folder, FolderOpen, LoaderCircle } from "lucide-react";
import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { SkeletonTree } from "../../components/Skeleton";
import { escapedLine, ONE_WAY } from "../../components/shownText";
import { type Entry, folderQuery, MAX_ENTRIES } from "./files";
import { foldersAbove, neighbour, type Row, rowsOf } from "./rows";

interface Props {
  workspaceId: string;
  /** The path of the selected file. */
  shown: string | null;
  onShow: (path: string) => void;
}

export function FileTree({ workspaceId, shown, onShow }: Props) {
  const [open, setOpen] = useState<ReadonlySet<string>>(() => new Set(shown === null ? [] : foldersAbove(shown)));
  const [current, setCurrent] = useState(shown ?? "");
  const tree = useRef<HTMLDivElement>(null);
  const paths = useMemo(() => ["/", ...open], [open]);
  const folderQueries = useQueries({ queries: paths.map((path) => folderQuery(workspaceId, path)) });

  useEffect(() => {
    if (shown === null) return;
    setOpen((before) => new Set([...before, ...foldersAbove(shown)]));
    setCurrent(shown);
  }, [shown]);

  const folders = new Map<string, Entry[]>();
  paths.forEach((path, index) => {
    const entries = folderQueries[index]?.data?.entries;
    if (entries !== undefined) folders.set(path, entries);
  });
  const rows = rowsOf(folders, open);
  // Tab reaches one row: the last focused or selected one, or else the first.
  const stop = rows.some((row) => row.entry.path === current) ? current : rows[0]?.entry.path;
  const root = folderQueries[0];

  function setFolderOpen(row: Row, isOpen: boolean) {
    setOpen((before) => {
      const after = new Set(before);
      if (isOpen) after.add(row.entry.path);
      else after.delete(row.entry.path);
      return after;
    });
  }

  function choose(row: Row) {
    setCurrent(row.entry.path);
    if (row.isFolder) setFolderOpen(row, !row.isOpen);
    else onShow(row.entry.path);
  }

  function handleKey(event: KeyboardEvent, row: Row) {
    if (event.key === "Enter" || event.key === " ") choose(row);
    else if (event.key === "ArrowRight" && row.isFolder && !row.isOpen) setFolderOpen(row, true);
    else if (event.key === "ArrowLeft" && row.isOpen) setFolderOpen(row, false);
    else {
      const next = neighbour(rows, row.entry.path, event.key);
      if (next === undefined) return;
      setCurrent(next);
      tree.current?.querySelector<HTMLElement>(`[data-path="${CSS.escape(next)}"]`)?.focus();
    }
    event.preventDefault();
  }

  if (root?.isPending) return <SkeletonTree what="files" />;
  if (root?.error) return <ErrorNote error={root.error} />;
  if (rows.length === 0) return <Empty title="No files yet">Create a file above, or ask an agent.</Empty>;
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
          onKeyDown={(event) => handleKey(event, row)}
        />
      ))}
      {[...folders].map(
        ([path, entries]) =>
          entries.length >= MAX_ENTRIES && (
            <p key={path} className="px-3 py-1 text-xs text-warn">
              Showing the first {MAX_ENTRIES.toLocaleString()} entries of {escapedLine(path)}. Use search to find
              others.
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
      aria-label={`${escapedLine(entry.display_name)}${isFolder ? ", folder" : ""}${entry.synced ? "" : ", untracked"}`}
      aria-level={level}
      aria-posinset={row.position}
      aria-setsize={row.siblings}
      aria-expanded={isFolder ? isOpen : undefined}
      aria-selected={isShown}
      tabIndex={isStop ? 0 : -1}
      onClick={onChoose}
      onKeyDown={onKeyDown}
      style={{ paddingLeft: `${level * 14 - 6}px` }}
      className="flex min-h-7 cursor-pointer items-center gap-2 pr-2 -outline-offset-2 hover:bg-accent-soft aria-selected:bg-accent-soft aria-selected:font-medium"
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
      <span className={`min-w-0 grow truncate ${ONE_WAY}`}>{escapedLine(entry.display_name)}</span>
      {!entry.is_virtual && !entry.synced && <UntrackedMark />}
    </div>
  );
}

export function UntrackedMark() {
  return (
    <span title="Untracked">
      <CircleDashed aria-hidden className="size-3.5 text-warn" />
    </span>
  );
}
