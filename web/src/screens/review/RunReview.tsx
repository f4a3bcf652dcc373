/** What a run changed, as one set. Decisions are made in the review of its session; a run can be undone. */
import { useState } from "react";
import { Link } from "wouter";
import { useTitle } from "../../app/title";
import { Button } from "../../components/Button";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Loading } from "../../components/Loading";
import { escaped } from "../../components/shownText";
import { UndoDialog } from "../../components/UndoDialog";
import { ReviewPage } from "./ReviewPage";
import { readLines, useRunChanges } from "./reviewSources";

export function RunReview({ workspaceId, runId }: { workspaceId: string; runId: string }) {
  const { run, changes, files } = useRunChanges(workspaceId, runId);
  const [isUndoing, setIsUndoing] = useState(false);
  useTitle("Review", "Run");
  const error = run.error ?? changes.error;
  if (error) return <ErrorNote error={error} />;
  if (!run.data || !changes.data) return <Loading what="changes" />;
  const sessionId = run.data.session_id;
  return (
    <ReviewPage
      workspaceId={workspaceId}
      sessionId={sessionId}
      name={runId}
      title={escaped(run.data.prompt_preview || "Run")}
      back={{ href: `/w/${workspaceId}/chat/${sessionId}`, label: "Back to the chat" }}
      files={files}
      read={async (file) => ({ lines: await readLines(workspaceId, file.path), side: "after" })}
      decision={
        <>
          <Link
            href={`/w/${workspaceId}/review/session/${sessionId}`}
            className="inline-flex min-h-7 items-center rounded-md border border-line-strong px-2 text-xs font-medium hover:bg-accent-soft"
          >
            Review the session
          </Link>
          {files.length > 0 && (
            <Button small variant="danger" onClick={() => setIsUndoing(true)}>
              Undo the run…
            </Button>
          )}
        </>
      }
    >
      {changes.data.total > files.length && (
        <p className="text-sm text-muted">
          Showing the first {files.length} of {changes.data.total} files.
        </p>
      )}
      {files.length === 0 && <Empty title="No files changed" />}
      <UndoDialog
        workspaceId={workspaceId}
        sessionId={sessionId}
        request={isUndoing ? { target: { run_id: runId }, what: "the run" } : null}
        onClose={() => setIsUndoing(false)}
      />
    </ReviewPage>
  );
}
