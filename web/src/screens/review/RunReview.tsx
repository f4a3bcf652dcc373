/** What a run changed, as one set. Decisions are made in the review of its session; a run can be undone. */
import { useState } from "react";
import { Link } from "wouter";
import { useTitle } from "../../app/title";
import { useMayWrite } from "../../app/workspaces";
import { Button, LINK_BUTTON } from "../../components/Button";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { escaped } from "../../components/shownText";
import { UndoDialog } from "../../components/UndoDialog";
import { ReviewPage } from "./ReviewPage";
import { ReviewSkeleton } from "./ReviewSkeleton";
import { readLines, useRunChanges } from "./reviewSources";

export function RunReview({ workspaceId, runId }: { workspaceId: string; runId: string }) {
  const { run, changes, files } = useRunChanges(workspaceId, runId);
  const mayWrite = useMayWrite(workspaceId);
  const [isUndoing, setIsUndoing] = useState(false);
  useTitle("Review", "Run");
  const error = run.error ?? changes.error;
  if (error) return <ErrorNote error={error} />;
  if (!run.data || !changes.data) return <ReviewSkeleton />;
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
      decision={() => (
        <>
          <Link href={`/w/${workspaceId}/run/${runId}`} className={LINK_BUTTON}>
            Timeline
          </Link>
          <Link href={`/w/${workspaceId}/review/session/${sessionId}`} className={LINK_BUTTON}>
            Review the session
          </Link>
          {files.length > 0 && mayWrite && (
            <Button small variant="danger" onClick={() => setIsUndoing(true)}>
              Undo the run…
            </Button>
          )}
        </>
      )}
    >
      {changes.data.total > files.length && (
        <p className="text-sm text-muted">
          Showing the first {files.length} of {changes.data.total} files.
        </p>
      )}
      {files.length === 0 && (
        <Empty title="Nothing to review">This run has changed no files, or they are as they were.</Empty>
      )}
      <UndoDialog
        workspaceId={workspaceId}
        sessionId={sessionId}
        request={isUndoing ? { target: { run_id: runId }, what: "the run" } : null}
        onClose={() => setIsUndoing(false)}
      />
    </ReviewPage>
  );
}
