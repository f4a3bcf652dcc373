/** The sessions of a workspace, newest first. */
import { Plus } from "lucide-react";
import { Link } from "wouter";
import { usePending } from "../../approvals/pausedCalls";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Loading } from "../../components/Loading";
import { RelativeTime } from "../../components/RelativeTime";
import { type Session, useAgents, useSessions } from "./sessions";

interface Props {
  workspaceId: string;
  current: string | undefined;
  onNew: () => void;
}

export function SessionList({ workspaceId, current, onNew }: Props) {
  const sessions = useSessions(workspaceId);
  const agents = useAgents(workspaceId);
  const pending = usePending(workspaceId);
  const all = sessions.data?.pages.flatMap((page) => page.items) ?? [];
  const waiting = new Set(pending.data?.map((one) => one.sessionId));
  return (
    <>
      <header className="flex items-center gap-2 border-b border-line px-3 py-2">
        <h1 className="grow font-semibold">Sessions</h1>
        <Button small variant="primary" onClick={onNew}>
          <Plus aria-hidden className="size-4" /> New
        </Button>
      </header>
      <div className="min-h-0 grow overflow-y-auto">
        {sessions.isPending && <Loading what="sessions" />}
        <ErrorNote error={sessions.error} />
        {sessions.isSuccess && all.length === 0 && (
          <Empty title="No sessions yet">Start a session and send the agent a task.</Empty>
        )}
        <ul className="p-1.5">
          {all.map((session) => (
            <li key={session.id}>
              <Link
                href={`/w/${workspaceId}/chat/${session.id}`}
                aria-current={session.id === current ? "true" : undefined}
                className="block rounded-md px-2.5 py-1.5 -outline-offset-2 hover:bg-accent-soft aria-[current]:bg-accent-soft"
              >
                <span className="flex items-center gap-2">
                  <span className="min-w-0 grow truncate font-medium">{titleOf(session)}</span>
                  {waiting.has(session.id) && <Badge tone="warn">waiting for you</Badge>}
                </span>
                <span className="flex gap-2 text-xs text-muted">
                  <span className="min-w-0 grow truncate">
                    {agents.data?.items.find((agent) => agent.id === session.agent_id)?.name ?? "no agent"}
                    {session.mode === "plan" && " · plan"}
                  </span>
                  <RelativeTime time={session.created_at} />
                </span>
              </Link>
            </li>
          ))}
        </ul>
        {sessions.hasNextPage && (
          <div className="p-2">
            <Button wide variant="quiet" busy={sessions.isFetchingNextPage} onClick={() => sessions.fetchNextPage()}>
              Show older
            </Button>
          </div>
        )}
      </div>
    </>
  );
}

export function titleOf(session: Session): string {
  return (
    session.title ??
    `Session, ${new Date(session.created_at).toLocaleString([], { dateStyle: "medium", timeStyle: "short" })}`
  );
}
