/** Rows of the inbox that lead to a review or a session. */
import { ChevronRight, CircleAlert, FileDiff, type LucideIcon } from "lucide-react";
import { Link } from "wouter";
import type { Schema } from "../api/client";
import { RelativeTime } from "../components/RelativeTime";

const ENDINGS: Record<string, string> = {
  "turn-limit": "stopped at its limit of turns",
  budget: "stopped at its budget",
  deadline: "ran out of time",
  violation: "violated its sandbox",
  failed: "failed",
};

export function ReviewRow({ review, workspace }: { review: Schema["OpenReviewOut"]; workspace: string }) {
  const files = review.files === 1 ? "1 file" : `${review.files} files`;
  return (
    <LinkRow
      href={`/w/${review.workspace_id}/review/session/${review.session_id}`}
      icon={FileDiff}
      tone="text-accent"
      title={`${review.agent_name ?? "Someone"} changed ${files}`}
      detail={review.title}
      workspace={workspace}
      time={review.changed_at}
    />
  );
}

export function FailedRunRow({ run, workspace }: { run: Schema["FailedRunOut"]; workspace: string }) {
  return (
    <LinkRow
      href={`/w/${run.workspace_id}/chat/${run.session_id}`}
      icon={CircleAlert}
      tone="text-bad"
      title={`${run.agent_name ?? "A run"} ${ENDINGS[run.end_reason] ?? "failed"}`}
      detail={run.message ?? run.title}
      workspace={workspace}
      time={run.ended_at}
    />
  );
}

interface Props {
  href: string;
  icon: LucideIcon;
  tone: string;
  title: string;
  detail: string | null;
  workspace: string;
  time: string;
}

function LinkRow({ href, icon: Icon, tone, title, detail, workspace, time }: Props) {
  return (
    <li>
      <Link
        href={href}
        className="flex min-h-14 items-start gap-2 py-2 pr-3 pl-3 -outline-offset-2 hover:bg-accent-soft"
      >
        <Icon aria-hidden className={`mt-0.5 size-4 shrink-0 ${tone}`} />
        <span className="min-w-0 grow">
          <span className="block wrap-anywhere">{title}</span>
          {detail && <span className="block truncate text-xs text-muted">{detail}</span>}
          <span className="block truncate text-xs text-muted">
            {workspace} · <RelativeTime time={time} />
          </span>
        </span>
        <ChevronRight aria-hidden className="mt-0.5 size-4 shrink-0 text-muted" />
      </Link>
    </li>
  );
}
