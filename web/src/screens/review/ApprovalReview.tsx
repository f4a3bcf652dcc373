/** A call that waits for an approval, with all that it would change. A person can edit that before approving it. */
import { useRef, useState } from "react";
import { useTitle } from "../../app/title";
import { useMayWrite } from "../../app/workspaces";
import { ApprovalFacts, DecisionForm } from "../../approvals/ApprovalCard";
import { EditedFiles } from "../../approvals/EditedFiles";
import { alreadyDecided } from "../../approvals/pausedCalls";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { escapedLine } from "../../components/shownText";
import { useProposalEdits } from "./approvalEdits";
import { EditFile } from "./EditFile";
import { ReviewPage } from "./ReviewPage";
import { ReviewSkeleton } from "./ReviewSkeleton";
import type { ReviewFile } from "./reviewFiles";
import { readLines, useApproval } from "./reviewSources";

export function ApprovalReview({ workspaceId, pauseId }: { workspaceId: string; pauseId: string }) {
  const { found, sessionId, approval, files: proposed, more } = useApproval(workspaceId, pauseId);
  const edits = useProposalEdits(workspaceId, pauseId);
  const [editing, setEditing] = useState<string | null>(null);
  const mayWrite = useMayWrite(workspaceId);
  const form = useRef<HTMLDivElement>(null);
  useTitle("Review", approval?.tool);
  if (found.error) return <ErrorNote error={found.error} />;
  if (found.isPending) return <ReviewSkeleton />;
  if (approval === null) return <Empty title="This call waits for answers, not for an approval" />;
  const isPending = approval.state === "pending";
  const mayDecide = isPending && mayWrite;
  const files = isPending ? (edits.files ?? proposed) : proposed;
  /** Presses a button of the form, so that keys and pointer do the same. */
  const press = (name: string) =>
    [...(form.current?.querySelectorAll("button") ?? [])].find((one) => one.textContent?.startsWith(name))?.click();
  return (
    <ReviewPage
      workspaceId={workspaceId}
      sessionId={sessionId}
      name={pauseId}
      title={
        <>
          {escapedLine(approval.agent ?? "Someone")} wants to use <code>{escapedLine(approval.tool)}</code>
        </>
      }
      back={{ href: `/w/${workspaceId}/approvals`, label: "Back to approvals" }}
      files={files}
      read={async (file) => ({ lines: await readLines(workspaceId, file.fromPath ?? file.path), side: "before" })}
      {...(isPending && edits.files === null ? { more } : {})}
      {...(mayDecide
        ? {
            control: {
              buttons: (file) => (
                <FileButtons
                  file={file}
                  isEdited={edits.has(file.path)}
                  onEdit={() => setEditing(file.path)}
                  onDiscard={() => edits.discard(file.path)}
                />
              ),
              pageKeys: [
                { keys: "a", does: "Approve the call", act: () => press("Approve") },
                { keys: "r", does: "Reject the call", act: () => press("Reject") },
              ],
              keys: [
                {
                  keys: "e",
                  does: "Edit the file before approving",
                  act: (file) => (file.isEditable || edits.has(file.path)) && setEditing(file.path),
                },
              ],
            },
          }
        : {})}
      decision={() => null}
    >
      <section aria-label="The call" className="space-y-3 rounded-lg border border-warn/60 bg-surface p-3">
        <ApprovalFacts approval={approval} />
        {isPending && !mayWrite ? (
          <p className="text-sm text-muted">A member or an owner decides.</p>
        ) : isPending ? (
          <div ref={form}>
            <DecisionForm workspaceId={workspaceId} approval={approval} edited={edits.decision} />
          </div>
        ) : (
          <>
            <p role="status" className="text-sm text-warn">
              {approval.decidedBy === null ? `This approval is ${approval.state}.` : alreadyDecided(approval)}
            </p>
            <EditedFiles approval={approval} />
          </>
        )}
      </section>
      {editing !== null && (
        <EditFile
          path={editing}
          hint="Your content is approved instead of the agent's. The agent is told."
          load={async () => ({ text: await edits.load(editing) })}
          save={(text) => edits.save(editing, text)}
          onClose={() => setEditing(null)}
        />
      )}
    </ReviewPage>
  );
}

interface ButtonProps {
  file: ReviewFile;
  isEdited: boolean;
  onEdit: () => void;
  onDiscard: () => void;
}

function FileButtons({ file, isEdited, onEdit, onDiscard }: ButtonProps) {
  return (
    <>
      {isEdited && (
        <>
          <Badge tone="warn">edited by you</Badge>
          <Button small variant="quiet" onClick={onDiscard}>
            Discard edit
          </Button>
        </>
      )}
      {(file.isEditable || isEdited) && (
        <Button small onClick={onEdit}>
          Edit
        </Button>
      )}
    </>
  );
}
