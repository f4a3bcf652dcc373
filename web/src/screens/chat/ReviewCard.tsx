/** How much the session's agent changed since the last review, and the way to the review. */
import { FileDiff } from "lucide-react";
import { Link } from "wouter";
import { filesOf } from "../../components/Changes";
import { grouped } from "../../components/shownText";
import { useSessionReview } from "../review/reviewSources";

interface Props {
  workspaceId: string;
  sessionId: string;
}

/** One line, so that it never stands in the way of the next message. */
export function ReviewCard({ workspaceId, sessionId }: Props) {
  const { data } = useSessionReview(workspaceId, sessionId);
  if (!data || data.total === 0) return null;
  return (
    <section
      aria-label="Review"
      className="mx-auto flex w-full max-w-3xl shrink-0 flex-wrap items-center gap-x-3 gap-y-1 border-t border-line px-4 py-2 text-sm"
    >
      <FileDiff aria-hidden className="size-4 text-accent" />
      <span className="min-w-0 grow">
        {filesOf(data.total)} changed{" "}
        <span className="font-mono text-xs">
          <span className="text-good">+{grouped(data.added)}</span>{" "}
          <span className="text-bad">−{grouped(data.removed)}</span>
        </span>
      </span>
      <Link
        href={`/w/${workspaceId}/review/session/${sessionId}`}
        className="inline-flex min-h-7 items-center rounded-md border border-line-control bg-surface px-3 text-xs font-medium hover:bg-accent-soft"
      >
        Review changes
      </Link>
    </section>
  );
}
