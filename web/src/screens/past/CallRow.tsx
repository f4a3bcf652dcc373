/** One call of the timeline: what it was, what was decided, what it changed, and the way back. */
import { Redo2, Undo2 } from "lucide-react";
import { Ago } from "../../parts/Ago";
import { Badge, type Tone } from "../../parts/Badge";
import { Button } from "../../parts/Button";
import { filesOf } from "../../parts/Changes";
import type { Undoing } from "../../parts/UndoDialog";
import { aboutOf, type PastCall } from "./timeline";

interface Props {
  call: PastCall;
  who: string;
  onLook: () => void;
  onUndo: (undoing: Undoing) => void;
}

const STATES: Record<PastCall["state"], Tone> = {
  running: "accent",
  waiting: "warn",
  done: "good",
  refused: "bad",
  unknown: "warn",
};

export function CallRow({ call, who, onLook, onUndo }: Props) {
  const isFailed = call.state === "done" && call.error !== null;
  const about = aboutOf(call);
  const named = about === "" ? call.tool : `${call.tool} ${about}`;
  return (
    <li className="space-y-1 py-2">
      <div className="flex flex-wrap items-center gap-x-2 gap-y-1">
        <Badge tone={isFailed ? "bad" : STATES[call.state]}>{isFailed ? "failed" : call.state}</Badge>
        <span className={`min-w-0 wrap-anywhere ${call.undone_by === null ? "" : "text-muted line-through"}`}>
          <span className="font-mono font-medium">{call.tool}</span> <span className="font-mono text-xs">{about}</span>
        </span>
        {call.undone_by !== null && <Badge>undone</Badge>}
        <span className="grow" />
        {call.files > 0 && (
          <Button small look="quiet" aria-label={`${filesOf(call.files)} that ${named} changed`} onClick={onLook}>
            {filesOf(call.files)}
          </Button>
        )}
        <WayBack call={call} named={named} onUndo={onUndo} />
      </div>
      <p className="text-xs text-muted">
        {who}, <Ago time={call.started_at} />
        {call.ended_at !== null && `, ${lasted(call.started_at, call.ended_at)}`}
      </p>
      {call.decision && <Decision decision={call.decision} />}
      {call.error && call.decision?.state !== "denied" && (
        <p className="text-xs text-bad wrap-anywhere">{call.error.message}</p>
      )}
    </li>
  );
}

function WayBack({ call, named, onUndo }: { call: PastCall; named: string; onUndo: Props["onUndo"] }) {
  if (call.files === 0) return null;
  // An undo is taken back by the call that it took back: one way is enough.
  if (call.tool === "undo") return null;
  const isUndone = call.undone_by !== null;
  const deeds = { calls: [call.undone_by ?? call.id] };
  return (
    <Button
      small
      aria-label={`${isUndone ? "Redo" : "Undo"} ${named}`}
      onClick={() => onUndo({ deeds, what: named, isRedo: isUndone })}
    >
      {isUndone ? <Redo2 aria-hidden className="size-3.5" /> : <Undo2 aria-hidden className="size-3.5" />}
      {isUndone ? "Redo" : "Undo"}
    </Button>
  );
}

const DECISIONS: Record<NonNullable<PastCall["decision"]>["state"], string> = {
  open: "waits for a decision",
  allowed: "allowed",
  denied: "denied",
  expired: "not decided in time",
  stale: "asked again, because files had changed",
  withdrawn: "withdrawn",
};

function Decision({ decision }: { decision: NonNullable<PastCall["decision"]> }) {
  const by = decision.decided_by_name === null ? "" : ` by ${decision.decided_by_name}`;
  const scope = decision.scope === null || decision.scope === "once" ? "" : ` (${scopeOf(decision.scope)})`;
  return (
    <p className="text-xs wrap-anywhere">
      <span className={decision.state === "denied" ? "text-bad" : "text-ink"}>
        Asked by the rule <code>{decision.rule}</code>: {DECISIONS[decision.state]}
        {by}
        {scope}
        {decision.denial && `: “${decision.denial}”`}
      </span>
    </p>
  );
}

function scopeOf(scope: "session" | "always"): string {
  return scope === "session" ? "for the session" : "for good";
}

function lasted(start: string, end: string): string {
  const ms = Date.parse(end) - Date.parse(start);
  return ms < 1_000 ? `${Math.max(0, ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;
}
