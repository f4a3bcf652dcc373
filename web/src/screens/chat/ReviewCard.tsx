/** What the session's agent changed since the last review: keep or revert it, by file and by hunk. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import { Button } from "../../components/Button";
import { Diff } from "../../components/Diff";
import { ErrorNote } from "../../components/ErrorNote";
import { escaped } from "../../components/shownText";
import { useLive } from "../../events/LiveProvider";

type ReviewFile = Schema["ReviewFileOut"];
type Decision = Schema["ReviewDecisionIn"];

const reviewKey = (workspaceId: string, sessionId: string) => [workspaceId, "review", sessionId] as const;

function useReview(workspaceId: string, sessionId: string) {
  const queries = useQueryClient();
  const live = useLive();
  useEffect(
    () =>
      live.listen(({ type }) => {
        if (type === "chat:review") {
          void queries.invalidateQueries({ queryKey: reviewKey(workspaceId, sessionId) });
        }
      }),
    [live, queries, workspaceId, sessionId],
  );
  return useQuery({
    queryKey: reviewKey(workspaceId, sessionId),
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/review", {
          params: { path: { workspace_id: workspaceId, session_id: sessionId } },
        }),
      ),
  });
}

interface Props {
  workspaceId: string;
  sessionId: string;
}

/** Closed it is one line, so that it never stands in the way of the next message. */
export function ReviewCard({ workspaceId, sessionId }: Props) {
  const review = useReview(workspaceId, sessionId);
  const [isOpen, setOpen] = useState(false);
  const queries = useQueryClient();
  const decide = useMutation({
    mutationFn: (body: Decision) =>
      unwrap(
        api.POST("/api/v1/workspaces/{workspace_id}/sessions/{session_id}/review", {
          params: { path: { workspace_id: workspaceId, session_id: sessionId } },
          body,
        }),
      ),
    onSettled: () => queries.invalidateQueries({ queryKey: reviewKey(workspaceId, sessionId) }),
  });
  const shown = review.data;
  if (!shown || (shown.total === 0 && !decide.error)) return null;
  const all = (choice: "keep" | "revert") => decide.mutate({ decisions: [], all: choice, version: shown.version });
  return (
    <section
      aria-label="Review"
      className="mx-auto flex max-h-[50vh] w-full max-w-3xl shrink-0 flex-col gap-2 overflow-y-auto border-t border-line px-4 py-2 text-sm"
    >
      <div className="flex flex-wrap items-center gap-2">
        <span className="min-w-0 grow">
          {shown.total === 1 ? "1 file" : `${shown.total} files`} changed (+{shown.added} −{shown.removed})
        </span>
        <Button small aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? "Close review" : "Review"}
        </Button>
        <Button small busy={decide.isPending} onClick={() => all("keep")}>
          Keep all
        </Button>
        <Button small variant="danger" busy={decide.isPending} onClick={() => all("revert")}>
          Revert all
        </Button>
      </div>
      {decide.error && <ErrorNote error={decide.error} />}
      {decide.data?.conflicts.map((one) => (
        <p key={one.path} className="text-bad">
          {escaped(one.path)}: {one.reason}
        </p>
      ))}
      {isOpen &&
        shown.files.map((file) => (
          <FileReview
            key={`${file.path} ${file.version}`}
            file={file}
            isBusy={decide.isPending}
            onDecide={(decision, hunks) =>
              decide.mutate({ decisions: [{ path: file.path, version: file.version, decision, hunks }], all: null })
            }
          />
        ))}
    </section>
  );
}

interface FileProps {
  file: ReviewFile;
  isBusy: boolean;
  onDecide: (decision: "keep" | "revert", hunks: string[]) => void;
}

function FileReview({ file, isBusy, onDecide }: FileProps) {
  const [reverted, setReverted] = useState<readonly string[]>([]);
  const path = escaped(file.path);
  const toggle = (id: string) =>
    setReverted(reverted.includes(id) ? reverted.filter((one) => one !== id) : [...reverted, id]);
  return (
    <article aria-label={path} className="flex flex-col gap-1 border-t border-line pt-2">
      <div className="flex flex-wrap items-center gap-2">
        <span className="min-w-0 grow wrap-anywhere">
          {file.change} <code>{path}</code>
          {file.added !== null && ` +${file.added} −${file.removed}`}
          {file.note && <span className="text-muted"> {escaped(file.note)}</span>}
          {file.changed_by_others && <span className="text-muted"> Someone else changed it too.</span>}
        </span>
        <Button small disabled={isBusy || reverted.length > 0} onClick={() => onDecide("keep", [])}>
          Keep
        </Button>
        <Button small variant="danger" disabled={isBusy} onClick={() => onDecide("revert", [...reverted])}>
          {reverted.length > 0 ? `Revert ${reverted.length} of ${file.hunks.length} hunks` : "Revert"}
        </Button>
      </div>
      {file.hunks.map((hunk, number) => (
        <div key={hunk.id} className="flex flex-col gap-1">
          <Diff diff={hunk.diff} label={`${path}, hunk ${number + 1}`} />
          {hunk.author !== "others" && file.hunks.length > 1 && (
            <label className="flex items-center gap-2 text-xs">
              <input type="checkbox" checked={reverted.includes(hunk.id)} onChange={() => toggle(hunk.id)} />
              Revert hunk {number + 1}
            </label>
          )}
        </div>
      ))}
    </article>
  );
}
