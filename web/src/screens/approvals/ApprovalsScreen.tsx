/** Paused calls of all sessions in the workspace. `/approvals/{pause_id}` shows one of them first. */
import { Link, useLocation } from "wouter";
import { useMe } from "../../app/me";
import type { ScreenProps } from "../../app/screenProps";
import { useMayWrite } from "../../app/workspaces";
import { ApprovalCard } from "../../approvals/ApprovalCard";
import { isPlanReview, planNamed } from "../../approvals/items";
import { alreadyDecided, type PendingCall, useDecidedByOthers, usePending } from "../../approvals/pausedCalls";
import { QuestionForm } from "../../approvals/QuestionForm";
import { LINK_BUTTON } from "../../components/Button";
import { Card } from "../../components/Card";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Page } from "../../components/Page";
import { RelativeTime } from "../../components/RelativeTime";
import { Skeleton } from "../../components/Skeleton";
import { escapedLine } from "../../components/shownText";

export default function ApprovalsScreen({ workspaceId }: ScreenProps) {
  const pending = usePending(workspaceId);
  const mayDecide = useMayWrite(workspaceId);
  const decided = useDecidedByOthers(workspaceId, pending.data ?? [], useMe().data?.id ?? null);
  const [location] = useLocation();
  const isAddressed = ({ pause }: PendingCall) => location.endsWith(`/approvals/${pause.id}`);
  const shown = pending.data?.toSorted((one, other) => Number(isAddressed(other)) - Number(isAddressed(one))) ?? [];
  return (
    <Page
      title="Approvals"
      label="Approvals"
      aside={
        mayDecide &&
        (pending.data?.length ?? 0) > 1 && (
          <Link href="/inbox" className={LINK_BUTTON}>
            Decide several at once
          </Link>
        )
      }
    >
      {pending.isPending && <Skeleton what="pending approvals" />}
      <ErrorNote error={pending.error} />
      <ul role="status" aria-label="Decided by others" className="space-y-1">
        {decided.map((pause) => (
          <li key={pause.id} className="rounded-md border border-line bg-warn-soft px-3 py-2 text-sm text-warn">
            {pause.kind === "approval" ? `${escapedLine(pause.tool)}: ` : "Question: "}
            {alreadyDecided(pause)}
          </li>
        ))}
      </ul>
      {pending.data?.length === 0 && (
        <Empty title="No pending approvals">Approval requests and questions from all sessions appear here.</Empty>
      )}
      <ul className="space-y-6">
        {shown.map(({ pause, sessionId, createdAt }) => (
          <li key={pause.id}>
            <Origin workspaceId={workspaceId} sessionId={sessionId} time={createdAt} />
            {pause.kind === "approval" ? (
              <ApprovalCard workspaceId={workspaceId} approval={pause} />
            ) : isPlanReview(pause.items) && planNamed(pause.items, null) === null ? (
              <Card label="Plan review">A plan needs your review. Open the session to read it.</Card>
            ) : (
              <QuestionForm workspaceId={workspaceId} pauseId={pause.id} items={pause.items} />
            )}
          </li>
        ))}
      </ul>
    </Page>
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
