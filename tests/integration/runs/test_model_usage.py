"""Budgets of run trees, sessions, agents and workspaces, and the sums that they and the reports read."""

import asyncio
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.integration.runs.conftest import RunFixture, opened_office, says
from tests.integration.runs.test_child_runs import another_agent, children, delegates, office, plays, results, runs_of
from tests.integration.runs.test_costs import PRICED, price_of, priced
from tests.integration.runs.test_durable import Died
from toolcrib.core.agents import AgentRules
from toolcrib.core.budgets import Budgets
from toolcrib.core.ids import ProcessId, SessionId, new_id
from toolcrib.core.model_stream import TokenUsage
from toolcrib.core.runs import CostGroup, CostSum, Run, RunEnding, RunState
from toolcrib.policy.agent_definition import render_definition

LOOKS = ("ls", {"path": "/"})


async def limited(run_fixture: RunFixture, **budgets: Any) -> RunFixture:
    """A session whose agent has these budgets."""
    return await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, budgets=budgets)


async def in_new_session(fixture: RunFixture) -> RunFixture:
    other = await fixture.workspace.stores.sessions.create(fixture.tenant, agent_id=fixture.agent.id)
    return replace(fixture, session_id=SessionId(other.id))


async def change_rules(fixture: RunFixture, **rules: Any) -> None:
    changed = render_definition(AgentRules.model_validate({**fixture.agent.rules.model_dump(), **rules}))
    await fixture.workspace.stores.agents.update(fixture.tenant, fixture.agent.id, definition=changed)


async def limit_workspace(fixture: RunFixture, **budgets: Any) -> None:
    await fixture.workspace.stores.workspaces.set_budgets(fixture.tenant, Budgets.model_validate(budgets))


async def sums(fixture: RunFixture, by: CostGroup) -> list[CostSum]:
    return await fixture.workspace.stores.model_usage.sums(fixture.tenant, by=by, days=30)


def stopped(run: Run) -> str:
    """Return why the run was stopped by a budget."""
    assert run.end_reason is RunEnding.BUDGET
    assert run.error is not None
    assert run.error["code"] == "BUDGET"
    return str(run.error["message"])


async def test_a_session_stops_when_its_budget_is_used_up_and_goes_on_when_it_is_raised(
    run_fixture: RunFixture,
) -> None:
    fixture = await limited(run_fixture, session={"max_tokens": 5_000})
    await fixture.send("One.", says("1", input_tokens=3_000, output_tokens=10))
    await fixture.send("Two.", says("2", input_tokens=3_000, output_tokens=10))

    third = await fixture.send("Three.")
    elsewhere = await (await in_new_session(fixture)).send("Hello?", says("Hello."))
    with_less = await fixture.runs.retry(fixture.tenant, third.id, via="test")
    await fixture.carry_on()
    await change_rules(fixture, budgets={"session": {"max_tokens": 50_000}})
    fixture.model.say(says("3"))
    raised = await fixture.runs.retry(fixture.tenant, third.id, via="test")
    await fixture.carry_on()

    assert stopped(third) == (
        "Stopped: this session has used 6,020 tokens; its limit is 5,000 per session. Raise "
        f"`budgets.session.max_tokens` in the definition of agent {fixture.agent.name!r}, then retry the run."
    )
    assert third.turns == 0
    assert elsewhere.end_reason is RunEnding.DONE
    assert (await fixture.run(with_less.id)).end_reason is RunEnding.BUDGET
    assert (await fixture.run(raised.id)).end_reason is RunEnding.DONE


@pytest.mark.parametrize(("period", "when"), [("day", "today"), ("month", "this month")])
async def test_an_agent_stops_in_all_its_sessions_when_its_money_is_spent(
    run_fixture: RunFixture, period: str, when: str
) -> None:
    fixture = await priced(run_fixture, budgets={period: {"max_cost": 0.02}})
    await fixture.send("One.", says("1", input_tokens=9_000, output_tokens=10))

    second = await (await in_new_session(fixture)).send("Two.")
    other = await (await priced(run_fixture)).send("Hello?", says("Hello."))

    cost = price_of(TokenUsage(9_000, 10))
    assert stopped(second).startswith(
        f"Stopped: agent {fixture.agent.name!r} has cost ${cost:.4f} {when} (UTC); its limit is $0.02 per {period}."
    )
    assert f"Raise `budgets.{period}.max_cost`" in stopped(second)
    assert other.end_reason is RunEnding.DONE


@pytest.mark.parametrize("period", ["session", "day", "month"])
async def test_every_agent_stops_when_the_workspace_has_used_up_its_budget(
    run_fixture: RunFixture, period: str
) -> None:
    await limit_workspace(run_fixture, **{period: {"max_tokens": 5_000}})
    first = await run_fixture.send("Look.", says("", LOOKS, input_tokens=6_000, output_tokens=10))
    other = await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers)
    if period == "session":
        other = replace(other, session_id=run_fixture.session_id)

    second = await other.send("Hello?")
    await limit_workspace(run_fixture, **{period: None})
    other.model.say(says("Hello."))
    third = await other.runs.retry(other.tenant, second.id, via="test")
    await other.carry_on()

    assert (first.turns, second.turns) == (1, 0)
    for one in (first, second):
        assert "has used 6,010 tokens" in stopped(one)
        assert f"toolcrib workspace budget {period} --max-tokens …" in stopped(one)
    assert (await other.run(third.id)).end_reason is RunEnding.DONE


async def test_a_child_run_stops_when_the_budget_of_its_parent_is_used_up(run_fixture: RunFixture) -> None:
    fixture = await office(run_fixture, max_tokens=5_000)
    unlimited = await another_agent(fixture)
    plays(
        fixture,
        Go=[says("", delegates("Look", agent=unlimited.name), input_tokens=2_000, output_tokens=10)],
        Look=[says("", LOOKS, input_tokens=3_000, output_tokens=10)],
    )

    run = await fixture.send("Go.")

    [child] = await runs_of(fixture, await children(fixture))
    [(result, failed)] = await results(fixture)
    assert "the run that started this one, with its child runs, has used 5,020 tokens" in stopped(child)
    assert failed
    assert "ended without an answer (budget)" in result
    assert (child.turns, run.turns, run.total_tokens) == (1, 1, 5_020)
    assert "its limit is 5,000" in stopped(run)


async def test_two_child_runs_share_the_budget_of_their_parent(run_fixture: RunFixture) -> None:
    fixture = await office(run_fixture, max_tokens=5_000)
    turn = says("", LOOKS, input_tokens=900, output_tokens=100)
    plays(
        fixture,
        Go=[says("", delegates("One"), delegates("Two"), input_tokens=900, output_tokens=100)],
        One=[turn] * 5,
        Two=[turn] * 5,
    )
    run = await fixture.runs.submit(fixture.tenant, fixture.session_id, "Go.", via="test")
    [taken] = await fixture.take(ProcessId(new_id()))
    await fixture.advance(taken)

    await asyncio.gather(*(fixture.advance(one) for one in await fixture.take(ProcessId(new_id()))))

    found = await fixture.run(run.id)
    below = await runs_of(fixture, await children(fixture))
    assert [one.end_reason for one in below] == [RunEnding.BUDGET] * 2
    assert found.child_tokens == sum(one.total_tokens for one in below)
    # One of them may have been in a turn when the other used up the rest.
    assert 5_000 <= found.total_tokens <= 6_000


async def test_what_a_child_run_used_before_its_process_died_counts_once(run_fixture: RunFixture) -> None:
    fixture = await office(run_fixture, max_tokens=5_000)
    plays(
        fixture,
        Go=[says("", delegates("Look"), input_tokens=2_000, output_tokens=10)],
        Look=[says("", LOOKS, input_tokens=3_000, output_tokens=10)],
    )
    run = await fixture.runs.submit(fixture.tenant, fixture.session_id, "Go.", via="test")
    [taken] = await fixture.take(ProcessId(new_id()))
    await fixture.advance(taken)
    [child] = await fixture.take(ProcessId(new_id()))

    async def dies(*_: Any, **__: Any) -> None:
        raise Died

    with pytest.raises(Died):
        await fixture.advance_with(execute=dies)(child)
    between = await fixture.run(run.id)
    await fixture.carry_on()

    assert (between.state, between.total_tokens) == (RunState.WAITING, 5_020)
    assert stopped(await fixture.run(child.id))
    after = await fixture.run(run.id)
    assert (after.total_tokens, after.end_reason) == (5_020, RunEnding.BUDGET)
    assert [one.input_tokens + one.output_tokens for one in await sums(fixture, CostGroup.DAY)] == [5_020]


async def test_runs_at_once_exceed_a_budget_by_no_more_than_the_turns_in_flight(run_fixture: RunFixture) -> None:
    budget, each, sessions = 20_000, 1_000, 6
    await limit_workspace(run_fixture, day={"max_tokens": budget})
    run_fixture.model.responder = lambda _: says("", LOOKS, input_tokens=each - 10, output_tokens=10)
    for _ in range(sessions):
        fixture = await in_new_session(run_fixture)
        await fixture.runs.submit(fixture.tenant, fixture.session_id, "Look.", via="test")

    taken = await run_fixture.take(ProcessId(new_id()))
    await asyncio.gather(*(run_fixture.advance(run) for run in taken))

    ended = [await run_fixture.run(run.id) for run in taken]
    [today] = await sums(run_fixture, CostGroup.DAY)
    used = today.input_tokens + today.output_tokens
    assert [run.end_reason for run in ended] == [RunEnding.BUDGET] * sessions
    assert used == sum(run.total_tokens for run in ended), "no turn is lost or counted twice"
    assert budget <= used <= budget + (sessions - 1) * each
    assert today.runs == sessions


async def test_summaries_of_long_conversations_are_counted(run_fixture: RunFixture) -> None:
    fixture = await priced(run_fixture)
    await fixture.send("First.", says("An answer.", input_tokens=10, output_tokens=10))
    await fixture.send("Second.", says("Another.", input_tokens=90_000, output_tokens=10))

    run = await fixture.send(
        "Third.",
        says("They spoke of two things.", input_tokens=80_000, output_tokens=500),
        says("The third answer.", input_tokens=1_000, output_tokens=10),
    )

    summary, answer = TokenUsage(80_000, 500), TokenUsage(1_000, 10)
    [event] = [payload for _, payload in await fixture.events() if payload.get("role") == "summary"]
    assert (run.input_tokens, run.output_tokens) == (81_000, 510)
    assert run.cost == price_of(summary) + price_of(answer)
    assert Decimal(event["usage"]["cost"]) == price_of(summary)
    for by in CostGroup:
        [found] = await sums(fixture, by)
        assert (found.input_tokens, found.output_tokens) == (171_010, 530), by
        assert found.cost == sum(map(price_of, (summary, answer, TokenUsage(10, 10), TokenUsage(90_000, 10)))), by


async def test_a_summary_is_not_requested_when_the_budget_is_used_up(run_fixture: RunFixture) -> None:
    fixture = await limited(run_fixture, session={"max_tokens": 50_000})
    await fixture.send("First.", says("An answer."))
    await fixture.send("Second.", says("Another.", input_tokens=90_000))
    asked = len(fixture.model.received)

    run = await fixture.send("Third.")

    assert stopped(run)
    assert len(fixture.model.received) == asked


async def test_a_budget_in_money_refuses_a_model_without_a_price(run_fixture: RunFixture) -> None:
    await limit_workspace(run_fixture, month={"max_cost": 50})

    run = await run_fixture.send("Hello?")
    await limit_workspace(run_fixture, month={"max_tokens": 50_000})
    again = await run_fixture.send("Hello?", says("Hello."))

    assert stopped(run) == (
        "Stopped: no price is known for 'gpt-fake', so that the workspace's limit of $50.00 per month cannot be kept. "
        "Use `max_tokens` instead of `max_cost`, or a model with a known price."
    )
    assert (run.turns, again.end_reason) == (0, RunEnding.DONE)


async def test_sums_by_model_name_the_provider_and_outlive_their_sessions(run_fixture: RunFixture) -> None:
    fixture = await priced(run_fixture)
    await fixture.send("Hello?", says("Hello.", input_tokens=1_000, output_tokens=100))
    await run_fixture.send("Hello?", says("Hello.", input_tokens=2_000, output_tokens=200))
    for one in (fixture, run_fixture):
        await one.workspace.stores.sessions.delete(one.tenant, one.session_id)

    found = await sums(fixture, CostGroup.MODEL)

    assert [(one.key, one.input_tokens, one.unpriced_turns) for one in found] == [
        (f"openai/{PRICED['model']}", 1_000, 0),
        ("openai-compatible/gpt-fake", 2_000, 1),
    ]
    assert [one.known_cost for one in found] == [price_of(TokenUsage(1_000, 100)), None]


async def test_looking_at_budgets_reads_as_much_after_years_of_use(
    run_fixture: RunFixture, database_urls: DatabaseUrls
) -> None:
    everything = {period: {"max_tokens": 10**9} for period in ("session", "day", "month")}
    fixture = await limited(run_fixture, **everything)
    await limit_workspace(fixture, **everything)
    run = await fixture.send("Hello?", says("Hello."))
    workspace_id = fixture.tenant.workspace_id

    async with await psycopg.AsyncConnection.connect(database_urls.owner, autocommit=True) as owner:

        async def blocks() -> int:
            """Return how many blocks the statement reads, when nothing has to be loaded for the first time."""
            statement = "explain (analyze, buffers, format json) select * from toolcrib.run_budgets(%s, %s)"
            read = 0
            for _ in range(7):
                cursor = await owner.execute(statement, (workspace_id, run.id), prepare=False)
                [(plan,)] = await cursor.fetchall()
                top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
                read = top["Shared Hit Blocks"] + top["Shared Read Blocks"]
                assert top["Actual Rows"] == 6
            return read

        before = await blocks()
        # Three years, each day with 100 sessions and 10 agents.
        await owner.execute(
            """
            insert into toolcrib.model_usage
            select %(workspace)s, one.kind, md5(one.kind || one.number || day)::uuid::text, day, 1, 1, 1, 0.1, 0
            from generate_series(current_date - 1100, current_date, interval '1 day') day,
                 (select 'session' as kind, n as number from generate_series(1, 100) n
                  union all select 'agent', n from generate_series(1, 10) n) one
            """,
            {"workspace": workspace_id},
        )
        # PostgreSQL does this by itself, a while after so many rows were added.
        await owner.execute("analyze toolcrib.model_usage")
        after = await blocks()

    assert after <= before + 40, (before, after)
