/** The files of a message: those chosen for the next one, and those that a sent one brought. */
import { FileText, X } from "lucide-react";
import { IconButton } from "../../components/Button";
import type { Attached } from "../../events/conversation";
import { type ChosenFile, dataUrl, FOLDER, isImage } from "./files";
import { storedFiles, useStoredCall } from "./results/storedCall";

interface ChosenProps {
  files: readonly ChosenFile[];
  onRemove: (file: ChosenFile) => void;
}

export function ChosenFiles({ files, onRemove }: ChosenProps) {
  if (files.length === 0) return null;
  return (
    <ul aria-label="Attachments" className="flex flex-wrap gap-2">
      {files.map((file) => (
        <li
          key={file.id}
          className="flex max-w-full items-center gap-2 rounded-md border border-line bg-sunken py-1 pr-1 pl-2 text-xs"
        >
          {file.data !== null && isImage(file.type) ? (
            <img src={dataUrl(file.type, file.data)} alt="" className="size-8 rounded-sm object-cover" />
          ) : (
            <FileText aria-hidden className="size-5 text-muted" />
          )}
          <span className="max-w-40 truncate">{file.name}</span>
          {file.content !== null && <span className="shrink-0 text-muted">to {FOLDER}</span>}
          <IconButton label={`Remove ${file.name}`} onClick={() => onRemove(file)}>
            <X aria-hidden className="size-3.5" />
          </IconButton>
        </li>
      ))}
    </ul>
  );
}

interface SentProps {
  workspaceId: string;
  files: readonly Attached[];
}

export function SentFiles({ workspaceId, files }: SentProps) {
  if (files.length === 0) return null;
  return (
    <ul aria-label="Attachments" className="mb-1 flex flex-wrap gap-2">
      {files.map((file) => (
        <li key={file.callId}>
          <SentFile workspaceId={workspaceId} file={file} />
        </li>
      ))}
    </ul>
  );
}

function SentFile({ workspaceId, file }: { workspaceId: string; file: Attached }) {
  const name = file.path.split("/").pop() ?? file.path;
  const call = useStoredCall(workspaceId, file.callId);
  const content = storedFiles(call.data?.result, name)[0];
  // The height is the same while it loads, so that the conversation does not jump.
  if (call.isPending) return <span className="block h-32 w-32 animate-pulse rounded-lg bg-sunken" />;
  if (content && isImage(content.type)) {
    return (
      <img
        src={dataUrl(content.type, content.data)}
        alt={name}
        className="h-32 max-w-full rounded-lg border border-line bg-surface object-contain"
      />
    );
  }
  return (
    <span className="flex items-center gap-2 rounded-lg border border-line bg-surface px-3 py-2 text-sm">
      <FileText aria-hidden className="size-4 shrink-0 text-muted" />
      <span className="max-w-48 truncate">{name}</span>
    </span>
  );
}
