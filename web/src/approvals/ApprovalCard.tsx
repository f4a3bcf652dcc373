/** A call that needs approval: its effects, the rule that requires approval, and the decision buttons. */
import { ShieldQuestion } from "lucide-react";
import { useId, useState } from "react";
import { Badge } from "../components/Badge";
import { Button } from "../components/Button";
import { Code } from "../components/Code";
import { ErrorNote } from "../components/ErrorNote";
import { INPUT } from "../components/Labelled";
import { RelativeTime } from "../components/RelativeTime";
import { escaped, escapedLine } from "../components/shownText";
import type { Approval } from "../events/conversation";
import type { Rule } from "../events/messages";
import { type Decision, useDecide, useFullApproval } from "./approvals";
import { ChangeList } from "./ChangeList";

interface Props {
  workspaceId: string;
  approval: Approval;
}

export function ApprovalCard({ workspaceId, approval }: Props) {
  const isTruncated = approval.changes.some((change) => change.diff_omitted || change.change === "omitted");
  const full = useFullApproval(workspaceId, approval.id, isTruncated);
  const shown = full.data ?? approval;
  const hasDiff = shown.changes.some((change) => change.diff);
  return (
    <section
      aria-label={`Approval of ${approval.tool}`}
      className="overflow-hidden rounded-xl border border-warn/60 bg-surface shadow-card"
    >
      <header className="flex flex-wrap items-center gap-2 border-b border-line bg-warn-soft px-4 py-2">
        <ShieldQuestion aria-hidden className="size-4 text-warn" />
        <h3 className="grow font-semibold">
          {escapedLine(approval.agent ?? "Someone")} wants to use <code>{escapedLine(approval.tool)}</code>
        </h3>
        <span className="text-xs text-muted">
          expires <RelativeTime time={approval.expiresAt} />
        </span>
      </header>
      <div className="space-y-3 p-4">
        {approval.replaces && <p className="text-warn">The effect changed since the first request.</p>}
        <p className="text-sm">
          {approval.reason} <Badge title="Rule">{approval.rule}</Badge>
          {approval.isolation && <Badge title="Isolation">{approval.isolation}</Badge>}
        </p>
        <EffectList approval={shown} />
        <ErrorNote error={full.error} />
        <ChangeList changes={shown.changes} />
        <details open={!hasDiff}>
          <summary className="text-sm text-muted">Arguments</summary>
          <div className="mt-1.5">
            <Code text={textOf(approval.input)} label="Arguments" />
          </div>
        </details>
        <DecisionForm workspaceId={workspaceId} approval={approval} />
      </div>
    </section>
  );
}

/** Files and hosts, one per line. A command keeps its line breaks. */
function EffectList({ approval: { effects } }: { approval: Approval }) {
  const kinds: [string, readonly string[]][] = [
    ["Writes", effects.writes ?? []],
    ["Reads", effects.reads ?? []],
    ["Contacts", effects.contacts ?? []],
    ["Runs", effects.runs ? [effects.runs] : []],
  ];
  const shown = kinds.filter(([, names]) => names.length > 0);
  if (shown.length === 0) return null;
  return (
    <dl className="grid grid-cols-[auto_1fr] gap-x-3 gap-y-1 text-xs">
      {shown.map(([kind, names]) => (
        <div key={kind} className="contents">
          <dt className="text-muted">{kind}</dt>
          <dd className="min-w-0 font-mono">
            <Lines texts={names} isText={kind === "Runs"} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** Renders each text as a block. Text keeps its line breaks; names are one line. */
function Lines({ texts, isText }: { texts: readonly string[]; isText?: boolean }) {
  return texts.map((text) => (
    <code key={text} className="block whitespace-break-spaces wrap-anywhere">
      {isText ? escaped(text) : escapedLine(text)}
    </code>
  ));
}

type OpenForm = "session" | "always" | "reject" | null;

function DecisionForm({ workspaceId, approval }: Props) {
  const [openForm, setOpenForm] = useState<OpenForm>(null);
  const decide = useDecide(workspaceId, approval);
  const busy = decide.isPending;
  // Protected names can become code on a person's machine, so no rule can approve them.
  const isOnceOnly = approval.rule === "protected-name";
  const submit = (decision: Decision) => decide.mutate(decision);
  return (
    <div className="space-y-3">
      <ErrorNote error={decide.error} />
      {openForm === null && (
        <div className="flex flex-wrap gap-2">
          <Button variant="primary" busy={busy} onClick={() => submit({ approved: true })}>
            Approve
          </Button>
          {!isOnceOnly && (
            <>
              <Button disabled={busy} onClick={() => setOpenForm("session")}>
                Approve for this session…
              </Button>
              <Button disabled={busy} onClick={() => setOpenForm("always")}>
                Always approve…
              </Button>
            </>
          )}
          <Button variant="danger" disabled={busy} onClick={() => setOpenForm("reject")}>
            Reject…
          </Button>
        </div>
      )}
      {(openForm === "session" || openForm === "always") && (
        <RulePreview
          rule={approval.offered}
          agent={approval.agent}
          scope={openForm}
          busy={busy}
          onConfirm={() => submit({ approved: true, scope: openForm })}
          onBack={() => setOpenForm(null)}
        />
      )}
      {openForm === "reject" && (
        <RejectForm
          busy={busy}
          onReject={(reason) => submit({ approved: false, reason })}
          onBack={() => setOpenForm(null)}
        />
      )}
    </div>
  );
}

interface RuleProps {
  rule: Rule;
  agent: string | null;
  scope: "session" | "always";
  busy: boolean;
  onConfirm: () => void;
  onBack: () => void;
}

/** Shows the permission rule before the person saves it. */
function RulePreview({ rule, agent, scope, busy, onConfirm, onBack }: RuleProps) {
  return (
    <div className="space-y-2 rounded-md border border-line bg-sunken p-3">
      <p>
        {scope === "session" ? "Until the session ends, " : "From now on, "}
        {agent ?? "the agent"} can do this without approval:
      </p>
      <dl className="grid grid-cols-[auto_1fr] gap-x-3 gap-y-1 text-sm" aria-label="The rule">
        <dt className="text-muted">Tool</dt>
        <dd>
          <code>{rule.tool}</code>
        </dd>
        {rule.paths && (
          <>
            <dt className="text-muted">Paths</dt>
            <dd className="min-w-0">
              <Lines texts={rule.paths} />
            </dd>
          </>
        )}
        {rule.commands && (
          <>
            <dt className="text-muted">Commands</dt>
            <dd className="min-w-0">
              <Lines texts={rule.commands} isText />
            </dd>
          </>
        )}
        {!rule.paths && !rule.commands && (
          <>
            <dt className="text-muted">Paths</dt>
            <dd>anywhere in the workspace</dd>
          </>
        )}
      </dl>
      <div className="flex flex-wrap gap-2">
        <Button variant="primary" busy={busy} onClick={onConfirm}>
          {scope === "session" ? "Approve for this session" : "Always approve"}
        </Button>
        <Button onClick={onBack}>Back</Button>
      </div>
    </div>
  );
}

function RejectForm({
  busy,
  onReject,
  onBack,
}: {
  busy: boolean;
  onReject: (reason: string | null) => void;
  onBack: () => void;
}) {
  const [reason, setReason] = useState("");
  const id = useId();
  return (
    <form
      className="space-y-2 rounded-md border border-line bg-sunken p-3"
      onSubmit={(event) => {
        event.preventDefault();
        onReject(reason.trim() || null);
      }}
    >
      <label htmlFor={id} className="block text-sm font-medium">
        Reason (the agent sees it)
      </label>
      <textarea
        id={id}
        ref={focus}
        rows={2}
        value={reason}
        maxLength={2000}
        onChange={(event) => setReason(event.target.value)}
        className={INPUT}
      />
      <div className="flex flex-wrap gap-2">
        <Button type="submit" variant="danger" busy={busy}>
          Reject
        </Button>
        <Button onClick={onBack}>Back</Button>
      </div>
    </form>
  );
}

/** Focuses the field that the person has just opened. */
function focus(element: HTMLElement | null): void {
  element?.focus();
}

export function textOf(input: unknown): string {
  return typeof input === "string" ? input : JSON.stringify(input, null, 2);
}
