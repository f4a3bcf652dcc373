/** A call that needs approval: its effects, the rule that requires approval, and the decision buttons. */
import { ShieldQuestion } from "lucide-react";
import { lazy, type ReactNode, Suspense, useId, useState } from "react";
import { Link } from "wouter";
import { useMayWrite } from "../app/workspaces";
import { Badge } from "../components/Badge";
import { Button } from "../components/Button";
import { ArgumentList, EXACT, ShownText } from "../components/Code";
import { ErrorNote } from "../components/ErrorNote";
import { INPUT } from "../components/Labelled";
import { Loading } from "../components/Loading";
import { RelativeTime } from "../components/RelativeTime";
import { escapedLine } from "../components/shownText";
import type { Approval } from "../events/conversation";
import { shownAccess } from "./access";
import { ChangeList } from "./ChangeList";
import { type Decision, type EditedCall, mayBeCut, useDecide, useFullPause } from "./pausedCalls";

const RuleEditor = lazy(() => import("./RuleEditor"));

interface Props {
  workspaceId: string;
  approval: Approval;
}

interface CardProps extends Props {
  /** Show no buttons, as to viewers. */
  isReadOnly?: boolean;
}

export function ApprovalCard({ workspaceId, approval, isReadOnly = false }: CardProps) {
  const mayDecide = useMayWrite(workspaceId) && !isReadOnly;
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
        {approval.changes.length > 0 && (
          <Link href={`/w/${workspaceId}/review/approval/${approval.id}`} className="text-xs text-accent underline">
            Open as a review
          </Link>
        )}
        <span className="text-xs text-muted">
          expires <RelativeTime time={approval.expiresAt} />
        </span>
      </header>
      <div className="space-y-3 p-4">
        <WholeApproval workspaceId={workspaceId} approval={approval} />
        {mayDecide ? (
          <DecisionForm workspaceId={workspaceId} approval={approval} />
        ) : (
          <p className="text-sm text-muted">A member or an owner decides.</p>
        )}
      </div>
    </section>
  );
}

/** All that a person decides about: why it is asked, and each change with its lines, also where an event cuts them. */
export function WholeApproval({ workspaceId, approval }: Props) {
  const isTruncated = mayBeCut(approval);
  const full = useFullPause(workspaceId, approval.id, isTruncated);
  const shown = full.data?.kind === "approval" ? full.data : approval;
  return (
    <ApprovalFacts approval={shown}>
      {isTruncated && full.isPending && <Loading what="all changes" />}
      <ErrorNote error={full.error} />
      <ChangeList changes={shown.changes} />
    </ApprovalFacts>
  );
}

/** Why the call needs approval, and what it would do; its changes are shown in between. */
export function ApprovalFacts({ approval, children }: { approval: Approval; children?: ReactNode }) {
  return (
    <>
      {approval.replaces && <p className="text-warn">The effect changed since the first request.</p>}
      <p className="text-sm wrap-anywhere">
        {escapedLine(approval.reason)} <Badge title="Rule">{approval.rule}</Badge>
        {approval.isolation && <Badge title="Isolation">{approval.isolation}</Badge>}
      </p>
      <EffectList approval={approval} />
      {children}
      <details open={!approval.changes.some((change) => change.diff)}>
        <summary className="text-sm text-muted">Arguments</summary>
        <div className="mt-2">
          <ArgumentList given={approval.input} label="Arguments" />
        </div>
      </details>
    </>
  );
}

/** Files and hosts, one per line. A command keeps its line breaks. */
function EffectList({ approval: { effects } }: { approval: Approval }) {
  const kinds: [string, readonly string[]][] = [
    ["Writes", effects.writes ?? []],
    ["Reads", effects.reads ?? []],
    ["Contacts", effects.contacts ?? []],
    ["Has access to", shownAccess(effects.access)],
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
    <code key={text} className={`block ${EXACT} ${isText ? "border-l-2 border-line-strong pl-2" : ""}`}>
      {isText ? <ShownText text={text} /> : escapedLine(text)}
    </code>
  ));
}

type OpenForm = "session" | "always" | "reject" | null;

interface DecisionProps extends Props {
  /** What the person made of the call. It is approved only once. */
  edited?: EditedCall | null;
}

export function DecisionForm({ workspaceId, approval, edited = null }: DecisionProps) {
  const [openForm, setOpenForm] = useState<OpenForm>(null);
  const decide = useDecide(workspaceId, approval);
  const busy = decide.isPending;
  // Protected names can become code on a person's machine, and links lead out of the workspace: no rule can approve them.
  const isOnceOnly = ["protected-name", "outward-link"].includes(approval.rule) || edited !== null;
  const submit = (decision: Decision) => decide.mutate(decision);
  return (
    <div className="space-y-3">
      <ErrorNote error={decide.error} />
      {openForm === null && (
        <div className="flex flex-wrap gap-2">
          <Button variant="primary" busy={busy} onClick={() => submit({ approved: true, edited })}>
            {edited === null ? "Approve" : "Approve with your edits"}
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
        <Suspense fallback={<Loading what="the rule" />}>
          <RuleEditor
            approval={approval}
            scope={openForm}
            busy={busy}
            onConfirm={(rule) => submit({ approved: true, scope: openForm, rule })}
            onBack={() => setOpenForm(null)}
          />
        </Suspense>
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
