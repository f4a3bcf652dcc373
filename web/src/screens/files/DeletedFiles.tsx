/** What was deleted, and bringing it back. */
import { RotateCcw } from "lucide-react";
import { Ago } from "../../parts/Ago";
import { IconButton } from "../../parts/Button";
import { Empty } from "../../parts/Empty";
import { ErrorNote } from "../../parts/ErrorNote";
import { Loading } from "../../parts/Loading";
import { useDeletedFiles, useRestore } from "./files";

export function DeletedFiles({ workspaceId, onRestored }: { workspaceId: string; onRestored: (path: string) => void }) {
  const deleted = useDeletedFiles(workspaceId);
  const restore = useRestore(workspaceId);
  if (deleted.isPending) return <Loading what="what was deleted" />;
  if (deleted.error) return <ErrorNote error={deleted.error} />;
  if (deleted.data.length === 0)
    return <Empty title="Nothing was deleted">What is deleted can be brought back from here.</Empty>;
  return (
    <div className="p-2">
      <ErrorNote error={restore.error} />
      <ul aria-label="Deleted files" className="divide-y divide-line">
        {deleted.data.map((file) => (
          <li key={file.file_id} className="flex items-center gap-2 px-1 py-1.5">
            <span className="min-w-0 grow">
              <span className="block truncate">{file.path}</span>
              <span className="block text-xs text-muted">
                Deleted <Ago time={file.updated_at} />
              </span>
            </span>
            <IconButton
              label={`Restore ${file.path}`}
              busy={restore.isPending && restore.variables.fileId === file.file_id}
              onClick={() =>
                restore.mutate(
                  { fileId: file.file_id },
                  { onSuccess: (made) => file.file_type !== "folder" && onRestored(made.path) },
                )
              }
            >
              <RotateCcw aria-hidden className="size-4" />
            </IconButton>
          </li>
        ))}
      </ul>
    </div>
  );
}
