/** Everything that waits for the person, in all workspaces: approvals, questions, reviews and failed runs. */
import { CheckCheck } from "lucide-react";
import { type ReactNode, useState } from "react";
import { PageHead } from "../app/PageHead";
import { useTitle } from "../app/title";
import { Button } from "../components/Button";
import { Empty } from "../components/Empty";
import { ErrorNote } from "../components/ErrorNote";
import { Skeleton } from "../components/Skeleton";
import { LiveProvider } from "../events/LiveProvider";
import { BulkBar } from "./BulkBar";
import { useDecideSeveral, type WaitingApproval } from "./decideSeveral";
import { FailedRunRow, ReviewRow } from "./InboxLinks";
import { useInbox, useWaiting } from "./inbox";
import { type DecisionResult, resultsOf, whyAgain } from "./results";
import { WaitingRow } from "./WaitingRow";

export default function InboxPage() {
  useTitle("Inbox");
  const inbox = useInbox();
  // The connection of one workspace says when something changes in any of them.
  const connected = inbox.data?.workspaces[0]?.workspace_id;
  return (
    <main className="h-full overflow-y-auto" tabIndex={-1}>
      <div className="mx-auto max-w-3xl space-y-6 p-4 pb-28 md:pt-8">
        <PageHead title="Inbox" />
        {inbox.isPending && <Skeleton what="your inbox" rows={4} />}
        <ErrorNote error={inbox.error} />
        {inbox.data &&
          (connected === undefined ? (
            <Nothing />
          ) : (
            <LiveProvider key={connected} workspaceId={connected}>
              <Contents />
            </LiveProvider>
          ))}
      </div>
    </main>
  );
}

function Contents() {
  const { data } = useInbox();
  const workspaces = data?.workspaces ?? [];
  const waiting = useWaiting(workspaces.filter(({ pending }) => pending > 0));
  const several = useDecideSeveral();
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const approvals = waiting.calls.filter((call): call is WaitingApproval => call.pause.kind === "approval");
  const questions = waiting.calls.filter(({ pause }) => pause.kind === "question");
  const chosen = approvals.filter(({ pause }) => selected.has(pause.id));
  const nameOf = (id: string) => workspaces.find(({ workspace_id }) => workspace_id === id)?.name ?? "";
  const reviews = data?.reviews ?? [];
  const failed = data?.failed_runs ?? [];
  const results = resultsOf(
    several.decided,
    waiting.calls.map(({ pause }) => pause),
  );
  const isEmpty = !waiting.isPending && waiting.calls.length + reviews.length + failed.length === 0;

  function toggle(id: string): void {
    const next = new Set(selected);
    if (!next.delete(id)) next.add(id);
    setSelected(next);
  }

  return (
    <>
      <ErrorNote error={waiting.error} />
      {waiting.isPending && <Skeleton what="what waits for you" rows={4} />}
      {results.length > 0 && <Results results={results} onClose={several.clear} />}
      {isEmpty && <Nothing />}
      <Group
        title="Approvals"
        count={approvals.length}
        aside={
          approvals.length > 1 && (
            <label className="flex min-h-9 items-center gap-2 text-sm text-muted">
              <input
                type="checkbox"
                checked={chosen.length === approvals.length}
                onChange={() =>
                  setSelected(new Set(chosen.length === approvals.length ? [] : approvals.map(({ pause }) => pause.id)))
                }
              />
              Select all
            </label>
          )
        }
      >
        {approvals.map((call) => (
          <WaitingRow
            key={call.pause.id}
            call={call}
            notice={whyAgain(call.pause, results)}
            isSelected={selected.has(call.pause.id)}
            onToggle={() => toggle(call.pause.id)}
          />
        ))}
      </Group>
      <Group title="Questions" count={questions.length}>
        {questions.map((call) => (
          <WaitingRow key={call.pause.id} call={call} />
        ))}
      </Group>
      <Group title="Reviews" count={reviews.length}>
        {reviews.map((review) => (
          <ReviewRow key={review.session_id} review={review} workspace={nameOf(review.workspace_id)} />
        ))}
      </Group>
      <Group title="Failed runs" count={failed.length}>
        {failed.map((run) => (
          <FailedRunRow key={run.run_id} run={run} workspace={nameOf(run.workspace_id)} />
        ))}
      </Group>
      <BulkBar
        chosen={chosen}
        isBusy={several.isBusy}
        onClear={() => setSelected(new Set())}
        onDecide={(approved) => {
          setSelected(new Set());
          void several.decide(chosen, approved);
        }}
      />
    </>
  );
}

const OUTCOMES = {
  approved: "text-good",
  rejected: "text-muted",
  "asked-again": "text-warn",
  "not-decided": "text-bad",
} as const;

/** What became of each call that was decided with others. */
function Results({ results, onClose }: { results: readonly DecisionResult[]; onClose: () => void }) {
  return (
    <section aria-label="Results" className="rounded-xl border border-line bg-surface p-3">
      <header className="flex items-center gap-2">
        <h2 className="grow text-sm font-semibold">Results</h2>
        <Button small variant="quiet" onClick={onClose}>
          Close
        </Button>
      </header>
      <ul className="mt-1 space-y-1 text-sm">
        {results.map(({ id, call, workspace, outcome, text }) => (
          <li key={id} className="wrap-anywhere">
            {call} <span className="text-muted">in {workspace}</span>: <span className={OUTCOMES[outcome]}>{text}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Nothing() {
  return (
    <div className="pt-8">
      <CheckCheck aria-hidden className="mx-auto size-10 text-good" strokeWidth={1.4} />
      <Empty title="Nothing waits for you">
        Approvals, questions, reviews and failed runs of all your workspaces appear here. The icon of the browser tab
        has a dot while there are any.
      </Empty>
    </div>
  );
}

interface GroupProps {
  title: string;
  count: number;
  aside?: ReactNode;
  children: ReactNode;
}

function Group({ title, count, aside, children }: GroupProps) {
  if (count === 0) return null;
  return (
    <section aria-label={title}>
      <header className="flex min-h-9 items-center gap-2 px-1">
        <h2 className="text-sm font-semibold">{title}</h2>
        <span className="grow text-sm text-muted">{count}</span>
        {aside}
      </header>
      <ul className="mt-1 divide-y divide-line overflow-hidden rounded-xl border border-line bg-surface">{children}</ul>
    </section>
  );
}
