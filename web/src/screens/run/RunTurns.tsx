/** The turns of a run from top to bottom, with the time since its beginning at the left. */
import { CircleCheck, CircleX, GitBranch, Hand, LoaderCircle, type LucideIcon } from "lucide-react";
import { Link } from "wouter";
import { filesOf } from "../../components/Changes";
import { cost } from "../../components/money";
import { escaped, escapedLine } from "../../components/shownText";
import { iconOf } from "../chat/toolIcons";
import { summaryOf } from "../history/timeline";
import { RunBadge } from "./RunBadge";
import { duration, type PausedCall, type Run, type RunCall, type Step, type Turn, workedFor } from "./runSteps";

interface Props {
  workspaceId: string;
  sessionId: string;
  /** When the run began. */
  began: string;
  turns: readonly Turn[];
}

export function RunTurns({ workspaceId, sessionId, began, turns }: Props) {
  return (
    <ol aria-label="Timeline" className="space-y-4">
      {turns.map((turn) => (
        <li key={turn.id ?? "loose"} className="relative grid gap-x-4 md:grid-cols-[4rem_1fr]">
          <Since began={began} at={turn.at} />
          <section
            aria-label={turn.number === 0 ? "Other calls" : `Turn ${turn.number}`}
            className="min-w-0 rounded-lg border border-line bg-surface"
          >
            <header className="flex items-start gap-3 px-3 py-2">
              <p className="min-w-0 grow">
                <span className="mr-2 text-xs font-medium text-muted">
                  {turn.number === 0 ? "Other calls" : `Turn ${turn.number}`}
                </span>
                <span className="line-clamp-3 wrap-anywhere whitespace-pre-wrap">{escaped(turn.text)}</span>
              </p>
              {turn.id && (
                <Link
                  href={`/w/${workspaceId}/chat/${sessionId}#${turn.id}`}
                  aria-label={`Turn ${turn.number} in the conversation`}
                  className="shrink-0 text-xs text-accent hover:underline"
                >
                  In the conversation
                </Link>
              )}
            </header>
            {turn.steps.length > 0 && (
              <ol aria-label="Calls" className="divide-y divide-line border-t border-line">
                {turn.steps.map((step) => (
                  <CallStep
                    key={step.call.id}
                    workspaceId={workspaceId}
                    sessionId={sessionId}
                    began={began}
                    step={step}
                  />
                ))}
              </ol>
            )}
          </section>
        </li>
      ))}
    </ol>
  );
}

function Since({ began, at, isInline }: { began: string; at: string; isInline?: boolean }) {
  if (at === "") return <span />;
  const text = `+${duration(Date.parse(at) - Date.parse(began))}`;
  return (
    <time
      dateTime={at}
      title={new Date(at).toLocaleString()}
      className={`text-xs text-muted tabular-nums ${isInline ? "" : "py-2 md:text-right"}`}
    >
      {text}
    </time>
  );
}

interface StepProps {
  workspaceId: string;
  sessionId: string;
  began: string;
  step: Step;
}

function CallStep({ workspaceId, sessionId, began, step }: StepProps) {
  const { call, pauses, children } = step;
  const Icon = iconOf(call.tool);
  const [outcome, OutcomeIcon, colour] = outcomeOf(call);
  const worked = workedFor(step);
  return (
    <li className="space-y-1 px-3 py-2">
      <div className="flex flex-wrap items-center gap-x-2 gap-y-1 text-xs">
        <Icon aria-hidden className="size-4 shrink-0 text-muted" />
        <Link
          href={`/w/${workspaceId}/chat/${sessionId}#${call.id}`}
          className="min-w-0 grow basis-48 truncate font-mono hover:underline"
        >
          <span className="font-medium">{call.tool}</span>{" "}
          <span className="text-muted">{escapedLine(summaryOf(call)).slice(0, 200)}</span>
        </Link>
        {call.files > 0 && <span className="text-muted">{filesOf(call.files)} changed</span>}
        <Since began={began} at={call.started_at} isInline />
        {worked !== null && <span className="w-16 text-right text-muted tabular-nums">{duration(worked)}</span>}
        <span className={`inline-flex min-w-20 items-center gap-1 font-medium ${colour}`}>
          <OutcomeIcon aria-hidden className="size-4 shrink-0" />
          {outcome}
        </span>
      </div>
      {pauses.map((pause) => (
        <Decision key={pause.id} workspaceId={workspaceId} pause={pause} />
      ))}
      {call.error && !pauses.some(({ state }) => state === "rejected") && (
        <p className="pl-6 text-xs text-bad wrap-anywhere">{escaped(call.error.message)}</p>
      )}
      {children.map((child) => (
        <Child key={child.id} workspaceId={workspaceId} child={child} />
      ))}
    </li>
  );
}

function outcomeOf(call: RunCall): [string, LucideIcon, string] {
  if (call.state === "running") return ["running", LoaderCircle, "text-accent"];
  if (call.state === "paused") return ["waits", Hand, "text-warn"];
  if (call.state === "unknown") return ["unknown", CircleX, "text-warn"];
  if (call.state === "denied")
    return [call.decision?.state === "rejected" ? "rejected" : "denied", CircleX, "text-bad"];
  return call.error === null ? ["done", CircleCheck, "text-good"] : ["failed", CircleX, "text-bad"];
}

const STATES: Record<PausedCall["state"], string> = {
  pending: "waits",
  approved: "approved",
  rejected: "rejected",
  stale: "asked again, because files changed",
  answered: "answered",
  expired: "expired",
  cancelled: "cancelled",
};

/** Who decided or answered, when, and how long that took. */
function Decision({ workspaceId, pause }: { workspaceId: string; pause: PausedCall }) {
  const about = pause.kind === "question" ? "Question" : `Approval required by rule ${pause.rule}`;
  const reason = pause.kind === "approval" ? pause.rejection_reason : null;
  return (
    <p className="flex flex-wrap items-center gap-x-1 pl-6 text-xs">
      <span className="text-muted wrap-anywhere">{escapedLine(about)}:</span>
      <span className={TONES[pause.state] ?? ""}>
        {STATES[pause.state]}
        {pause.decided_by_name && ` by ${escapedLine(pause.decided_by_name)}`}
        {pause.decided_at && (
          <>
            {" at "}
            <time dateTime={pause.decided_at} title={new Date(pause.decided_at).toLocaleString()}>
              {new Date(pause.decided_at).toLocaleTimeString()}
            </time>
            , after {duration(Date.parse(pause.decided_at) - Date.parse(pause.created_at))}
          </>
        )}
        {reason && `: “${escaped(reason)}”`}
      </span>
      {pause.state === "pending" && (
        <Link href={`/w/${workspaceId}/approvals/${pause.id}`} className="text-accent underline underline-offset-2">
          Open
        </Link>
      )}
    </p>
  );
}

const TONES: Partial<Record<PausedCall["state"], string>> = {
  pending: "text-warn",
  approved: "text-good",
  rejected: "text-bad",
};

function Child({ workspaceId, child }: { workspaceId: string; child: Run }) {
  return (
    <p className="flex flex-wrap items-center gap-2 pl-6 text-xs">
      <GitBranch aria-hidden className="size-4 shrink-0 text-muted" />
      <Link href={`/w/${workspaceId}/run/${child.id}`} className="min-w-0 truncate text-accent hover:underline">
        Child run: {escapedLine(child.prompt_preview)}
      </Link>
      <RunBadge run={child} />
      <span className="text-muted">
        {duration(child.active_ms)}
        {child.cost !== null && `, ${cost(Number(child.cost), child.unpriced_turns)}`}
      </span>
    </p>
  );
}
