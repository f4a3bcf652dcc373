/** A call of a tool: open while it runs or waits, shut after; whoever opens or shuts it has the last word. */
import { Ban, CircleCheck, CircleDashed, CircleX, Hand, LoaderCircle, Undo2 } from "lucide-react";
import { useState } from "react";
import { create } from "zustand";
import { ApprovalCard, textOf } from "../../decisions/ApprovalCard";
import { QuestionForm } from "../../decisions/QuestionForm";
import { type Call, type CallStatus, isOpen } from "../../events/conversation";
import { Badge } from "../../parts/Badge";
import { Button } from "../../parts/Button";
import { Code } from "../../parts/Code";
import { UndoDialog } from "../../parts/UndoDialog";
import { durationOf, iconOf, mayChangeFiles, summaryOf } from "./toolIcons";

/** What a person opened or shut. Kept here because rows come and go as they are scrolled to. */
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
  const isAsked = isOpen(approval) || isOpen(question);
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
          {isolationOf(call) && <Badge title="How well the program was held">{isolationOf(call)}</Badge>}
          {call.durationMs !== null && call.durationMs > 0 && (
            <span className="shrink-0 text-xs text-muted tabular-nums">{durationOf(call.durationMs)}</span>
          )}
          <Status status={call.status} />
        </button>
        {isExpanded && <Body workspaceId={workspaceId} sessionId={sessionId} call={call} />}
      </div>
      {isAsked && approval && isOpen(approval) && <ApprovalCard workspaceId={workspaceId} approval={approval} />}
      {isAsked && question && isOpen(question) && (
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
      <Decided call={call} />
      {call.output && <Code text={call.output} label="Output so far" />}
      {result && <Code text={result} label="Result" />}
      {call.metadata.cut === true && (
        <p className="text-xs text-muted">The result was longer; this is its beginning.</p>
      )}
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
        undoing={isUndoing ? { deeds: { calls: [call.id] }, what: `the call ${call.name}` } : null}
        onClose={() => setIsUndoing(false)}
      />
    </div>
  );
}

/** Who decided, or answered, and how. */
function Decided({ call: { approval, question } }: { call: Call }) {
  if (approval && !isOpen(approval)) {
    return (
      <p className="text-xs text-muted">
        {WORDS[approval.state] ?? approval.state}
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

const WORDS: Record<string, string> = { allowed: "Allowed", denied: "Denied", expired: "Nobody decided in time" };

const STATUSES: Record<CallStatus, [string, typeof CircleCheck, string]> = {
  asked: ["about to begin", CircleDashed, "text-muted"],
  waiting: ["waits for you", Hand, "text-warn"],
  running: ["running", LoaderCircle, "text-accent animate-spin"],
  success: ["done", CircleCheck, "text-good"],
  error: ["failed", CircleX, "text-bad"],
  denied: ["denied", Ban, "text-bad"],
};

function Status({ status }: { status: CallStatus }) {
  const [words, Icon, look] = STATUSES[status];
  return (
    <>
      <Icon aria-hidden className={`size-4 shrink-0 ${look}`} />
      <span className="sr-only">{words}</span>
    </>
  );
}

function isolationOf(call: Call): string | null {
  return call.isolation ?? (typeof call.metadata.isolation === "string" ? call.metadata.isolation : null);
}

/** JSON as people read it; what a file or a command said stands out from the rest of it. */
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
