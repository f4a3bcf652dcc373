/** What models have used in this workspace: today, by day, agent, model and session; and the budgets. */
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Link } from "wouter";
import { api, type Schema, unwrap } from "../../api/client";
import { useNames } from "../../api/names";
import type { ScreenProps } from "../../app/screenProps";
import { Card } from "../../components/Card";
import { Empty } from "../../components/Empty";
import { ErrorNote } from "../../components/ErrorNote";
import { cost } from "../../components/money";
import { Select } from "../../components/Select";
import { Skeleton } from "../../components/Skeleton";
import { escapedLine } from "../../components/shownText";
import { Table } from "../../components/Table";
import { titleOf } from "../chat/SessionList";
import { useSessions } from "../chat/sessions";
import { BudgetsCard } from "./BudgetsCard";

type Sum = Schema["CostOut"];
type Group = Schema["CostGroup"];

const SPANS = { "7": "Last 7 days", "30": "Last 30 days", "90": "Last 90 days", "365": "Last year" };
const GROUPS = { agent: "By agent", model: "By model", session: "By session" } satisfies Partial<Record<Group, string>>;

export function UsageSection({ workspaceId }: ScreenProps) {
  const [days, setDays] = useState("30");
  const byDay = useSums(workspaceId, "day", days);
  if (byDay.isPending) return <Skeleton what="usage" />;
  if (byDay.error) return <ErrorNote error={byDay.error} />;
  const found = byDay.data.items;
  return (
    <>
      <Card
        title="Cost and tokens"
        aside={<Select label="Period" isLabelHidden small value={days} onChange={setDays} options={SPANS} />}
      >
        <dl className="grid grid-cols-2 gap-x-6 gap-y-3 md:grid-cols-4">
          <Total name="Today (UTC)" sums={found.filter(({ key }) => key === today())} />
          <Total name={SPANS[days as keyof typeof SPANS]} sums={found} />
        </dl>
        {found.length > 0 && <Days sums={found} />}
      </Card>
      <BudgetsCard workspaceId={workspaceId} />
      {found.length === 0 ? (
        <Empty title="No model was used">Send an agent a message, and its tokens and cost are shown here.</Empty>
      ) : (
        (Object.keys(GROUPS) as (keyof typeof GROUPS)[]).map((by) => (
          <Sums key={by} workspaceId={workspaceId} by={by} days={days} />
        ))
      )}
    </>
  );
}

function useSums(workspaceId: string, by: Group, days: string) {
  return useQuery({
    queryKey: [workspaceId, "costs", by, days],
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/workspaces/{workspace_id}/costs", {
          params: { path: { workspace_id: workspaceId }, query: { by, days: Number(days) } },
        }),
      ),
  });
}

function today(): string {
  return new Date().toISOString().slice(0, 10);
}

function shownCost(sum: Sum): string {
  return cost(Number(sum.cost ?? 0), sum.unpriced_turns);
}

function Total({ name, sums }: { name: string; sums: readonly Sum[] }) {
  const known = sums.reduce((all, sum) => all + Number(sum.cost ?? 0), 0);
  const unpriced = sums.reduce((all, sum) => all + sum.unpriced_turns, 0);
  const tokens = sums.reduce((all, sum) => all + sum.input_tokens + sum.output_tokens, 0);
  const runs = sums.reduce((all, sum) => all + sum.runs, 0);
  return (
    <div className="col-span-2">
      <dt className="text-xs text-muted">{name}</dt>
      <dd>
        <span className="text-lg font-semibold">{cost(known, unpriced)}</span>{" "}
        <span className="text-muted">
          {tokens.toLocaleString("en")} tokens, {runs.toLocaleString("en")} {runs === 1 ? "run" : "runs"}
        </span>
      </dd>
    </div>
  );
}

/** A bar per day, of its cost, or of its tokens if no cost is known. The table has the figures. */
function Days({ sums }: { sums: readonly Sum[] }) {
  const isPriced = sums.some(({ cost }) => Number(cost ?? 0) > 0);
  const size = (sum: Sum) => (isPriced ? Number(sum.cost ?? 0) : sum.input_tokens + sum.output_tokens);
  const largest = Math.max(...sums.map(size));
  return (
    <div className="mt-4">
      <Table
        label="By day"
        rows={sums}
        keyOf={({ key }) => key}
        columns={[
          { title: "Day (UTC)", cell: ({ key }) => <span className="whitespace-nowrap">{key}</span> },
          {
            title: isPriced ? "Share of the dearest day" : "Share of the busiest day",
            cell: (sum) => (
              <span aria-hidden className="mt-2 block h-2 min-w-16 rounded-sm bg-sunken">
                <span className="block h-2 rounded-sm bg-accent" style={{ width: `${(100 * size(sum)) / largest}%` }} />
              </span>
            ),
          },
          ...FIGURES,
        ]}
      />
    </div>
  );
}

const FIGURES = [
  { title: "Cost", isRight: true, cell: shownCost },
  { title: "Input", isRight: true, cell: (sum: Sum) => sum.input_tokens.toLocaleString("en") },
  { title: "Output", isRight: true, cell: (sum: Sum) => sum.output_tokens.toLocaleString("en") },
  { title: "Runs", isRight: true, cell: (sum: Sum) => sum.runs.toLocaleString("en") },
];

function Sums({ workspaceId, by, days }: { workspaceId: string; by: keyof typeof GROUPS; days: string }) {
  const found = useSums(workspaceId, by, days);
  return (
    <section className="space-y-2">
      <h2 className="font-semibold">{GROUPS[by]}</h2>
      {found.isPending && <Skeleton what="usage" />}
      <ErrorNote error={found.error} />
      {found.data && (
        <Table
          label={GROUPS[by]}
          rows={found.data.items}
          keyOf={({ key }) => key}
          columns={[
            { title: NAMED[by], cell: ({ key }) => <Name workspaceId={workspaceId} by={by} id={key} /> },
            ...FIGURES,
          ]}
        />
      )}
    </section>
  );
}

const NAMED = { agent: "Agent", model: "Model", session: "Session" };

function Name({ workspaceId, by, id }: { workspaceId: string; by: keyof typeof GROUPS; id: string }): ReactNode {
  const agents = useNames(workspaceId).agents;
  const sessions = useSessions(workspaceId);
  if (by === "agent") return escapedLine(agents.get(id) ?? (id === "" ? "no agent" : "deleted agent"));
  if (by === "model") return <code>{escapedLine(id)}</code>;
  const session = sessions.data?.pages.flatMap((page) => page.items).find((one) => one.id === id);
  if (session === undefined) return <span className="text-muted">older or deleted session {id.slice(-8)}</span>;
  return (
    <Link href={`/w/${workspaceId}/chat/${id}`} className="text-accent underline">
      {escapedLine(titleOf(session))}
    </Link>
  );
}
