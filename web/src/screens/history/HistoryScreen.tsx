/** The history of a workspace: session timelines with changes and undo, and the audit log. */
import { useQueryParameters } from "../../app/query";
import type { ScreenProps } from "../../app/screenProps";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { Page } from "../../components/Page";
import { Select } from "../../components/Select";
import { Skeleton } from "../../components/Skeleton";
import { AuditLog } from "./AuditLog";
import { type Session, useSessions } from "./history";
import { Timeline } from "./Timeline";

const VIEWS = { timeline: "Timeline", "audit-log": "Audit log" } as const;
type View = keyof typeof VIEWS;

/** The address holds the view, so that it can be shared. */
export default function HistoryScreen({ workspaceId }: ScreenProps) {
  const [at, setAt] = useQueryParameters();
  const view: View = at.get("view") === "audit-log" ? "audit-log" : "timeline";
  return (
    <Page
      title="History"
      label="History"
      aside={
        <div className="flex gap-1">
          {(Object.keys(VIEWS) as View[]).map((name) => (
            <button
              key={name}
              type="button"
              aria-pressed={view === name}
              onClick={() => setAt({ view: name === "audit-log" ? "audit-log" : null, session: null })}
              className="min-h-8 rounded-md px-3 text-muted hover:bg-accent-soft hover:text-ink aria-pressed:bg-accent-soft aria-pressed:font-medium aria-pressed:text-accent"
            >
              {VIEWS[name]}
            </button>
          ))}
        </div>
      }
    >
      {view === "audit-log" ? (
        <AuditLog workspaceId={workspaceId} />
      ) : (
        <Sessions workspaceId={workspaceId} chosen={at.get("session")} onChoose={(session) => setAt({ session })} />
      )}
    </Page>
  );
}

interface SessionsProps {
  workspaceId: string;
  /** Null shows the newest session. */
  chosen: string | null;
  onChoose: (sessionId: string) => void;
}

function Sessions({ workspaceId, chosen, onChoose }: SessionsProps) {
  const sessions = useSessions(workspaceId);
  if (sessions.isPending) return <Skeleton what="sessions" />;
  if (sessions.error) return <ErrorNote error={sessions.error} />;
  const items = sessions.data.items;
  const shown = chosen ?? items[0]?.id;
  if (shown === undefined)
    return <Empty title="No sessions yet">Start a session in Chat. Its history appears here.</Empty>;
  return (
    <>
      <Select
        label="Session"
        value={shown}
        onChange={onChoose}
        options={Object.fromEntries(items.map((session) => [session.id, titleOf(session)]))}
      />
      <Timeline key={shown} workspaceId={workspaceId} sessionId={shown} />
    </>
  );
}

function titleOf(session: Session): string {
  const when = new Date(session.created_at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  return `${session.title ?? "Untitled"} · ${when}`;
}
