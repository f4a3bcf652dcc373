/** A tool call: expanded while it runs, collapsed afterwards, unless a person toggles it. */
import { Ban, CircleCheck, CircleDashed, CircleX, Hand, LoaderCircle, Undo2 } from "lucide-react";
import { useState } from "react";
import { create } from "zustand";
import { ApprovalCard, textOf } from "../../approvals/ApprovalCard";
import { QuestionForm } from "../../approvals/QuestionForm";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Code } from "../../components/Code";
import { UndoDialog } from "../../components/UndoDialog";
import { type Call, type CallStatus, isOpen } from "../../events/conversation";
import { durationOf, iconOf, mayChangeFiles, summaryOf } from "./toolIcons";

/** Calls that a person expanded or collapsed. Kept here because rows unmount while scrolling. */
const useToggled = create<{ open: Record<string, boolean>; toggle: (id: string, isOpen: boolean) => void }>((set) => ({
  open: {},
  toggle: (id, isOpen) => set((before) => ({ open: { ...before.open, [id]: isOpen } })),
}));

interface Props {
  workspaceId: string;
  sessionId: string;
  call: Call;
  plan: string | null;
}

export function CallBlock({ workspaceId, sessionId, call, plan }: Props) {
  const { approval, question } = call;
  const isPending = isOpen(approval) || isOpen(question);
  const toggled = useToggled((state) => state.open[call.id]);
  const toggle = useToggled((state) => state.toggle);
  const isExpanded = toggled ?? call.status === "running";
  const Icon = iconOf(call.name);
  return (
    <article aria-label={`Call of ${call.name}`} className="space-y-2">
      <div className="overflow-hidden rounded-lg border border-line bg-surface">
        <button
          type="button"
          aria-expanded={isExpanded}
          onClick={() => toggle(call.id, !isExpanded)}
          className="flex w-full items-center gap-2 px-3 py-1.5 text-left -outline-offset-2 hover:bg-accent-soft"
        >
          <Icon aria-hidden className="size-4 shrink-0 text-muted" />
          <span className="shrink-0 font-mono text-xs font-semibold">{call.name}</span>
          <span className="min-w-0 grow truncate font-mono text-xs text-muted">{summaryOf(call.input)}</span>
          {isolationOf(call) && <Badge title="Isolation">{isolationOf(call)}</Badge>}
          {call.durationMs !== null && call.durationMs > 0 && (
            <span className="shrink-0 text-xs text-muted tabular-nums">{durationOf(call.durationMs)}</span>
          )}
          <Status status={call.status} />
        </button>
        {isExpanded && <Body workspaceId={workspaceId} sessionId={sessionId} call={call} />}
      </div>
      {isPending && approval && isOpen(approval) && <ApprovalCard workspaceId={workspaceId} approval={approval} />}
      {isPending && question && isOpen(question) && (
        <QuestionForm workspaceId={workspaceId} questionId={question.id} items={question.items} plan={plan} />
      )}
    </article>
  );
}

function Body({ workspaceId, sessionId, call }: Omit<Props, "plan">) {
  const [isUndoing, setIsUndoing] = useState(false);
  const result = call.result === null ? null : pretty(call.result);
  return (
    <div className="space-y-2 border-t border-line p-3">
      {call.input !== null && <Code text={textOf(call.input)} label="Input" />}
      <Outcome call={call} />
      {call.output && <Code text={call.output} label="Output so far" />}
      {result && <Code text={result} label="Result" />}
      {call.metadata.truncated === true && <p className="text-xs text-muted">Output truncated</p>}
      {call.status === "success" && mayChangeFiles(call.name) && (
        <div className="flex justify-end">
          <Button small onClick={() => setIsUndoing(true)}>
            <Undo2 aria-hidden className="size-3.5" /> Undo…
          </Button>
        </div>
      )}
      <UndoDialog
        workspaceId={workspaceId}
        sessionId={sessionId}
        request={isUndoing ? { target: { calls: [call.id] }, what: call.name } : null}
        onClose={() => setIsUndoing(false)}
      />
    </div>
  );
}

/** The decision or the answer, and its author. */
function Outcome({ call: { approval, question } }: { call: Call }) {
  if (approval && !isOpen(approval)) {
    return (
      <p className="text-xs text-muted">
        {STATES[approval.state] ?? approval.state}
        {approval.decidedBy && ` by ${approval.decidedBy}`}
        {approval.scope && approval.scope !== "once" && ` (${approval.scope})`}
        {approval.denial && `: ${approval.denial}`}
      </p>
    );
  }
  if (question && !isOpen(question)) {
    return (
      <p className="text-xs text-muted">
        {question.state}
        {question.answeredBy && ` by ${question.answeredBy}`}
      </p>
    );
  }
  return null;
}

const STATES: Record<string, string> = { allowed: "Approved", denied: "Rejected", expired: "Expired" };

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

/** Formats JSON for reading; shows only `content` where a result has one. */
function pretty(result: string): string {
  if (!/^[[{]/.test(result)) return result;
  try {
    const parsed: unknown = JSON.parse(result);
    const content = (parsed as { content?: unknown }).content;
    return typeof content === "string" ? content : JSON.stringify(parsed, null, 2);
  } catch {
    return result;
  }
}
