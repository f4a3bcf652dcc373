/** The files that calls, a run or a session changed, with a diff of each. */
import { useQuery } from "@tanstack/react-query";
import type { Schema } from "../api/client";
import { callTool } from "../api/tools";
import { Badge, type Tone } from "./Badge";
import { Diff } from "./Diff";
import { Empty } from "./Empty";
import { ErrorNote } from "./ErrorNote";
import { Loading } from "./Loading";
import { escapedLine, grouped } from "./shownText";

/** What to undo or to show the changes of: exactly one of these. */
export type UndoTarget = { calls: string[] } | { run_id: string } | { session_id: string };

type Change = Schema["ChangedFile"]["change"];

const TONES: Record<Change, Tone> = { created: "good", modified: "accent", moved: "plain", deleted: "bad" };
const MAX_FILES = 500;

interface Props {
  workspaceId: string;
  of: UndoTarget;
  /** Show nothing, instead of a notice, if no file changed. */
  isQuiet?: boolean;
}

export function useChanges(workspaceId: string, of: UndoTarget) {
  return useQuery({
    queryKey: ["files", workspaceId, "changes", of],
    queryFn: () => callTool(workspaceId, "changes", { ...of, limit: MAX_FILES }),
  });
}

export function Changes({ workspaceId, of, isQuiet }: Props) {
  const found = useChanges(workspaceId, of);
  if (found.isPending) return <Loading what="changes" />;
  if (found.error) return <ErrorNote error={found.error} />;
  const { changes, total } = found.data;
  if (total === 0) return isQuiet ? null : <Empty title="No files changed" />;
  return (
    <div className="space-y-2">
      <p className="text-muted">
        {filesOf(total)} changed, +{sumOf(changes, "added")} -{sumOf(changes, "removed")}.
        {total > changes.length && ` Showing the first ${changes.length}.`}
      </p>
      <ul aria-label="Changed files" className="space-y-2">
        {changes.map((one) => (
          <li key={one.file_id} className="rounded-md border border-line bg-surface">
            <ChangedFile change={one} isOpen={changes.length === 1} />
          </li>
        ))}
      </ul>
    </div>
  );
}

function ChangedFile({ change, isOpen }: { change: Schema["ChangedFile"]; isOpen: boolean }) {
  const head = (
    <span className="inline-flex w-[calc(100%-1.25rem)] flex-wrap items-center gap-2 align-middle">
      <ChangeBadge change={change.change} />
      <span className="min-w-0 wrap-anywhere">{pathOf(change)}</span>
      <span className="grow" />
      <Counts added={change.added} removed={change.removed} />
    </span>
  );
  if (!change.diff) return <div className="px-3 py-2">{head}</div>;
  return (
    <details open={isOpen}>
      <summary className="rounded-md px-3 py-2 hover:bg-accent-soft">{head}</summary>
      <div className="p-2 pt-0">
        <Diff diff={change.diff} label={escapedLine(change.path)} />
      </div>
    </details>
  );
}

function Counts({ added, removed }: { added?: number | null | undefined; removed?: number | null | undefined }) {
  if (added == null || removed == null) return null;
  return (
    <span className="font-mono text-xs">
      <span className="text-good">
        <span className="sr-only">added lines:</span>+{added}
      </span>{" "}
      <span className="text-bad">
        <span className="sr-only">removed lines:</span>-{removed}
      </span>
    </span>
  );
}

export function ChangeBadge({ change }: { change: Change }) {
  return <Badge tone={TONES[change]}>{change}</Badge>;
}

export function pathOf(change: { path: string; from_path: string | null }): string {
  return escapedLine(change.from_path === null ? change.path : `${change.from_path} → ${change.path}`);
}

function sumOf(changes: readonly Schema["ChangedFile"][], what: "added" | "removed"): string {
  return grouped(changes.reduce((all, change) => all + (change[what] ?? 0), 0));
}

export function filesOf(count: number): string {
  return count === 1 ? "1 file" : `${count.toLocaleString()} files`;
}
