/** The sessions of a workspace, newest first, with a search over titles and messages. */
import { GitFork, Plus, Search, X } from "lucide-react";
import { useDeferredValue, useState } from "react";
import { Link } from "wouter";
import { usePending } from "../../approvals/pausedCalls";
import { Avatar } from "../../components/Avatar";
import { Button, IconButton } from "../../components/Button";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { dollars } from "../../components/money";
import { RelativeTime } from "../../components/RelativeTime";
import { SkeletonTree } from "../../components/Skeleton";
import { escapedLine } from "../../components/shownText";
import { useMayAct } from "./access";
import { FoundSessions } from "./FoundSessions";
import { type Agent, type ListedSession, type Session, useAgents, useSessions } from "./sessions";

interface Props {
  workspaceId: string;
  current: string | undefined;
  onNew: () => void;
}

export function SessionList({ workspaceId, current, onNew }: Props) {
  const [query, setQuery] = useState("");
  const searched = useDeferredValue(query.trim());
  const mayAct = useMayAct(workspaceId);
  return (
    <>
      <header className="space-y-2 border-b border-line px-3 py-2">
        <div className="flex min-h-8 items-center gap-2">
          <h1 className="grow font-semibold">Sessions</h1>
          {mayAct && (
            <Button small variant="primary" onClick={onNew}>
              <Plus aria-hidden className="size-4" /> New
            </Button>
          )}
        </div>
        <div className="flex items-center gap-2 rounded-md border border-line bg-sunken pl-2 focus-within:border-accent">
          <Search aria-hidden className="size-3.5 shrink-0 text-muted" />
          <input
            type="search"
            aria-label="Search conversations"
            placeholder="Search conversations"
            value={query}
            maxLength={200}
            onChange={(event) => setQuery(event.target.value)}
            onKeyDown={(event) => event.key === "Escape" && setQuery("")}
            className="min-h-7 min-w-0 grow bg-transparent text-sm outline-none placeholder:text-muted [&::-webkit-search-cancel-button]:hidden"
          />
          {query !== "" && (
            <IconButton label="Clear search" onClick={() => setQuery("")}>
              <X aria-hidden className="size-3.5" />
            </IconButton>
          )}
        </div>
      </header>
      <div className="min-h-0 grow overflow-y-auto">
        {searched === "" ? (
          <AllSessions workspaceId={workspaceId} current={current} />
        ) : (
          <FoundSessions workspaceId={workspaceId} query={searched} current={current} />
        )}
      </div>
    </>
  );
}

function AllSessions({ workspaceId, current }: Omit<Props, "onNew">) {
  const sessions = useSessions(workspaceId);
  const agents = useAgents(workspaceId);
  const pending = usePending(workspaceId);
  const all = sessions.data?.pages.flatMap((page) => page.items) ?? [];
  const waiting = new Set(pending.data?.map((one) => one.sessionId));
  return (
    <>
      {sessions.isPending && <SkeletonTree what="sessions" />}
      <ErrorNote error={sessions.error} />
      {sessions.isSuccess && all.length === 0 && (
        <Empty title="No sessions yet">Start a session and send the agent a task.</Empty>
      )}
      <ul className="p-2">
        {all.map((session) => (
          <li key={session.id}>
            <Entry
              workspaceId={workspaceId}
              session={session}
              agent={agents.data?.items.find((agent) => agent.id === session.agent_id)}
              isCurrent={session.id === current}
              isWaiting={waiting.has(session.id) || session.activity === "waiting"}
            />
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
    </>
  );
}

interface EntryProps {
  workspaceId: string;
  session: ListedSession;
  agent: Agent | undefined;
  isCurrent: boolean;
  isWaiting: boolean;
}

function Entry({ workspaceId, session, agent, isCurrent, isWaiting }: EntryProps) {
  const mayAct = useMayAct(workspaceId);
  const owner = session.owner_name ?? "Former member";
  const activity = isWaiting ? "waiting" : session.activity;
  const cost = session.cost === null || session.cost === undefined ? 0 : Number(session.cost);
  return (
    <Link
      href={`/w/${workspaceId}/chat/${session.id}`}
      aria-current={isCurrent ? "true" : undefined}
      className="flex gap-2 rounded-md px-2 py-1 -outline-offset-2 hover:bg-accent-soft aria-[current]:bg-accent-soft"
    >
      <span className="pt-0.5">
        <Avatar id={session.created_by} name={owner} size="small" />
        <span className="sr-only">{owner}: </span>
      </span>
      <span className="min-w-0 grow">
        <span className="flex items-center gap-2">
          {session.forked_from_session_id && (
            <GitFork role="img" aria-label="Fork" className="size-3.5 shrink-0 text-muted" />
          )}
          <span className="min-w-0 grow truncate font-medium">{titleOf(session)}</span>
          {activity !== "waiting" && <Activity activity={activity} />}
        </span>
        <span className="flex gap-2 text-xs text-muted">
          <span className="min-w-0 grow truncate">
            {activity === "waiting" && (
              <span className="font-medium text-warn">{mayAct ? "waiting for you" : "waiting"} · </span>
            )}
            {agent?.name ?? "no agent"}
            {session.mode === "plan" && " · plan"}
            {cost > 0 && ` · ${dollars(cost)}`}
          </span>
          <span className="shrink-0 whitespace-nowrap">
            <RelativeTime time={session.created_at} />
          </span>
        </span>
      </span>
    </Link>
  );
}

const ACTIVITIES: Record<ListedSession["activity"], [string, string] | null> = {
  working: ["working", "bg-accent animate-pulse"],
  waiting: null,
  queued: ["queued", "bg-muted"],
  failed: ["failed", "bg-bad"],
  idle: null,
};

/** A dot in a colour, with its meaning for those who do not see it. Waiting asks for something, so it is in words. */
function Activity({ activity }: { activity: ListedSession["activity"] }) {
  const found = ACTIVITIES[activity];
  if (found === null) return null;
  const [label, colour] = found;
  return (
    <span title={label} className="flex shrink-0 items-center">
      <span aria-hidden className={`size-2 rounded-full ${colour}`} />
      <span className="sr-only">{label}</span>
    </span>
  );
}

export function titleOf(session: Pick<Session, "title" | "created_at">): string {
  if (session.title !== null) return escapedLine(session.title);
  const date = new Date(session.created_at).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  return `Session, ${date}`;
}
