/** Pending approvals and questions of all sessions in the workspace. */
import { Link } from "wouter";
import type { ScreenProps } from "../../app/screenProps";
import { ApprovalCard } from "../../approvals/ApprovalCard";
import { usePending } from "../../approvals/approvals";
import { isPlanReview, planNamed } from "../../approvals/items";
import { QuestionForm } from "../../approvals/QuestionForm";
import { Card } from "../../components/Card";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Loading } from "../../components/Loading";
import { RelativeTime } from "../../components/RelativeTime";

export default function ApprovalsScreen({ workspaceId }: ScreenProps) {
  const pending = usePending(workspaceId);
  return (
    <div tabIndex={0} role="region" aria-label="Approvals" className="h-full overflow-y-auto">
      <div className="mx-auto max-w-5xl space-y-4 p-4">
        <h1 className="text-lg font-semibold">Approvals</h1>
        {pending.isPending && <Loading what="pending approvals" />}
        <ErrorNote error={pending.error} />
        {pending.data && pending.data.approvals.length + pending.data.questions.length === 0 && (
          <Empty title="No pending approvals">Approval requests and questions from all sessions appear here.</Empty>
        )}
        <ul className="space-y-5">
          {pending.data?.approvals.map(({ approval, sessionId, createdAt }) => (
            <li key={approval.id}>
              <Origin workspaceId={workspaceId} sessionId={sessionId} time={createdAt} />
              <ApprovalCard workspaceId={workspaceId} approval={approval} />
            </li>
          ))}
          {pending.data?.questions.map(({ id, items, sessionId, createdAt }) => (
            <li key={id}>
              <Origin workspaceId={workspaceId} sessionId={sessionId} time={createdAt} />
              {isPlanReview(items) && planNamed(items, null) === null ? (
                <Card label="Plan review">A plan needs your review. Open the session to read it.</Card>
              ) : (
                <QuestionForm workspaceId={workspaceId} questionId={id} items={items} />
              )}
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}

function Origin({ workspaceId, sessionId, time }: { workspaceId: string; sessionId: string | null; time: string }) {
  return (
    <p className="mb-1 flex gap-2 text-xs text-muted">
      <span>
        requested <RelativeTime time={time} />
      </span>
      {sessionId && (
        <Link href={`/w/${workspaceId}/chat/${sessionId}`} className="text-accent underline">
          Open session
        </Link>
      )}
    </p>
  );
}
