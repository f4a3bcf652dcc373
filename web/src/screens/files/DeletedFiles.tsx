/** Lists and restores deleted files. */

import { RotateCcw } from "lucide-react";
import { useMayWrite } from "../../app/workspaces";
import { IconButton } from "../../components/Button";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { RelativeTime } from "../../components/RelativeTime";
import { SkeletonTree } from "../../components/Skeleton";
import { escapedLine, ONE_WAY } from "../../components/shownText";
import { useDeletedFiles, useRestore } from "./files";

export function DeletedFiles({ workspaceId, onRestored }: { workspaceId: string; onRestored: (path: string) => void }) {
  const deleted = useDeletedFiles(workspaceId);
  const restore = useRestore(workspaceId);
  const mayWrite = useMayWrite(workspaceId);
  if (deleted.isPending) return <SkeletonTree what="deleted files" />;
  if (deleted.error) return <ErrorNote error={deleted.error} />;
  if (deleted.data.length === 0) return <Empty title="No deleted files">Restore deleted files here.</Empty>;
  return (
    <div className="p-2">
      <ErrorNote error={restore.error} />
      <ul aria-label="Deleted files" className="divide-y divide-line">
        {deleted.data.map((file) => (
          <li key={file.file_id} className="flex items-center gap-2 px-1 py-2">
            <span className="min-w-0 grow">
              <span className={`block truncate ${ONE_WAY}`}>{escapedLine(file.path)}</span>
              <span className="block text-xs text-muted">
                Deleted <RelativeTime time={file.updated_at} />
              </span>
            </span>
            {mayWrite && (
              <IconButton
                label={`Restore ${escapedLine(file.path)}`}
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
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}
