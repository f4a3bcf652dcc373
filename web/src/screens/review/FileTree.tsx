/** The changed files by folder, with counts, viewed marks and what was decided. */
import {
  Check,
  ChevronDown,
  ChevronRight,
  FileDiff,
  FileMinus,
  FilePlus,
  FileSymlink,
  Folder,
  MessageSquare,
} from "lucide-react";
import { type RefObject, useMemo, useState } from "react";
import { escapedLine } from "../../components/shownText";
import { entriesOf } from "./fileTree";
import type { ChangeName, ReviewFile } from "./reviewFiles";

const ICONS: Record<ChangeName, [typeof FileDiff, string]> = {
  created: [FilePlus, "text-good"],
  modified: [FileDiff, "text-warn"],
  touched: [FileDiff, "text-muted"],
  moved: [FileSymlink, "text-accent"],
  deleted: [FileMinus, "text-bad"],
  omitted: [FileDiff, "text-muted"],
};

interface Props {
  files: readonly ReviewFile[];
  current: string | null;
  isViewed: (file: ReviewFile) => boolean;
  comments: (path: string) => number;
  onSelect: (file: ReviewFile) => void;
  filterRef: RefObject<HTMLInputElement | null>;
}

export function FileTree({ files, current, isViewed, comments, onSelect, filterRef }: Props) {
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const [filter, setFilter] = useState("");
  const entries = useMemo(() => {
    const wanted = filter.trim().toLowerCase();
    return entriesOf(wanted === "" ? files : files.filter(({ path }) => path.toLowerCase().includes(wanted)), closed);
  }, [files, closed, filter]);
  function selectFirst() {
    const found = entries.find((entry) => entry.kind === "file");
    if (found === undefined) return;
    setFilter("");
    filterRef.current?.blur();
    onSelect(found.file);
  }
  const toggle = (path: string) =>
    setClosed((before) => (before.has(path) ? without(before, path) : new Set([...before, path])));
  return (
    <nav aria-label="Changed files" className="flex min-h-0 grow flex-col">
      <div className="p-2">
        <input
          ref={filterRef}
          type="search"
          aria-label="Filter files"
          placeholder="Filter files…"
          value={filter}
          onChange={({ target }) => setFilter(target.value)}
          onKeyDown={({ key }) => key === "Enter" && selectFirst()}
          className="w-full rounded-md border border-line-strong bg-surface px-3 py-1 text-xs placeholder:text-muted"
        />
      </div>
      <ul className="min-h-0 grow overflow-y-auto px-1 pb-3 text-sm">
        {entries.map((entry) => (
          <li key={`${entry.kind} ${entry.path}`}>
            {entry.kind === "folder" ? (
              <button
                type="button"
                aria-expanded={!closed.has(entry.path)}
                onClick={() => toggle(entry.path)}
                className="flex min-h-7 w-full items-center gap-2 rounded-md pr-2 text-left text-muted hover:bg-sunken"
                style={{ paddingLeft: 4 + entry.depth * 14 }}
              >
                {closed.has(entry.path) ? (
                  <ChevronRight aria-hidden className="size-3.5 shrink-0" />
                ) : (
                  <ChevronDown aria-hidden className="size-3.5 shrink-0" />
                )}
                <Folder aria-hidden className="size-3.5 shrink-0" />
                <span className="min-w-0 grow truncate" title={escapedLine(entry.path)}>
                  {escapedLine(entry.name)}
                </span>
                {closed.has(entry.path) && <span className="text-xs">{entry.files.length}</span>}
              </button>
            ) : (
              <FileEntry
                file={entry.file}
                name={entry.name}
                depth={entry.depth}
                isCurrent={entry.path === current}
                isViewed={isViewed(entry.file)}
                comments={comments(entry.path)}
                onSelect={onSelect}
              />
            )}
          </li>
        ))}
      </ul>
    </nav>
  );
}

interface EntryProps {
  file: ReviewFile;
  name: string;
  depth: number;
  isCurrent: boolean;
  isViewed: boolean;
  comments: number;
  onSelect: (file: ReviewFile) => void;
}

function FileEntry({ file, name, depth, isCurrent, isViewed, comments, onSelect }: EntryProps) {
  const [Icon, tone] = ICONS[file.change];
  return (
    <button
      type="button"
      aria-current={isCurrent ? "location" : undefined}
      title={escapedLine(file.path)}
      onClick={() => onSelect(file)}
      className="flex min-h-7 w-full items-center gap-2 rounded-md pr-2 text-left hover:bg-sunken aria-[current]:bg-accent-soft aria-[current]:font-medium"
      style={{ paddingLeft: 8 + depth * 14 }}
    >
      <Icon aria-hidden className={`size-3.5 shrink-0 ${tone}`} />
      <span className={`min-w-0 grow truncate ${isViewed ? "text-muted" : ""}`}>{escapedLine(name)}</span>
      {comments > 0 && (
        <span className="flex items-center gap-0.5 text-xs text-accent">
          <MessageSquare aria-hidden className="size-3" />
          {comments}
          <span className="sr-only"> comments</span>
        </span>
      )}
      {isViewed ? (
        <>
          <Check aria-hidden className="size-3.5 shrink-0 text-good" />
          <span className="sr-only">viewed</span>
        </>
      ) : (
        <Counts added={file.added} removed={file.removed} />
      )}
    </button>
  );
}

export function Counts({ added, removed }: { added: number | null; removed: number | null }) {
  if (added === null || removed === null) return null;
  return (
    <span className="shrink-0 font-mono text-2xs tabular-nums">
      {(added > 0 || removed === 0) && <span className="text-good">+{added}</span>}
      {added > 0 && removed > 0 && " "}
      {removed > 0 && <span className="text-bad">−{removed}</span>}
    </span>
  );
}

function without(set: ReadonlySet<string>, one: string): Set<string> {
  const rest = new Set(set);
  rest.delete(one);
  return rest;
}
