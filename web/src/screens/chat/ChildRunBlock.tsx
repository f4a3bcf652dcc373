/** A child run below the call that started it: its agent and state, and its conversation when it is opened. */
import { ChevronRight, ExternalLink } from "lucide-react";
import { useEffect, useMemo, useState } from "react";
import { Link } from "wouter";
import { create } from "zustand";
import { Badge, type Tone } from "../../components/Badge";
import { escapedLine } from "../../components/shownText";
import { type ChildRun, type Conversation, isPending, type Run, waitingCalls } from "../../events/conversation";
import { useConversation } from "../../events/LiveProvider";
import { CallBlock } from "./CallBlock";
import { staysShown } from "./childCalls";
import { RowView } from "./RowView";
import { SpeakersContext, useSpeakers } from "./speakers";

/** Child runs that a person opened or closed. Kept here because rows unmount while scrolling. */
const useOpened = create<{ open: Record<string, boolean>; set: (id: string, isOpen: boolean) => void }>((set) => ({
  open: {},
  set: (id, isOpen) => set((before) => ({ open: { ...before.open, [id]: isOpen } })),
}));

interface Props {
  workspaceId: string;
  child: ChildRun;
  /** The call has its result. */
  isOver: boolean;
}

export function ChildRunBlock({ workspaceId, child, isOver }: Props) {
  const opened = useOpened((state) => state.open[child.runId]);
  const setOpened = useOpened((state) => state.set);
  const isOpen = opened ?? false;
  /** Calls that waited for the person on this screen: they are told what became of them, even when the run is over. */
  const [asked, setAsked] = useState<ReadonlySet<string>>(new Set());
  const title = escapedLine(child.title) || "Child run";
  return (
    <section aria-label={`Child run: ${title}`} className="ml-4 rounded-lg border border-line bg-surface">
      <div className="flex items-center gap-1 pr-2">
        <button
          type="button"
          aria-expanded={isOpen}
          onClick={() => setOpened(child.runId, !isOpen)}
          className="flex min-w-0 grow items-center gap-2 rounded-lg px-2 py-1 text-left -outline-offset-2 hover:bg-accent-soft"
        >
          <ChevronRight
            aria-hidden
            className={`size-4 shrink-0 text-muted transition-transform ${isOpen ? "rotate-90" : ""}`}
          />
          <span className="min-w-0 truncate text-sm font-medium">{title}</span>
          <span className="shrink-0 text-xs text-muted">{escapedLine(child.agent)}</span>
          {isOver && !isOpen ? <Badge>ended</Badge> : <LiveState child={child} />}
        </button>
        <Link
          href={`/w/${workspaceId}/chat/${child.sessionId}`}
          aria-label={`Open the session of ${title}`}
          title="Open its session"
          className="rounded-sm p-1 text-muted hover:bg-accent-soft hover:text-ink"
        >
          <ExternalLink aria-hidden className="size-3.5" />
        </Link>
      </div>
      {isOpen ? (
        <Whole workspaceId={workspaceId} child={child} />
      ) : (
        (!isOver || asked.size > 0) && (
          <WaitingCalls workspaceId={workspaceId} child={child} isOver={isOver} asked={asked} onAsked={setAsked} />
        )
      )}
    </section>
  );
}

function LiveState({ child }: { child: ChildRun }) {
  const conversation = useConversation(child.sessionId);
  const [text, tone] = stateOf(conversation, conversation.runs[child.runId]);
  return <Badge tone={tone}>{text}</Badge>;
}

function stateOf(conversation: Conversation, run: Run | undefined): [string, Tone] {
  if (run === undefined) return ["starting", "plain"];
  if (run.state === "ended") return run.endReason === "done" ? ["done", "good"] : [String(run.endReason), "bad"];
  if (waitingCalls(conversation).length > 0) return ["waiting for you", "warn"];
  if (run.state === "queued") return ["queued", "plain"];
  if (run.waitsFor === "provider") return ["waiting for the provider", "plain"];
  return run.waitsFor === "child" ? ["waiting for its child runs", "accent"] : ["working", "accent"];
}

interface WaitingProps extends Props {
  asked: ReadonlySet<string>;
  onAsked: (asked: ReadonlySet<string>) => void;
}

/** What a person must decide, although the conversation is closed. Child runs of its own are shown for theirs. */
function WaitingCalls({ workspaceId, child, isOver, asked, onAsked }: WaitingProps) {
  const conversation = useConversation(child.sessionId);
  const { me } = useSpeakers();
  const calls = conversation.order.map((id) => conversation.rows[id]).filter((row) => row?.kind === "call");
  const fresh = calls.filter(({ id, pause }) => isPending(pause) && !asked.has(id)).map(({ id }) => id);
  useEffect(() => {
    if (fresh.length > 0) onAsked(new Set([...asked, ...fresh]));
  });
  const shown = calls.filter((call) => staysShown(call, { isOver, asked, me }));
  if (shown.length === 0) return null;
  return (
    <div className="space-y-2 border-t border-line p-2">
      {shown.map((call) => (
        <CallBlock
          key={call.id}
          workspaceId={workspaceId}
          sessionId={child.sessionId}
          call={call}
          plan={conversation.plan}
        />
      ))}
    </div>
  );
}

function Whole({ workspaceId, child }: Omit<Props, "isOver">) {
  const { order, rows, runs, plan, isLoaded } = useConversation(child.sessionId);
  const parent = useSpeakers();
  const speakers = useMemo(() => ({ ...parent, agent: escapedLine(child.agent) }), [child.agent, parent]);
  return (
    <SpeakersContext value={speakers}>
      <div className="space-y-3 border-t border-line p-2">
        {!isLoaded && <p className="text-xs text-muted">Loading conversation…</p>}
        {order.map((id) => {
          const row = rows[id];
          return (
            row && (
              <RowView
                key={id}
                workspaceId={workspaceId}
                sessionId={child.sessionId}
                row={row}
                run={row.runId ? runs[row.runId] : undefined}
                plan={plan}
              />
            )
          );
        })}
      </div>
    </SpeakersContext>
  );
}
