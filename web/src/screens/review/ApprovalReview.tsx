/** A call that waits for an approval, with all that it would change. */
import { useRef } from "react";
import { useTitle } from "../../app/title";
import { ApprovalFacts, DecisionForm } from "../../approvals/ApprovalCard";
import { alreadyDecided } from "../../approvals/pausedCalls";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Loading } from "../../components/Loading";
import { escapedLine } from "../../components/shownText";
import { ReviewPage } from "./ReviewPage";
import { readLines, useApproval } from "./reviewSources";

export function ApprovalReview({ workspaceId, pauseId }: { workspaceId: string; pauseId: string }) {
  const { found, sessionId, approval, files } = useApproval(workspaceId, pauseId);
  const form = useRef<HTMLDivElement>(null);
  useTitle("Review", approval?.tool);
  if (found.error) return <ErrorNote error={found.error} />;
  if (found.isPending) return <Loading what="approval" />;
  if (approval === null) return <Empty title="This call waits for answers, not for an approval" />;
  const isPending = approval.state === "pending";
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
      {...(isPending
        ? { control: { buttons: () => null, accept: () => press("Approve"), reject: () => press("Reject") } }
        : {})}
      decision={null}
    >
      <section aria-label="The call" className="space-y-3 rounded-lg border border-warn/60 bg-surface p-3">
        <ApprovalFacts approval={approval} />
        {isPending ? (
          <div ref={form}>
            <DecisionForm workspaceId={workspaceId} approval={approval} />
          </div>
        ) : (
          <p role="status" className="text-sm text-warn">
            {approval.decidedBy === null ? `This approval is ${approval.state}.` : alreadyDecided(approval)}
          </p>
        )}
      </section>
    </ReviewPage>
  );
}
