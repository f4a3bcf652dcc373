/** One call that waits: a line that opens as the card on which a person decides. */
import { ChevronRight, MessageCircleQuestion, ShieldQuestion } from "lucide-react";
import { useId, useState } from "react";
import { Link } from "wouter";
import { ApprovalCard } from "../approvals/ApprovalCard";
import { isPlanReview, planNamed } from "../approvals/items";
import { QuestionForm } from "../approvals/QuestionForm";
import { Card } from "../components/Card";
import { RelativeTime } from "../components/RelativeTime";
import type { Waiting } from "./inbox";
import { summaryOf } from "./summary";

interface Props {
  call: Waiting;
  /** Why it waits although it was decided with others. */
  notice?: string | null;
  isSelected?: boolean;
  /** Only approvals can be selected. */
  onToggle?: () => void;
}

export function WaitingRow({ call, notice = null, isSelected = false, onToggle }: Props) {
  const [isOpen, setIsOpen] = useState(false);
  const id = useId();
  const { pause, workspace, sessionId } = call;
  const { title, detail } = summaryOf(pause);
  const Icon = pause.kind === "approval" ? ShieldQuestion : MessageCircleQuestion;
  const place = `/w/${workspace.workspace_id}/${sessionId ? `chat/${sessionId}` : `approvals/${pause.id}`}`;
  return (
    <li className={isSelected ? "bg-accent-soft" : ""}>
      <div className="flex items-start hover:bg-accent-soft">
        {onToggle && (
          <label className="flex min-h-11 min-w-11 shrink-0 items-center justify-center pt-2">
            <span className="sr-only">
              Select {title} {detail}
            </span>
            <input type="checkbox" checked={isSelected} onChange={onToggle} className="size-4" />
          </label>
        )}
        <button
          type="button"
          aria-expanded={isOpen}
          aria-controls={id}
          onClick={() => setIsOpen(!isOpen)}
          className={`flex min-h-14 min-w-0 grow items-start gap-2 py-2 pr-3 text-left -outline-offset-2 ${onToggle ? "" : "pl-3"}`}
        >
          <Icon
            aria-hidden
            className={`mt-0.5 size-4 shrink-0 ${pause.kind === "approval" ? "text-warn" : "text-accent"}`}
          />
          <span className="min-w-0 grow">
            <span className="block wrap-anywhere">{title}</span>
            {detail && <span className="block truncate font-mono text-xs text-muted">{detail}</span>}
            <span className="block truncate text-xs text-muted">
              {workspace.name} · <RelativeTime time={call.createdAt} />
            </span>
          </span>
          <ChevronRight
            aria-hidden
            className={`mt-0.5 size-4 shrink-0 text-muted transition-transform ${isOpen ? "rotate-90" : ""}`}
          />
        </button>
      </div>
      {notice !== null && (
        <p role="alert" className="px-3 pb-2 text-sm text-bad first-letter:uppercase">
          {notice}
        </p>
      )}
      <div id={id} hidden={!isOpen} className="space-y-2 px-3 pb-3">
        {isOpen && (
          <>
            <Details call={call} />
            <Link href={place} className="inline-block text-sm text-accent underline underline-offset-2">
              {sessionId ? "Open session" : "Open in its workspace"}
            </Link>
          </>
        )}
      </div>
    </li>
  );
}

function Details({ call: { pause, workspace } }: { call: Waiting }) {
  if (pause.kind === "approval") return <ApprovalCard workspaceId={workspace.workspace_id} approval={pause} />;
  if (isPlanReview(pause.items) && planNamed(pause.items, null) === null)
    return <Card label="Plan review">A plan needs your review. Open the session to read it.</Card>;
  return <QuestionForm workspaceId={workspace.workspace_id} pauseId={pause.id} items={pause.items} />;
}
