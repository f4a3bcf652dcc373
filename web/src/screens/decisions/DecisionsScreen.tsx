/** Everything in the workspace that waits for a person, from whichever session. */
import { Link } from "wouter";
import type { ScreenProps } from "../../app/screens";
import { ApprovalCard } from "../../decisions/ApprovalCard";
import { usePending } from "../../decisions/approvals";
import { isPlanReview, planNamed } from "../../decisions/items";
import { QuestionForm } from "../../decisions/QuestionForm";
import { Ago } from "../../parts/Ago";
import { Card } from "../../parts/Card";
import { Empty } from "../../parts/Empty";
import { ErrorNote } from "../../parts/ErrorNote";
import { Loading } from "../../parts/Loading";

export default function DecisionsScreen({ workspaceId }: ScreenProps) {
  const pending = usePending(workspaceId);
  return (
    <div tabIndex={0} role="region" aria-label="Decisions" className="h-full overflow-y-auto">
      <div className="mx-auto max-w-5xl space-y-4 p-4">
        <h1 className="text-lg font-semibold">Decisions</h1>
        {pending.isPending && <Loading what="what waits for you" />}
        <ErrorNote error={pending.error} />
        {pending.data && pending.data.approvals.length + pending.data.questions.length === 0 && (
          <Empty title="Nothing waits for you">
            What agents ask, in any session of this workspace, is listed here.
          </Empty>
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
                <Card label="Plan review">A plan waits for review. Open its session, where the plan is shown.</Card>
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
        asked <Ago time={time} />
      </span>
      {sessionId && (
        <Link href={`/w/${workspaceId}/chat/${sessionId}`} className="text-accent underline">
          open its session
        </Link>
      )}
    </p>
  );
}
