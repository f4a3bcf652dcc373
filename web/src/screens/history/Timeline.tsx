/** The timeline of a session: turns, calls, decisions, changes and undo. */
import { Redo2, Undo2 } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { nameOfActor, useNames } from "../../api/names";
import { useMayWrite } from "../../app/workspaces";
import { Button, LINK_BUTTON } from "../../components/Button";
import { Card } from "../../components/Card";
import { Changes, type UndoTarget } from "../../components/Changes";
import { Dialog } from "../../components/Dialog";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { RelativeTime } from "../../components/RelativeTime";
import { Skeleton } from "../../components/Skeleton";
import { UndoDialog, type UndoRequest } from "../../components/UndoDialog";
import { RunBadge } from "../run/RunBadge";
import { CallRow } from "./CallRow";
import { useCalls, useRuns } from "./history";
import { type Group, groupsOf, undoableCalls } from "./timeline";

interface Props {
  workspaceId: string;
  sessionId: string;
}

interface ChangesView {
  target: UndoTarget;
  what: string;
}

export function Timeline({ workspaceId, sessionId }: Props) {
  const runs = useRuns(workspaceId, sessionId);
  const calls = useCalls(workspaceId, sessionId);
  const names = useNames(workspaceId);
  const mayUndo = useMayWrite(workspaceId);
  const [request, setRequest] = useState<UndoRequest | null>(null);
  const [shownChanges, setShownChanges] = useState<ChangesView | null>(null);
  const [done, setDone] = useState<{ callId: string; isRedo: boolean } | null>(null);
  if (runs.isPending || calls.isPending) return <Skeleton what="timeline" />;
  if (runs.error || calls.error) return <ErrorNote error={runs.error ?? calls.error} />;

  const allCalls = calls.data.pages.flatMap((page) => page.items);
  const groups = groupsOf(
    runs.data.pages.flatMap((page) => page.items),
    allCalls,
  );
  const isMore = runs.hasNextPage || calls.hasNextPage;
  const all: UndoTarget = { session_id: sessionId };

  function older() {
    if (runs.hasNextPage) void runs.fetchNextPage();
    if (calls.hasNextPage) void calls.fetchNextPage();
  }

  if (groups.length === 0) return <Empty title="No activity in this session yet" />;
  return (
    <div className="space-y-4">
      <div className="flex flex-wrap gap-2">
        <Button onClick={() => setShownChanges({ target: all, what: "this session" })}>All changes</Button>
        {mayUndo && (
          <Button
            disabled={undoableCalls(allCalls).length === 0 && !isMore}
            onClick={() => setRequest({ target: all, what: "this session" })}
          >
            <Undo2 aria-hidden className="size-4" />
            Undo session
          </Button>
        )}
      </div>
      <div role="status">
        {done && (
          <p className="flex flex-wrap items-center gap-2 rounded-md bg-good-soft px-3 py-2 text-good">
            {done.isRedo ? "Redone." : "Undone."}
            <Button
              small
              onClick={() =>
                setRequest({ target: { calls: [done.callId] }, what: "the last change", isRedo: !done.isRedo })
              }
            >
              {done.isRedo ? <Undo2 aria-hidden className="size-3.5" /> : <Redo2 aria-hidden className="size-3.5" />}
              {done.isRedo ? "Undo" : "Redo"}
            </Button>
          </p>
        )}
      </div>
      {groups.map((group) => (
        <GroupCard
          key={group.key}
          workspaceId={workspaceId}
          group={group}
          who={(call) => nameOfActor(names, call.user_id, call.agent_id)}
          onShowChanges={setShownChanges}
          onUndo={mayUndo ? setRequest : null}
        />
      ))}
      {isMore && (
        <Button wide busy={runs.isFetchingNextPage || calls.isFetchingNextPage} onClick={older}>
          Show older
        </Button>
      )}
      <UndoDialog
        workspaceId={workspaceId}
        sessionId={sessionId}
        request={request}
        onClose={() => setRequest(null)}
        onDone={(callId) => setDone({ callId, isRedo: request?.isRedo ?? false })}
      />
      <Dialog
        title={`Changes: ${shownChanges?.what ?? ""}`}
        isOpen={shownChanges !== null}
        onClose={() => setShownChanges(null)}
        wide
      >
        {shownChanges && <Changes workspaceId={workspaceId} of={shownChanges.target} />}
      </Dialog>
    </div>
  );
}

interface GroupProps {
  workspaceId: string;
  group: Group;
  who: (call: Group["calls"][number]) => string;
  onShowChanges: (shownChanges: ChangesView) => void;
  /** Null for viewers. */
  onUndo: ((request: UndoRequest) => void) | null;
}

function GroupCard({ workspaceId, group, who, onShowChanges, onUndo }: GroupProps) {
  const { run, calls } = group;
  const target: UndoTarget = run === null ? { calls: calls.map((call) => call.id) } : { run_id: run.id };
  const changed = calls.some((call) => call.files > 0);
  return (
    <Card
      label={run === null ? "Calls outside turns" : `Turn: ${run.prompt_preview}`}
      title={
        run === null ? (
          "Outside turns"
        ) : (
          <span className="line-clamp-3 font-medium wrap-anywhere whitespace-pre-wrap">{run.prompt_preview}</span>
        )
      }
      aside={
        <span className="flex flex-wrap items-center gap-2">
          {run !== null && <RunBadge run={run} />}
          {run !== null && (
            <span className="text-xs text-muted">
              <RelativeTime time={run.created_at} />
            </span>
          )}
          {run !== null && (
            <Link href={`/w/${workspaceId}/run/${run.id}`} className={LINK_BUTTON}>
              Details
            </Link>
          )}
          {changed && run !== null && (
            <>
              <Button small onClick={() => onShowChanges({ target, what: "this turn" })}>
                Changes
              </Button>
              {onUndo && (
                <Button
                  small
                  disabled={undoableCalls(calls).length === 0}
                  onClick={() => onUndo({ target, what: "this turn" })}
                >
                  <Undo2 aria-hidden className="size-3.5" />
                  Undo turn
                </Button>
              )}
            </>
          )}
        </span>
      }
    >
      {calls.length === 0 ? (
        <p className="text-muted">No tool calls</p>
      ) : (
        <ol aria-label="Calls" className="-my-2 divide-y divide-line">
          {calls.map((call) => (
            <CallRow
              key={call.id}
              call={call}
              who={who(call)}
              onShowChanges={() => onShowChanges({ target: { calls: [call.id] }, what: call.tool })}
              onUndo={onUndo}
            />
          ))}
        </ol>
      )}
    </Card>
  );
}
