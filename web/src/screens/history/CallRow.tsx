/** One call of the timeline: tool, decision, changed files, and undo or redo. */
import { Redo2, Undo2 } from "lucide-react";
import { Badge, type Tone } from "../../components/Badge";
import { Button } from "../../components/Button";
import { filesOf } from "../../components/Changes";
import { EXACT, ShownText } from "../../components/Code";
import { RelativeTime } from "../../components/RelativeTime";
import { escapedLine } from "../../components/shownText";
import type { UndoRequest } from "../../components/UndoDialog";
import { type HistoryCall, summaryOf, workOf } from "./timeline";

interface Props {
  call: HistoryCall;
  who: string;
  onShowChanges: () => void;
  /** Null for viewers. */
  onUndo: ((request: UndoRequest) => void) | null;
}

const STATES: Record<HistoryCall["state"], Tone> = {
  running: "accent",
  paused: "warn",
  done: "good",
  denied: "bad",
  unknown: "warn",
};

export function CallRow({ call, who, onShowChanges, onUndo }: Props) {
  const isFailed = call.state === "done" && call.error !== null;
  const about = summaryOf(call);
  const work = workOf(call);
  const named = about === "" ? call.tool : `${call.tool} ${escapedLine(about)}`;
  return (
    <li className="space-y-1 py-2">
      <div className="flex flex-wrap items-center gap-x-2 gap-y-1">
        <Badge tone={isFailed ? "bad" : STATES[call.state]}>{isFailed ? "failed" : stateOf(call)}</Badge>
        <span className={`min-w-0 wrap-anywhere ${call.undone_by === null ? "" : "text-muted line-through"}`}>
          <span className="font-mono font-medium">{call.tool}</span>{" "}
          <span
            className={`font-mono text-xs ${EXACT} ${about.includes("\n") ? "block border-l-2 border-line-strong pl-2" : ""}`}
          >
            <ShownText text={about} />
          </span>
        </span>
        {call.undone_by !== null && <Badge>undone</Badge>}
        <span className="grow" />
        {call.files > 0 && (
          <Button
            small
            variant="quiet"
            aria-label={`${filesOf(call.files)} changed by ${named}`}
            onClick={onShowChanges}
          >
            {filesOf(call.files)}
          </Button>
        )}
        {onUndo && <UndoButton call={call} named={named} onUndo={onUndo} />}
      </div>
      <p className="text-xs text-muted">
        {who}, <RelativeTime time={call.started_at} />
        {work !== null && `, ${durationOf(work)}`}
      </p>
      {call.decision && <Decision decision={call.decision} />}
      {call.error && call.decision?.state !== "rejected" && (
        <p className="text-xs text-bad wrap-anywhere">{call.error.message}</p>
      )}
    </li>
  );
}

/** A person rejects a call; the gate denies it. */
function stateOf(call: HistoryCall): string {
  if (call.state !== "denied") return call.state;
  return call.decision?.state === "rejected" ? "rejected" : "denied";
}

function UndoButton({
  call,
  named,
  onUndo,
}: {
  call: HistoryCall;
  named: string;
  onUndo: NonNullable<Props["onUndo"]>;
}) {
  if (call.files === 0) return null;
  // The undone call has the redo button, so the undo call needs none.
  if (call.tool === "undo") return null;
  const isUndone = call.undone_by !== null;
  const target = { calls: [call.undone_by ?? call.id] };
  return (
    <Button
      small
      aria-label={`${isUndone ? "Redo" : "Undo"} ${named}`}
      onClick={() => onUndo({ target, what: named, isRedo: isUndone })}
    >
      {isUndone ? <Redo2 aria-hidden className="size-3.5" /> : <Undo2 aria-hidden className="size-3.5" />}
      {isUndone ? "Redo" : "Undo"}
    </Button>
  );
}

const DECISIONS: Record<NonNullable<HistoryCall["decision"]>["state"], string> = {
  pending: "pending",
  approved: "approved",
  rejected: "rejected",
  stale: "requested again because files changed",
  answered: "answered",
  expired: "expired",
  cancelled: "cancelled",
};

function Decision({ decision }: { decision: NonNullable<HistoryCall["decision"]> }) {
  const by = decision.decided_by_name === null ? "" : ` by ${decision.decided_by_name}`;
  const scope =
    decision.grant_scope === null || decision.grant_scope === "once" ? "" : ` (${scopeOf(decision.grant_scope)})`;
  return (
    <p className="text-xs wrap-anywhere">
      <span className={decision.state === "rejected" ? "text-bad" : "text-ink"}>
        Approval required by rule <code>{decision.rule}</code>: {DECISIONS[decision.state]}
        {by}
        {scope}
        {decision.rejection_reason && `: “${decision.rejection_reason}”`}
      </span>
    </p>
  );
}

function scopeOf(scope: "session" | "always"): string {
  return scope === "session" ? "for this session" : "always";
}

function durationOf(ms: number): string {
  return ms < 1_000 ? `${ms} ms` : `${(ms / 1_000).toFixed(1)} s`;
}
