/** The budgets of the workspace and of its agents, with what is used of them. Owners change the workspace's. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schema, unwrap } from "../../api/client";
import { Button } from "../../components/Button";
import { Card } from "../../components/Card";
import { ConfirmButton } from "../../components/ConfirmButton";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { dollars } from "../../components/money";
import { Select } from "../../components/Select";
import { escapedLine } from "../../components/shownText";
import { useIsOwner } from "./data";

type Period = Schema["BudgetPeriod"];
type Limits = { max_cost?: number; max_tokens?: number } | null;

const PERIODS: Record<Period, string> = { session: "per session", day: "per day", month: "per month" };

export function BudgetsCard({ workspaceId }: { workspaceId: string }) {
  const isOwner = useIsOwner(workspaceId);
  const found = useQuery({
    queryKey: [workspaceId, "budgets"],
    queryFn: () =>
      unwrap(api.GET("/api/v1/workspaces/{workspace_id}/budgets", { params: { path: { workspace_id: workspaceId } } })),
  });
  const change = useChangeBudget(workspaceId);
  const budgets = found.data?.items ?? [];
  return (
    <Card title="Budgets">
      <ErrorNote error={found.error ?? change.error} />
      {found.data && budgets.length === 0 && (
        <p className="text-muted">No budgets. Agents can also have their own, in their definition.</p>
      )}
      <ul className="space-y-3">
        {budgets.map((budget) => (
          <li key={`${budget.agent_id} ${budget.period}`} className="flex flex-wrap items-center gap-x-4 gap-y-1">
            <span className="min-w-0 grow basis-48 font-medium">
              {budget.agent_name === null ? "Workspace" : `Agent ${escapedLine(budget.agent_name)}`}{" "}
              {PERIODS[budget.period]}
            </span>
            <Used name="cost" used={numberOf(budget.cost)} limit={numberOf(budget.max_cost)} shown={dollars} />
            <Used name="tokens" used={budget.tokens} limit={budget.max_tokens} shown={tokens} />
            {isOwner && budget.agent_id === null && (
              <ConfirmButton
                label={`Remove the workspace's budget ${PERIODS[budget.period]}`}
                consequence="Agents can then use models without this limit."
                act={() => change.mutateAsync({ period: budget.period, limits: null })}
              >
                Remove
              </ConfirmButton>
            )}
          </li>
        ))}
      </ul>
      {isOwner && found.data && (
        <BudgetForm
          budgets={budgets.filter(({ agent_id }) => agent_id === null)}
          busy={change.isPending}
          onSet={(period, limits) => change.mutate({ period, limits })}
        />
      )}
    </Card>
  );
}

function useChangeBudget(workspaceId: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: ({ period, limits }: { period: Period; limits: Limits }) =>
      unwrap(
        api.PATCH("/api/v1/workspaces/{workspace_id}", {
          params: { path: { workspace_id: workspaceId } },
          body: { budgets: { [period]: limits } },
        }),
      ),
    onSuccess: () => queries.invalidateQueries({ queryKey: [workspaceId, "budgets"] }),
  });
}

function numberOf(amount: string | number | null): number | null {
  return amount === null ? null : Number(amount);
}

function tokens(amount: number): string {
  return `${amount.toLocaleString("en")} tokens`;
}

interface UsedProps {
  name: string;
  used: number | null;
  limit: number | null;
  shown: (amount: number) => string;
}

function Used({ name, used, limit, shown }: UsedProps) {
  if (limit === null) return null;
  if (used === null) return <span>at most {shown(limit)}</span>;
  return (
    <span className="flex items-center gap-2">
      <meter
        aria-label={`Used ${name}`}
        className="gauge h-2 w-24"
        min={0}
        max={limit}
        high={limit * 0.8}
        optimum={0}
        value={Math.min(used, limit)}
      />
      <span className={used >= limit ? "font-medium text-bad" : ""}>
        {shown(used)} of {shown(limit)}
        {used >= limit && " · used up"}
      </span>
    </span>
  );
}

interface FormProps {
  /** The workspace's. */
  budgets: readonly Schema["BudgetOut"][];
  busy: boolean;
  onSet: (period: Period, limits: Limits) => void;
}

function BudgetForm({ budgets, busy, onSet }: FormProps) {
  const [period, setPeriod] = useState<Period>("day");
  // Null: not changed.
  const [money, setMoney] = useState<string | null>(null);
  const [most, setMost] = useState<string | null>(null);
  const current = budgets.find((budget) => budget.period === period);
  const shown = {
    money: money ?? String(numberOf(current?.max_cost ?? null) ?? ""),
    most: most ?? String(current?.max_tokens ?? ""),
  };
  function forget() {
    setMoney(null);
    setMost(null);
  }
  function submit(event: FormEvent) {
    event.preventDefault();
    onSet(period, {
      ...(shown.money && { max_cost: Number(shown.money) }),
      ...(shown.most && { max_tokens: Number(shown.most) }),
    });
    forget();
  }
  return (
    <form onSubmit={submit} className="mt-4 space-y-3 border-t border-line pt-3">
      <div className="grid gap-3 sm:grid-cols-3">
        <Select
          label="Workspace budget"
          value={period}
          onChange={(value) => {
            setPeriod(value as Period);
            forget();
          }}
          options={PERIODS}
        />
        <Field label="US dollars" type="number" min="0.01" step="any" value={shown.money} onChange={setMoney} />
        <Field label="Tokens" type="number" min="1" step="1" value={shown.most} onChange={setMost} />
      </div>
      <p className="text-xs text-muted">
        Runs stop before the next turn when a budget is used up. A budget in dollars refuses models without a known
        price. Days and months are those of UTC.
      </p>
      <Button type="submit" busy={busy} disabled={money === null && most === null}>
        Set budget
      </Button>
    </form>
  );
}
