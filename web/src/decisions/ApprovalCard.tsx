/** A call that waits for a person: what it would do, which rule asks, and the ways to decide. */
import { ShieldQuestion } from "lucide-react";
import { useId, useState } from "react";
import type { Approval } from "../events/conversation";
import type { Rule } from "../events/wire";
import { Ago } from "../parts/Ago";
import { Badge } from "../parts/Badge";
import { Button } from "../parts/Button";
import { Code } from "../parts/Code";
import { ErrorNote } from "../parts/ErrorNote";
import { INPUT } from "../parts/Labelled";
import { useDecide, useWholeApproval, type Verdict } from "./approvals";
import { ChangeList } from "./ChangeList";

interface Props {
  workspaceId: string;
  approval: Approval;
}

export function ApprovalCard({ workspaceId, approval }: Props) {
  const isCut = approval.changes.some((change) => change.cut || change.change === "more");
  const whole = useWholeApproval(workspaceId, approval.id, isCut);
  const shown = whole.data ?? approval;
  const hasDiff = shown.changes.some((change) => change.diff);
  return (
    <section
      aria-label={`Approval of ${approval.tool}`}
      className="overflow-hidden rounded-xl border border-warn/60 bg-surface shadow-card"
    >
      <header className="flex flex-wrap items-center gap-2 border-b border-line bg-warn-soft px-4 py-2">
        <ShieldQuestion aria-hidden className="size-4 text-warn" />
        <h3 className="grow font-semibold">
          {approval.agent ?? "Someone"} asks to <code>{approval.tool}</code>
        </h3>
        <span className="text-xs text-muted">
          expires <Ago time={approval.expiresAt} />
        </span>
      </header>
      <div className="space-y-3 p-4">
        {approval.replaces && <p className="text-warn">What it would do has changed since it was first asked.</p>}
        <p className="text-sm">
          {approval.reason} <Badge title="The rule that asks">{approval.rule}</Badge>
          {approval.isolation && <Badge title="How well the program is held">{approval.isolation}</Badge>}
        </p>
        <Touched approval={shown} />
        <ErrorNote error={whole.error} />
        <ChangeList changes={shown.changes} />
        <details open={!hasDiff}>
          <summary className="text-sm text-muted">Arguments</summary>
          <div className="mt-1.5">
            <Code text={textOf(approval.input)} label="Arguments" />
          </div>
        </details>
        <Deciding workspaceId={workspaceId} approval={approval} />
      </div>
    </section>
  );
}

/** Files and hosts, one line each kind. */
function Touched({ approval: { effects } }: { approval: Approval }) {
  const kinds: [string, readonly string[]][] = [
    ["Writes", effects.writes ?? []],
    ["Reads", effects.reads ?? []],
    ["Contacts", effects.contacts ?? []],
    ["Runs", effects.runs ? [effects.runs] : []],
  ];
  const said = kinds.filter(([, names]) => names.length > 0);
  if (said.length === 0) return null;
  return (
    <dl className="grid grid-cols-[auto_1fr] gap-x-3 gap-y-1 text-xs">
      {said.map(([kind, names]) => (
        <div key={kind} className="contents">
          <dt className="text-muted">{kind}</dt>
          <dd className="min-w-0 font-mono wrap-anywhere">{names.join("  ")}</dd>
        </div>
      ))}
    </dl>
  );
}

type Asking = "session" | "always" | "deny" | null;

function Deciding({ workspaceId, approval }: Props) {
  const [asking, setAsking] = useState<Asking>(null);
  const decide = useDecide(workspaceId, approval);
  const busy = decide.isPending;
  const say = (verdict: Verdict) => decide.mutate(verdict);
  return (
    <div className="space-y-3">
      <ErrorNote error={decide.error} />
      {asking === null && (
        <div className="flex flex-wrap gap-2">
          <Button look="primary" busy={busy} onClick={() => say({ approved: true })}>
            Allow once
          </Button>
          <Button disabled={busy} onClick={() => setAsking("session")}>
            Allow in this session…
          </Button>
          <Button disabled={busy} onClick={() => setAsking("always")}>
            Always allow…
          </Button>
          <Button look="danger" disabled={busy} onClick={() => setAsking("deny")}>
            Deny…
          </Button>
        </div>
      )}
      {(asking === "session" || asking === "always") && (
        <RuleFirst
          rule={approval.offered}
          agent={approval.agent}
          scope={asking}
          busy={busy}
          onAgree={() => say({ approved: true, scope: asking })}
          onBack={() => setAsking(null)}
        />
      )}
      {asking === "deny" && (
        <DenyForm busy={busy} onDeny={(reason) => say({ approved: false, reason })} onBack={() => setAsking(null)} />
      )}
    </div>
  );
}

interface RuleProps {
  rule: Rule;
  agent: string | null;
  scope: "session" | "always";
  busy: boolean;
  onAgree: () => void;
  onBack: () => void;
}

/** What is allowed beyond this call is read before it is agreed to. */
function RuleFirst({ rule, agent, scope, busy, onAgree, onBack }: RuleProps) {
  return (
    <div className="space-y-2 rounded-md border border-line bg-sunken p-3">
      <p>
        {scope === "session" ? "Until the session ends, " : "From now on, "}
        {agent ?? "the agent"} may do this without asking:
      </p>
      <dl className="grid grid-cols-[auto_1fr] gap-x-3 gap-y-1 text-sm" aria-label="The rule">
        <dt className="text-muted">Tool</dt>
        <dd>
          <code>{rule.tool}</code>
        </dd>
        {rule.paths && (
          <>
            <dt className="text-muted">Paths</dt>
            <dd className="wrap-anywhere">
              <code>{rule.paths.join("  ")}</code>
            </dd>
          </>
        )}
        {rule.commands && (
          <>
            <dt className="text-muted">Commands</dt>
            <dd className="wrap-anywhere">
              <code>{rule.commands.join("\n")}</code>
            </dd>
          </>
        )}
        {!rule.paths && !rule.commands && (
          <>
            <dt className="text-muted">Where</dt>
            <dd>anywhere in the workspace</dd>
          </>
        )}
      </dl>
      <div className="flex flex-wrap gap-2">
        <Button look="primary" busy={busy} onClick={onAgree}>
          {scope === "session" ? "Allow in this session" : "Always allow"}
        </Button>
        <Button onClick={onBack}>Back</Button>
      </div>
    </div>
  );
}

function DenyForm({
  busy,
  onDeny,
  onBack,
}: {
  busy: boolean;
  onDeny: (reason: string | null) => void;
  onBack: () => void;
}) {
  const [reason, setReason] = useState("");
  const id = useId();
  return (
    <form
      className="space-y-2 rounded-md border border-line bg-sunken p-3"
      onSubmit={(event) => {
        event.preventDefault();
        onDeny(reason.trim() || null);
      }}
    >
      <label htmlFor={id} className="block text-sm font-medium">
        Why not? The agent reads it and may try another way.
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
        <Button type="submit" look="danger" busy={busy}>
          Deny
        </Button>
        <Button onClick={onBack}>Back</Button>
      </div>
    </form>
  );
}

/** It was just asked for, so whoever asked goes on there. */
function focus(element: HTMLElement | null): void {
  element?.focus();
}

export function textOf(input: unknown): string {
  return typeof input === "string" ? input : JSON.stringify(input, null, 2);
}
