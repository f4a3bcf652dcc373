/** Consecutive finished calls in one line: what they did, and how many failed. Its calls follow it while it is open. */
import { ChevronRight } from "lucide-react";
import { durationOf } from "../toolIcons";
import type { CallGroup } from "./callGroups";
import { summaryOfGroup } from "./callGroups";
import { useToggled } from "./toggledRows";

export function CallGroupHeader({ group, isOpen }: { group: CallGroup; isOpen: boolean }) {
  const toggle = useToggled((state) => state.toggle);
  const failed = group.calls.filter((call) => call.status !== "success").length;
  const milliseconds = group.calls.reduce((sum, call) => sum + (call.durationMs ?? 0), 0);
  return (
    <button
      type="button"
      aria-expanded={isOpen}
      onClick={() => toggle(group.id, !isOpen)}
      className="flex w-full items-center gap-2 rounded-lg border border-line bg-surface px-3 py-1 text-left text-sm hover:bg-accent-soft"
    >
      <ChevronRight
        aria-hidden
        className={`size-4 shrink-0 text-muted transition-transform ${isOpen ? "rotate-90" : ""}`}
      />
      <span className="min-w-0 grow truncate text-muted">{summaryOfGroup(group.calls)}</span>
      {failed > 0 && <span className="shrink-0 text-xs text-bad">{failed} failed</span>}
      {milliseconds >= 1_000 && (
        <span className="shrink-0 text-xs text-muted tabular-nums">{durationOf(milliseconds)}</span>
      )}
      <span className="shrink-0 rounded-full bg-sunken px-2 text-xs text-muted tabular-nums">
        {group.calls.length}
        <span className="sr-only"> calls</span>
      </span>
    </button>
  );
}
