/** A tool call: expanded while it runs, collapsed afterwards, unless a person toggles it. */
import { Ban, CircleCheck, CircleDashed, CircleX, Hand, LoaderCircle, Undo2 } from "lucide-react";
import { useMemo, useState } from "react";
import { ApprovalCard } from "../../approvals/ApprovalCard";
import { ChangeList } from "../../approvals/ChangeList";
import { alreadyDecided, decidedText } from "../../approvals/pausedCalls";
import { QuestionForm } from "../../approvals/QuestionForm";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { EXACT, ShownText } from "../../components/Code";
import { UndoDialog } from "../../components/UndoDialog";
import {
  type Call,
  type CallStatus,
  isDecidedByOther,
  isPending,
  type Pause,
  type Question,
} from "../../events/conversation";
import { ChildRunBlock } from "./ChildRunBlock";
import { CallChanges } from "./results/CallChanges";
import { CallDetails } from "./results/CallDetails";
import { CallResult } from "./results/CallResult";
import { gistOf, viewOf } from "./results/callView";
import { useToggled } from "./results/toggledRows";
import { useSpeakers } from "./speakers";
import { durationOf, iconOf, mayChangeFiles, summaryOf } from "./toolIcons";

interface Props {
  workspaceId: string;
  sessionId: string;
  call: Call;
  plan: string | null;
}

export function CallBlock({ workspaceId, sessionId, call, plan }: Props) {
  const { pause } = call;
  const { me, mayAct } = useSpeakers();
  const toggled = useToggled((state) => state.open[call.id]);
  const toggle = useToggled((state) => state.toggle);
  // A child run is shown below its call.
  const isExpanded = toggled ?? (call.status === "running" && call.child === null);
  /** Whether the decision was open on this screen. */
  const [wasAsked, setWasAsked] = useState(false);
  if (isPending(pause) && !wasAsked) setWasAsked(true);
  const Icon = iconOf(call.name);
  const gist = useMemo(() => gistOf(viewOf(call)), [call]);
  return (
    <article aria-label={`Call of ${call.name}`} className="space-y-2">
      <div className="overflow-hidden rounded-lg border border-line bg-surface">
        <button
          type="button"
          aria-expanded={isExpanded}
          onClick={() => toggle(call.id, !isExpanded)}
          className="flex w-full items-center gap-2 px-3 py-1 text-left -outline-offset-2 hover:bg-accent-soft"
        >
          <Icon aria-hidden className="size-4 shrink-0 text-muted" />
          <span className="shrink-0 font-mono text-xs font-semibold">{call.name}</span>
          <span className="min-w-0 grow truncate font-mono text-xs text-muted">{summaryOf(call.input)}</span>
          {gist && <span className="shrink-0 text-xs text-muted max-sm:hidden">{gist}</span>}
          {isolationOf(call) && <Badge title="Isolation">{isolationOf(call)}</Badge>}
          {call.durationMs !== null &&
            call.durationMs > 0 &&
            call.child === null &&
            call.pause?.kind !== "question" && (
              <span className="shrink-0 text-xs text-muted tabular-nums">{durationOf(call.durationMs)}</span>
            )}
          <Status status={call.status} />
        </button>
        {isExpanded && <Body workspaceId={workspaceId} sessionId={sessionId} call={call} />}
      </div>
      {call.child !== null && (
        <ChildRunBlock workspaceId={workspaceId} child={call.child} isOver={call.result !== null} />
      )}
      {pause !== null && isDecidedByOther(pause, me) && (
        <DecidedByOther pause={pause} wasAsked={wasAsked && mayAct} isSaidAbove={isExpanded} />
      )}
      {pause?.kind === "approval" && isPending(pause) && (
        <ApprovalCard workspaceId={workspaceId} approval={pause} isReadOnly={!mayAct} />
      )}
      {pause?.kind === "question" && isPending(pause) && (
        <QuestionForm
          workspaceId={workspaceId}
          pauseId={pause.id}
          items={pause.items}
          plan={plan}
          isReadOnly={!mayAct}
        />
      )}
    </article>
  );
}

function Body({ workspaceId, sessionId, call }: Omit<Props, "plan">) {
  const [isUndoing, setIsUndoing] = useState(false);
  const { mayAct } = useSpeakers();
  const view = useMemo(() => viewOf(call), [call]);
  const isQuestion = call.pause?.kind === "question" && call.pause.answers !== null;
  const isRejected = call.status !== "success" && call.pause?.kind === "approval" && !isPending(call.pause);
  return (
    <div className="space-y-2 border-t border-line p-3">
      <Outcome call={call} />
      {call.pause?.kind === "question" && call.pause.answers !== null && <AnswerList pause={call.pause} />}
      {isRejected && call.pause?.kind === "approval" && <ChangeList changes={call.pause.changes} />}
      {!isQuestion && view !== null && <CallResult workspaceId={workspaceId} call={call} view={view} />}
      {/* A command that also changed files shows both. */}
      {view?.kind === "terminal" && call.status !== "running" && call.result !== null && (
        <CallChanges workspaceId={workspaceId} callId={call.id} />
      )}
      {call.metadata.truncated === true && <p className="text-xs text-muted">Output truncated</p>}
      <div className="flex items-start gap-2">
        <div className="min-w-0 grow">{!isQuestion && <CallDetails call={call} isOpen={view === null} />}</div>
        {mayAct && call.status === "success" && mayChangeFiles(call.name) && (
          <Button small onClick={() => setIsUndoing(true)}>
            <Undo2 aria-hidden className="size-3.5" /> Undo…
          </Button>
        )}
      </div>
      {isUndoing && (
        <UndoDialog
          workspaceId={workspaceId}
          sessionId={sessionId}
          request={{ target: { calls: [call.id] }, what: call.name }}
          onClose={() => setIsUndoing(false)}
        />
      )}
    </div>
  );
}

/** A warning for who was about to decide, and a note for everybody else. An open call says it itself. */
function DecidedByOther({ pause, wasAsked, isSaidAbove }: { pause: Pause; wasAsked: boolean; isSaidAbove: boolean }) {
  if (wasAsked)
    return (
      <p role="status" className="rounded-md bg-warn-soft px-3 py-1 text-xs text-warn">
        {alreadyDecided(pause)}
      </p>
    );
  if (isSaidAbove) return null;
  return <p className="px-3 text-xs text-muted first-letter:uppercase">{decidedText(pause)}</p>;
}

/** The questions of a call and their answers, as text. */
function AnswerList({ pause: { items, answers } }: { pause: Question }) {
  return (
    <dl className="space-y-2">
      {items.map((item) => (
        <div key={item.name}>
          <dt className="text-xs text-muted whitespace-pre-wrap wrap-anywhere">{item.question}</dt>
          <dd className={EXACT}>
            <ShownText text={answerText(answers?.[item.name])} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function answerText(answer: unknown): string {
  if (Array.isArray(answer)) return answer.map(answerText).join("\n");
  if (typeof answer === "boolean") return answer ? "Yes" : "No";
  return typeof answer === "string" ? answer : JSON.stringify(answer ?? null);
}

/** The decision or the answer, and its author. */
function Outcome({ call: { pause } }: { call: Call }) {
  if (pause === null || isPending(pause)) return null;
  const approval = pause.kind === "approval" ? pause : null;
  return (
    <p className="text-xs text-muted">
      {pause.state.charAt(0).toUpperCase() + pause.state.slice(1)}
      {pause.decidedBy && ` by ${pause.decidedBy}`}
      {pause.decidedAt && ` at ${new Date(pause.decidedAt).toLocaleTimeString()}`}
      {approval?.scope && approval.scope !== "once" && ` (${approval.scope})`}
      {approval?.rejectionReason && `: ${approval.rejectionReason}`}
    </p>
  );
}

const STATUSES: Record<CallStatus, [string, typeof CircleCheck, string]> = {
  pending: ["pending", CircleDashed, "text-muted"],
  waiting: ["waiting for you", Hand, "text-warn"],
  running: ["running", LoaderCircle, "text-accent animate-spin"],
  success: ["done", CircleCheck, "text-good"],
  error: ["failed", CircleX, "text-bad"],
  rejected: ["rejected", Ban, "text-bad"],
};

function Status({ status }: { status: CallStatus }) {
  const [label, Icon, style] = STATUSES[status];
  return (
    <>
      <Icon aria-hidden className={`size-4 shrink-0 ${style}`} />
      <span className="sr-only">{label}</span>
    </>
  );
}

function isolationOf(call: Call): string | null {
  return call.isolation ?? (typeof call.metadata.isolation === "string" ? call.metadata.isolation : null);
}
