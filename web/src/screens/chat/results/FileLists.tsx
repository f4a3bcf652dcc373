/** Files that a search or a listing found. Each opens in Files, a match at its line. */
import { File, Folder } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { Button } from "../../../components/Button";
import { EXACT, Parts } from "../../../components/Code";
import { escapedLine, shownParts } from "../../../components/shownText";
import { counted, type FoundFile, type ListedPath } from "./callView";

/** Entries that are shown at first. */
const FEW = 60;

export function MatchList({ workspaceId, files }: { workspaceId: string; files: readonly FoundFile[] }) {
  const [isWhole, setIsWhole] = useState(false);
  const shown = isWhole ? files : fewOf(files);
  const hidden = files.length - shown.length;
  if (files.length === 0) return <p className="text-xs text-muted">No matches</p>;
  return (
    <div className="overflow-hidden rounded-md border border-line">
      <ul aria-label="Matches" className="max-h-96 divide-y divide-line overflow-y-auto" tabIndex={0}>
        {shown.map(({ path, lines }) => (
          <li key={path}>
            <Link
              href={fileAddress(workspaceId, path)}
              className="flex items-center gap-2 bg-sunken px-3 py-1 text-xs font-medium -outline-offset-2 hover:underline"
            >
              <File aria-hidden className="size-3.5 shrink-0 text-muted" />
              <span className="min-w-0 grow truncate">{escapedLine(path)}</span>
              <span className="text-muted tabular-nums">{lines.length}</span>
            </Link>
            <ul>
              {lines.map(({ number, text }) => (
                <li key={number}>
                  <Link
                    href={fileAddress(workspaceId, path, number)}
                    aria-label={`${path}, line ${number}`}
                    className="flex gap-3 px-3 py-0.5 font-mono text-xs leading-5 -outline-offset-2 hover:bg-accent-soft"
                  >
                    <span className="w-8 shrink-0 text-right text-muted tabular-nums select-none">{number}</span>
                    <span className={`line-clamp-3 min-w-0 ${EXACT}`}>
                      <Parts parts={shownParts(text.trimStart())} />
                    </span>
                  </Link>
                </li>
              ))}
            </ul>
          </li>
        ))}
      </ul>
      {hidden > 0 && <ShowAll what={counted(hidden, "more file")} onShow={() => setIsWhole(true)} />}
    </div>
  );
}

export function PathList({ workspaceId, paths }: { workspaceId: string; paths: readonly ListedPath[] }) {
  const [isWhole, setIsWhole] = useState(false);
  const shown = isWhole ? paths : paths.slice(0, FEW);
  if (paths.length === 0) return <p className="text-xs text-muted">Nothing found</p>;
  return (
    <div className="overflow-hidden rounded-md border border-line">
      <ul aria-label="Files" className="max-h-96 overflow-y-auto py-1" tabIndex={0}>
        {shown.map(({ path, isFolder, size }) => (
          <li key={path}>
            {isFolder ? (
              <span className="flex items-center gap-2 px-3 py-0.5 text-xs text-muted">
                <Folder aria-hidden className="size-3.5 shrink-0" />
                <span className="min-w-0 grow truncate">{escapedLine(path)}</span>
              </span>
            ) : (
              <Link
                href={fileAddress(workspaceId, path)}
                className="flex items-center gap-2 px-3 py-0.5 text-xs -outline-offset-2 hover:bg-accent-soft"
              >
                <File aria-hidden className="size-3.5 shrink-0 text-muted" />
                <span className="min-w-0 grow truncate">{escapedLine(path)}</span>
                {size !== null && <span className="text-muted tabular-nums">{bytes(size)}</span>}
              </Link>
            )}
          </li>
        ))}
      </ul>
      {shown.length < paths.length && (
        <ShowAll what={counted(paths.length - shown.length, "more")} onShow={() => setIsWhole(true)} />
      )}
    </div>
  );
}

function ShowAll({ what, onShow }: { what: string; onShow: () => void }) {
  return (
    <div className="border-t border-line p-1">
      <Button small variant="quiet" onClick={onShow}>
        Show {what}
      </Button>
    </div>
  );
}

function fewOf(files: readonly FoundFile[]): readonly FoundFile[] {
  let lines = 0;
  const end = files.findIndex((file) => {
    lines += file.lines.length;
    return lines > FEW;
  });
  return end === -1 ? files : files.slice(0, Math.max(1, end));
}

export function fileAddress(workspaceId: string, path: string, line?: number): string {
  const query = new URLSearchParams({ path, ...(line === undefined ? {} : { line: String(line) }) });
  return `/w/${workspaceId}/files?${query}`;
}

function bytes(size: number): string {
  if (size < 1_000) return `${size} B`;
  return size < 1_000_000 ? `${(size / 1_000).toFixed(1)} kB` : `${(size / 1_000_000).toFixed(1)} MB`;
}
