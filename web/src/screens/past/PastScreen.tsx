/** The past of a workspace: a session's timeline, with what changed and undo, and the book of all calls. */
import { useSearchParams } from "wouter";
import type { ScreenProps } from "../../app/screens";
import { Empty } from "../../parts/Empty";
import { ErrorNote } from "../../parts/ErrorNote";
import { Loading } from "../../parts/Loading";
import { Select } from "../../parts/Select";
import { Book } from "./Book";
import { type Session, useSessions } from "./past";
import { Timeline } from "./Timeline";

const VIEWS = { timeline: "Timeline", book: "Book" } as const;
type View = keyof typeof VIEWS;

/** What is shown stands in the address, so that it can be sent to someone. */
export default function PastScreen({ workspaceId }: ScreenProps) {
  const [at, setAt] = useSearchParams();
  const view: View = at.get("view") === "book" ? "book" : "timeline";
  return (
    <div className="h-full overflow-y-auto" tabIndex={0}>
      <div className="mx-auto max-w-5xl space-y-4 p-3 md:p-5">
        <header className="flex flex-wrap items-center gap-2">
          <h1 className="text-lg font-semibold">Past</h1>
          <div className="flex gap-1">
            {(Object.keys(VIEWS) as View[]).map((name) => (
              <button
                key={name}
                type="button"
                aria-pressed={view === name}
                onClick={() => setAt(name === "book" ? { view: "book" } : {})}
                className="min-h-8 rounded-md px-2.5 text-muted hover:bg-accent-soft hover:text-ink aria-pressed:bg-accent-soft aria-pressed:font-medium aria-pressed:text-accent"
              >
                {VIEWS[name]}
              </button>
            ))}
          </div>
        </header>
        {view === "book" ? (
          <Book workspaceId={workspaceId} />
        ) : (
          <Sessions workspaceId={workspaceId} chosen={at.get("session")} onChoose={(session) => setAt({ session })} />
        )}
      </div>
    </div>
  );
}

interface SessionsProps {
  workspaceId: string;
  /** Without one, the newest is shown. */
  chosen: string | null;
  onChoose: (sessionId: string) => void;
}

function Sessions({ workspaceId, chosen, onChoose }: SessionsProps) {
  const sessions = useSessions(workspaceId);
  if (sessions.isPending) return <Loading what="the sessions" />;
  if (sessions.error) return <ErrorNote error={sessions.error} />;
  const items = sessions.data.items;
  const shown = chosen ?? items[0]?.id;
  if (shown === undefined)
    return <Empty title="Nothing has happened yet">Sessions begin in the chat. What they do is told here.</Empty>;
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
  return `${session.title ?? "Without a title"} · ${when}`;
}
