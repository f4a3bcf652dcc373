/** Leads to the inbox, with the number of calls that wait anywhere. */
import { Inbox } from "lucide-react";
import { Link } from "wouter";
import { useWaitingCount } from "../inbox/inbox";

export function InboxLink({ isWide }: { isWide?: boolean }) {
  const waiting = useWaitingCount();
  return (
    <Link
      href="/inbox"
      title="Inbox of all workspaces"
      className={`relative inline-flex h-9 min-w-9 items-center gap-2 rounded-md px-3 text-muted hover:bg-accent-soft hover:text-ink ${isWide ? "md:text-sm" : ""}`}
    >
      <Inbox aria-hidden className={isWide ? "size-5 md:size-4" : "size-5"} />
      <span className={isWide ? "sr-only grow md:not-sr-only" : "sr-only"}>Inbox</span>
      {waiting > 0 && (
        <span
          className={`rounded-full bg-warn px-2 text-2xs leading-4 font-semibold text-surface ${isWide ? "absolute top-0 left-5 md:static" : "absolute top-0 left-5"}`}
        >
          {waiting}
          <span className="sr-only"> waiting</span>
        </span>
      )}
    </Link>
  );
}
