/** One file: its content and its history. */

import { ArrowLeft, FileText, History, Trash2 } from "lucide-react";
import { useState } from "react";
import { useMayWrite } from "../../app/workspaces";
import { Badge } from "../../components/Badge";
import { Button, IconButton } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { SkeletonLines } from "../../components/Skeleton";
import { escapedLine, ONE_WAY } from "../../components/shownText";
import { FileContent } from "./FileContent";
import { FileHistory } from "./FileHistory";
import { nameOf, useDelete, useFileInfo } from "./files";

type Go = (to: Record<string, string | null>) => void;

interface Props {
  workspaceId: string;
  path: string;
  line: number | undefined;
  at: URLSearchParams;
  go: Go;
}

export function FileView({ workspaceId, path, line, at, go }: Props) {
  const info = useFileInfo(workspaceId, path);
  const mayWrite = useMayWrite(workspaceId);
  const isHistory = at.get("view") === "history";
  const isFolder = info.data?.file_type === "folder";
  const isVirtual = info.data?.is_virtual === true;
  return (
    <section aria-labelledby="file-title" className="flex h-full min-h-0 flex-col">
      <header className="flex flex-wrap items-center gap-x-2 gap-y-1 border-b border-line bg-surface px-3 py-2">
        <IconButton label="Back to files" className="md:hidden" onClick={() => go({ path: null, line: null })}>
          <ArrowLeft aria-hidden className="size-4" />
        </IconButton>
        <h1
          id="file-title"
          tabIndex={-1}
          title={escapedLine(path)}
          className={`min-w-0 max-w-full truncate font-semibold ${ONE_WAY}`}
        >
          {escapedLine(path)}
        </h1>
        {info.data && <Facts info={info.data} />}
        <span className="grow" />
        {info.data && !isFolder && !isVirtual && (
          <Button
            small
            variant="quiet"
            aria-pressed={isHistory}
            onClick={() => go({ view: isHistory ? null : "history", version: null })}
          >
            {isHistory ? <FileText aria-hidden className="size-3.5" /> : <History aria-hidden className="size-3.5" />}
            {isHistory ? "Content" : "History"}
          </Button>
        )}
        {info.data && !isVirtual && mayWrite && (
          <DeleteButton workspaceId={workspaceId} path={path} onDeleted={() => go({ path: null })} />
        )}
      </header>
      <div className="min-h-0 grow">
        {info.error && (
          <div className="p-4">
            <ErrorNote error={info.error} />
          </div>
        )}
        {info.isPending && <SkeletonLines what={path} />}
        {isFolder && <Empty title="This is a folder">Its files are in the tree.</Empty>}
        {info.data && !isFolder && !isHistory && (
          <FileContent workspaceId={workspaceId} path={path} line={line} isReadOnly={isVirtual || !mayWrite} />
        )}
        {info.data && !isFolder && isHistory && (
          <FileHistory
            workspaceId={workspaceId}
            path={path}
            chosen={at.get("version")}
            onChoose={(version) => go({ version })}
          />
        )}
      </div>
    </section>
  );
}

function Facts({ info }: { info: NonNullable<ReturnType<typeof useFileInfo>["data"]> }) {
  return (
    <span className="flex flex-wrap items-center gap-1">
      {info.is_virtual ? (
        <Badge title="Edit it at its source">managed by Toolcrib</Badge>
      ) : info.synced ? (
        <Badge tone="good" title="The history keeps every change">
          tracked
        </Badge>
      ) : (
        <Badge tone="warn" title="Not in the history yet">
          untracked
        </Badge>
      )}
      {info.file_type !== "document" && <Badge>{info.file_type}</Badge>}
      {info.size !== null && (
        <span className="text-xs text-muted">
          {sizeOf(info.size)}
          {info.line_count !== null && `, ${linesOf(info.line_count)}`}
        </span>
      )}
    </span>
  );
}

function DeleteButton({ workspaceId, path, onDeleted }: { workspaceId: string; path: string; onDeleted: () => void }) {
  const [isConfirming, setIsConfirming] = useState(false);
  const remove = useDelete(workspaceId);
  return (
    <>
      <IconButton label="Delete" onClick={() => setIsConfirming(true)}>
        <Trash2 aria-hidden className="size-4" />
      </IconButton>
      <Dialog
        title={`Delete ${escapedLine(nameOf(path))}?`}
        isOpen={isConfirming}
        onClose={() => setIsConfirming(false)}
        foot={
          <>
            <Button onClick={() => setIsConfirming(false)}>Cancel</Button>
            <Button
              variant="danger"
              busy={remove.isPending}
              onClick={() => remove.mutate(path, { onSuccess: onDeleted })}
            >
              Delete
            </Button>
          </>
        }
      >
        <p className="wrap-anywhere">{escapedLine(path)} stays in the history. Restore it under “Deleted”.</p>
        <ErrorNote error={remove.error} />
      </Dialog>
    </>
  );
}

function linesOf(count: number): string {
  return count === 1 ? "1 line" : `${count.toLocaleString()} lines`;
}

function sizeOf(bytes: number): string {
  if (bytes < 1_000) return `${bytes} bytes`;
  if (bytes < 1_000_000) return `${(bytes / 1_000).toFixed(1)} kB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}
