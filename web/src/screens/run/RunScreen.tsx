/** One run: what it did when, what people decided, what waits, and what it cost. */
import { useEffect, useMemo } from "react";
import { Link, useRoute } from "wouter";
import { nameOfActor, useNames } from "../../api/names";
import type { ScreenProps } from "../../app/screenProps";
import { useTitle } from "../../app/title";
import { LINK_BUTTON } from "../../components/Button";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { compact, cost } from "../../components/money";
import { Page } from "../../components/Page";
import { RelativeTime } from "../../components/RelativeTime";
import { Skeleton } from "../../components/Skeleton";
import { escaped } from "../../components/shownText";
import { useLive } from "../../events/LiveProvider";
import { RunBadge } from "./RunBadge";
import { RunTurns } from "./RunTurns";
import { type RunData, useRun } from "./runData";
import { duration, turnsOf, waitedFor } from "./runSteps";

export default function RunScreen({ workspaceId }: ScreenProps) {
  const [, at] = useRoute("/w/:workspaceId/run/:id");
  if (!at?.id) return <Empty title="No run here">Open a run from the history of a session.</Empty>;
  return <RunPage key={at.id} workspaceId={workspaceId} runId={at.id} />;
}

function RunPage({ workspaceId, runId }: { workspaceId: string; runId: string }) {
  const found = useRun(workspaceId, runId);
  useTitle(found.data?.run.prompt_preview ?? "Run");
  useSessionEvents(found.data?.run.session_id, found.refetch);
  if (found.error)
    return (
      <div className="p-4">
        <ErrorNote error={found.error} />
      </div>
    );
  if (!found.data)
    return (
      <Page title="Run" label="Run">
        <Skeleton what="the run" rows={6} />
      </Page>
    );
  return <Contents workspaceId={workspaceId} data={found.data} />;
}

/** How often the run is fetched at most while it works. */
const REFETCH_MS = 1_000;

/** Calls begin and end without a word to the rest of the workspace. */
function useSessionEvents(sessionId: string | undefined, refetch: () => unknown): void {
  const live = useLive();
  useEffect(() => (sessionId === undefined ? undefined : live.subscribe(sessionId)), [live, sessionId]);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = live.listen(({ payload }) => {
      // Other tabs of this screen, such as the conversation, may be subscribed to other sessions.
      if (payload.conversationId !== sessionId) return;
      timer ??= setTimeout(() => {
        timer = undefined;
        void refetch();
      }, REFETCH_MS);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [live, sessionId, refetch]);
}

function Contents({ workspaceId, data }: { workspaceId: string; data: RunData }) {
  const { run, session } = data;
  const names = useNames(workspaceId);
  const turns = useMemo(() => turnsOf(data), [data]);
  const changes = data.calls.reduce((sum, { files }) => sum + files, 0);
  const base = `/w/${workspaceId}`;
  const prompt = data.messages.find(({ role }) => role === "user");
  return (
    <Page
      label="Run"
      title={<span className="line-clamp-3 whitespace-pre-wrap">{escaped(run.prompt_preview || "Run")}</span>}
      about={
        <span className="flex flex-wrap items-center gap-x-2 gap-y-1 text-sm">
          <RunBadge run={run} />
          <span>
            {nameOfActor(names, run.user_id, run.agent_id)}, asked by {nameOfActor(names, run.user_id, null)}{" "}
            <RelativeTime time={run.created_at} />
          </span>
          {run.parent_run_id && (
            <Link href={`${base}/run/${run.parent_run_id}`} className="text-accent underline underline-offset-2">
              Started by another run
            </Link>
          )}
        </span>
      }
      aside={
        <>
          <Link href={`${base}/chat/${session.id}${prompt ? `#${prompt.id}` : ""}`} className={LINK_BUTTON}>
            Open in the conversation
          </Link>
          {changes > 0 && (
            <Link href={`${base}/review/run/${run.id}`} className={LINK_BUTTON}>
              Review its changes
            </Link>
          )}
        </>
      }
    >
      <Facts data={data} />
      {run.error && (
        <p role="alert" className="rounded-md bg-bad-soft px-3 py-2 text-bad wrap-anywhere">
          {run.error.message}
        </p>
      )}
      <Waiting workspaceId={workspaceId} data={data} />
      {turns.length === 0 ? (
        <Empty title={run.ended_at === null ? "Nothing has happened yet" : "The run ended before its first turn"} />
      ) : (
        <RunTurns
          workspaceId={workspaceId}
          sessionId={session.id}
          began={run.started_at ?? run.created_at}
          turns={turns}
        />
      )}
    </Page>
  );
}

function Facts({ data: { run, pauses, calls } }: { data: RunData }) {
  const facts: [string, string][] = [
    ["Worked", duration(run.active_ms)],
    ["Waited for people", duration(waitedFor(pauses, Date.now()))],
    ["Turns", String(run.turns)],
    ["Calls", String(calls.length)],
    ["Tokens", `${compact(run.input_tokens)} in, ${compact(run.output_tokens)} out`],
    ["Cost", run.cost === null ? "unknown price" : cost(Number(run.cost), run.unpriced_turns)],
  ];
  return (
    <dl
      aria-label="Facts"
      className="grid grid-cols-2 gap-x-4 gap-y-3 rounded-xl border border-line bg-surface p-4 sm:grid-cols-3 lg:grid-cols-6"
    >
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt className="text-xs text-muted">{name}</dt>
          <dd className="font-medium tabular-nums">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

const WAITS: Partial<Record<NonNullable<RunData["run"]["waits_for"]>, string>> = {
  release: "It is queued, and starts only when someone sends it.",
  queue: "It waits for an earlier run.",
  worker: "It waits for a free place in a server.",
  provider: "The model provider limits requests. It goes on by itself.",
  credential: "The limits of its key leave no room. It goes on by itself.",
  child: "It waits for its child runs.",
};

/** What the run waits for now. */
function Waiting({ workspaceId, data: { run, pauses } }: { workspaceId: string; data: RunData }) {
  const pending = pauses.filter(({ state }) => state === "pending");
  const text = run.waits_for && WAITS[run.waits_for];
  if (pending.length === 0 && !text) return null;
  return (
    <section aria-label="Waiting" className="space-y-1 rounded-md bg-warn-soft px-3 py-2 text-warn">
      {text && <p>{text}</p>}
      {pending.map((pause) => (
        <p key={pause.id} className="flex flex-wrap items-center gap-x-3 gap-y-1">
          <span className="min-w-0 grow">
            {pause.kind === "question"
              ? "A question waits for an answer"
              : `A call of ${pause.tool} waits for approval`}
            , since <RelativeTime time={pause.created_at} />.
          </span>
          <Link href={`/w/${workspaceId}/approvals/${pause.id}`} className="font-medium underline underline-offset-2">
            {pause.kind === "question" ? "Answer it" : "Decide"}
          </Link>
        </p>
      ))}
    </section>
  );
}
