"""What models have used: sums per day, and budgets. ``count_model_usage`` counts it where turns are stored."""

from toolcrib.core.budgets import WorkspaceBudget
from toolcrib.core.runs import CostGroup, CostSum
from toolcrib.storage.database import Store, Tenant


class ModelUsageStore(Store):
    """Queries on the sums. Each reads at most a row per day for each key, however many runs there were."""

    async def of_workspace(self, tenant: Tenant) -> list[WorkspaceBudget]:
        """Return the budgets of the workspace and of its agents, with what is used of them."""
        async with self._database.transaction(tenant) as connection:
            return await connection.fetch_all(
                WorkspaceBudget,
                """
                with owner as (
                    select null::uuid as agent_id, null::text as agent_name, 'workspace' as kind, '' as key, w.budgets
                    from toolcrib.workspaces w where w.id = %(workspace)s
                    union all
                    select a.id, a.name, 'agent', a.id::text, a.rules -> 'budgets' from toolcrib.agents a
                    where a.workspace_id = %(workspace)s and a.deleted_at is null
                ), period (period, since) as (
                    values ('session', null::date), ('day', (now() at time zone 'UTC')::date),
                           ('month', date_trunc('month', now() at time zone 'UTC')::date)
                )
                select o.agent_id, o.agent_name, p.period,
                       (o.budgets -> p.period ->> 'max_tokens')::numeric as max_tokens,
                       (o.budgets -> p.period ->> 'max_cost')::numeric as max_cost,
                       case when p.since is not null then coalesce(used.tokens, 0) end as tokens,
                       case when p.since is not null then coalesce(used.cost, 0) end as cost
                from owner o cross join period p
                cross join lateral (
                    select sum(u.input_tokens + u.output_tokens) as tokens, sum(u.cost) as cost
                    from toolcrib.model_usage u
                    where u.workspace_id = %(workspace)s and u.kind = o.kind and u.key = o.key and u.day >= p.since
                ) used
                where coalesce(o.budgets -> p.period ->> 'max_tokens', o.budgets -> p.period ->> 'max_cost') is not null
                order by o.agent_id is not null, o.agent_name, p.since nulls first, p.period
                """,
                {"workspace": tenant.workspace_id},
            )

    async def sums(self, tenant: Tenant, *, by: CostGroup, days: int, limit: int = 200) -> list[CostSum]:
        """Add up what was used on the last days, today included, the latest days or the dearest keys first."""
        async with self._database.transaction(tenant) as connection:
            return await connection.fetch_all(
                CostSum,
                """
                select case when %(by)s::text = 'day' then to_char(u.day, 'YYYY-MM-DD') else u.key end as key,
                       sum(u.runs)::integer as runs, sum(u.input_tokens)::bigint as input_tokens,
                       sum(u.output_tokens)::bigint as output_tokens, sum(u.cost) as cost,
                       sum(u.unpriced_turns)::integer as unpriced_turns
                from toolcrib.model_usage u
                where u.workspace_id = %(workspace)s
                  and u.kind = case %(by)s::text when 'day' then 'workspace' else %(by)s::text end
                  and u.day > (now() at time zone 'UTC')::date - %(days)s::integer
                group by 1
                order by case when %(by)s::text = 'day' then max(u.day) end desc,
                         sum(u.cost) desc, sum(u.output_tokens) desc, 1
                limit %(limit)s
                """,
                {"by": by, "workspace": tenant.workspace_id, "days": days, "limit": limit},
            )
