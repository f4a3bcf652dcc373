/** The diff of a call: of one file as it is, of several as a list. */
import { Link } from "wouter";
import { Changes, useChanges } from "../../../components/Changes";
import { Diff } from "../../../components/Diff";
import { escapedLine } from "../../../components/shownText";
import { fileAddress } from "./FileLists";

export function CallChanges({ workspaceId, callId }: { workspaceId: string; callId: string }) {
  const of = { calls: [callId] };
  const found = useChanges(workspaceId, of);
  const [only, second] = found.data?.changes ?? [];
  if (!only?.diff || second) return <Changes workspaceId={workspaceId} of={of} isQuiet />;
  return (
    <>
      <div className="flex items-baseline gap-3 text-xs">
        <Link
          href={fileAddress(workspaceId, only.path)}
          className="min-w-0 truncate text-accent hover:underline"
          title="Open the file"
        >
          {escapedLine(only.path)}
        </Link>
        <span className="text-muted">{only.change}</span>
        <span className="grow" />
        <span className="font-mono text-good">+{only.added ?? 0}</span>
        <span className="font-mono text-bad">-{only.removed ?? 0}</span>
      </div>
      <Diff diff={only.diff} label={escapedLine(only.path)} />
    </>
  );
}
