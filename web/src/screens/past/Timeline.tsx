/** A session as it went: its turns with their calls, what was decided, what changed, and the way back. */
import { Redo2, Undo2 } from "lucide-react";
import { useState } from "react";
import { nameOfActor, useNames } from "../../api/names";
import { Ago } from "../../parts/Ago";
import { Badge, type Tone } from "../../parts/Badge";
import { Button } from "../../parts/Button";
import { Card } from "../../parts/Card";
import { Changes, type Deeds } from "../../parts/Changes";
import { Dialog } from "../../parts/Dialog";
import { Empty } from "../../parts/Empty";
import { ErrorNote } from "../../parts/ErrorNote";
import { Loading } from "../../parts/Loading";
import { UndoDialog, type Undoing } from "../../parts/UndoDialog";
import { CallRow } from "./CallRow";
import { useCalls, useRuns } from "./past";
import { type Group, groupsOf, type Run, standing } from "./timeline";

interface Props {
  workspaceId: string;
  sessionId: string;
}

interface Looking {
  deeds: Deeds;
  what: string;
}

export function Timeline({ workspaceId, sessionId }: Props) {
  const runs = useRuns(workspaceId, sessionId);
  const calls = useCalls(workspaceId, sessionId);
  const names = useNames(workspaceId);
  const [undoing, setUndoing] = useState<Undoing | null>(null);
  const [looking, setLooking] = useState<Looking | null>(null);
  const [done, setDone] = useState<{ callId: string; isRedo: boolean } | null>(null);
  if (runs.isPending || calls.isPending) return <Loading what="the timeline" />;
  if (runs.error || calls.error) return <ErrorNote error={runs.error ?? calls.error} />;

  const allCalls = calls.data.pages.flatMap((page) => page.items);
  const groups = groupsOf(
    runs.data.pages.flatMap((page) => page.items),
    allCalls,
  );
  const isMore = runs.hasNextPage || calls.hasNextPage;
  const all: Deeds = { session_id: sessionId };

  function older() {
    if (runs.hasNextPage) void runs.fetchNextPage();
    if (calls.hasNextPage) void calls.fetchNextPage();
  }

  if (groups.length === 0) return <Empty title="Nothing has happened in this session yet" />;
  return (
    <div className="space-y-4">
      <div className="flex flex-wrap gap-2">
        <Button onClick={() => setLooking({ deeds: all, what: "this session" })}>What changed in total</Button>
        <Button
          disabled={standing(allCalls).length === 0 && !isMore}
          onClick={() => setUndoing({ deeds: all, what: "the whole session" })}
        >
          <Undo2 aria-hidden className="size-4" />
          Undo all
        </Button>
      </div>
      <div role="status">
        {done && (
          <p className="flex flex-wrap items-center gap-2 rounded-md bg-good-soft px-3 py-2 text-good">
            {done.isRedo ? "It is done again." : "It is undone."}
            <Button
              small
              onClick={() =>
                setUndoing({ deeds: { calls: [done.callId] }, what: "what was just done", isRedo: !done.isRedo })
              }
            >
              {done.isRedo ? <Undo2 aria-hidden className="size-3.5" /> : <Redo2 aria-hidden className="size-3.5" />}
              {done.isRedo ? "Undo it" : "Redo it"}
            </Button>
          </p>
        )}
      </div>
      {groups.map((group) => (
        <GroupCard
          key={group.key}
          group={group}
          who={(call) => nameOfActor(names, call.user_id, call.agent_id)}
          onLook={setLooking}
          onUndo={setUndoing}
        />
      ))}
      {isMore && (
        <Button wide busy={runs.isFetchingNextPage || calls.isFetchingNextPage} onClick={older}>
          Show older ones
        </Button>
      )}
      <UndoDialog
        workspaceId={workspaceId}
        sessionId={sessionId}
        undoing={undoing}
        onClose={() => setUndoing(null)}
        onDone={(callId) => setDone({ callId, isRedo: undoing?.isRedo ?? false })}
      />
      <Dialog
        title={`What changed: ${looking?.what ?? ""}`}
        isOpen={looking !== null}
        onClose={() => setLooking(null)}
        wide
      >
        {looking && <Changes workspaceId={workspaceId} of={looking.deeds} />}
      </Dialog>
    </div>
  );
}

interface GroupProps {
  group: Group;
  who: (call: Group["calls"][number]) => string;
  onLook: (looking: Looking) => void;
  onUndo: (undoing: Undoing) => void;
}

function GroupCard({ group, who, onLook, onUndo }: GroupProps) {
  const { run, calls } = group;
  const deeds: Deeds = run === null ? { calls: calls.map((call) => call.id) } : { run_id: run.id };
  const changed = calls.some((call) => call.files > 0);
  return (
    <Card
      label={run === null ? "Calls outside turns" : `Turn: ${run.asked}`}
      title={
        run === null ? (
          "Outside turns"
        ) : (
          <span className="line-clamp-3 font-medium wrap-anywhere whitespace-pre-wrap">{run.asked}</span>
        )
      }
      aside={
        <span className="flex flex-wrap items-center gap-2">
          {run !== null && <RunBadge run={run} />}
          {run !== null && (
            <span className="text-xs text-muted">
              <Ago time={run.created_at} />
            </span>
          )}
          {changed && run !== null && (
            <>
              <Button small onClick={() => onLook({ deeds, what: "this turn" })}>
                Changes
              </Button>
              <Button
                small
                disabled={standing(calls).length === 0}
                onClick={() => onUndo({ deeds, what: "the whole turn" })}
              >
                <Undo2 aria-hidden className="size-3.5" />
                Undo turn
              </Button>
            </>
          )}
        </span>
      }
    >
      {calls.length === 0 ? (
        <p className="text-muted">No tool was called.</p>
      ) : (
        <ol aria-label="Calls" className="-my-2 divide-y divide-line">
          {calls.map((call) => (
            <CallRow
              key={call.id}
              call={call}
              who={who(call)}
              onLook={() => onLook({ deeds: { calls: [call.id] }, what: call.tool })}
              onUndo={onUndo}
            />
          ))}
        </ol>
      )}
    </Card>
  );
}

const ENDINGS: Record<NonNullable<Run["ending"]>, Tone> = {
  done: "good",
  "turn-limit": "warn",
  budget: "warn",
  deadline: "warn",
  cancelled: "plain",
  violation: "bad",
  failed: "bad",
};

function RunBadge({ run }: { run: Run }) {
  if (run.ending === null) return <Badge tone="accent">{run.state}</Badge>;
  return (
    <Badge tone={ENDINGS[run.ending]} {...(run.error ? { title: run.error.message } : {})}>
      {run.ending}
    </Badge>
  );
}
