"""What runs cost: recorded with each turn, and budgets that stop a run before its next turn."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from tests.fakes.model_server import KEY
from tests.integration.runs.conftest import RunFixture, opened_office, says
from tests.integration.runs.test_child_runs import delegates, office, plays
from toolcrib.core.ids import SessionId
from toolcrib.core.model_stream import TokenUsage
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.core.runs import CostGroup, RunEnding
from toolcrib.providers.model_catalog import price
from toolcrib.schemas.sessions import RunOut
from toolcrib.storage.users import ActingUser

PRICED = {"provider": "openai", "model": "gpt-4o", "wire": "chat_completions"}


async def priced(fixture: RunFixture, **rules: Any) -> RunFixture:
    """The same model behind a provider whose prices are known."""
    made = await opened_office(fixture.workspace, fixture.model, fixture.providers, **{**PRICED, **rules})
    access = fixture.workspace.stores.access
    credentials = ProviderCredentials(KEY, f"{fixture.model.url}/v1")
    await access.store(ActingUser(fixture.workspace.caller.user_id), "openai", credentials)
    return made


def price_of(usage: TokenUsage) -> Decimal:
    found = price("openai", "gpt-4o", usage)
    assert found is not None
    return found.total


async def test_the_cost_of_each_turn_is_recorded_and_added_up(run_fixture: RunFixture) -> None:
    fixture = await priced(run_fixture)
    run = await fixture.send(
        "Look.",
        says("", ("ls", {"path": "/"}), input_tokens=1_000, output_tokens=100),
        says("Seen.", input_tokens=2_000, output_tokens=200),
    )
    turns = [payload["usage"]["cost"] for kind, payload in await fixture.events() if kind == "stream-end"]
    ends = [payload["cost"] for kind, payload in await fixture.events() if kind == "run-state"]
    each = [price_of(TokenUsage(1_000 * n, 100 * n)) for n in (1, 2)]

    assert [Decimal(cost) for cost in turns] == each
    assert run.cost == sum(each) > 0
    assert Decimal(ends[-1]) == run.cost
    shown = RunOut.model_validate(run)
    assert (shown.cost, shown.unpriced_turns) == (run.cost, 0)


async def test_a_model_without_a_price_has_an_unknown_cost_and_not_none(run_fixture: RunFixture) -> None:
    run = await run_fixture.send("Hello?", says("Hello."))
    [usage] = [payload["usage"] for kind, payload in await run_fixture.events() if kind == "stream-end"]

    assert usage["cost"] is None
    assert (run.known_cost, run.unpriced_turns) == (None, 1)
    assert RunOut.model_validate(run).model_dump(mode="json")["cost"] is None


async def test_a_run_stops_before_the_turn_after_its_money_is_used_up(run_fixture: RunFixture) -> None:
    fixture = await priced(run_fixture, max_cost=0.01)
    run = await fixture.send(
        "Look.",
        says("", ("ls", {"path": "/"}), input_tokens=1_000, output_tokens=10),
        says("", ("ls", {"path": "/"}), input_tokens=9_000, output_tokens=1_000),
    )

    assert (run.end_reason, run.turns) == (RunEnding.BUDGET, 2)
    assert run.error is not None
    assert "its limit is $0.01" in run.error["message"]
    assert await fixture.is_complete()


async def test_a_budget_in_money_ends_a_run_whose_price_is_unknown_before_its_first_turn(
    run_fixture: RunFixture,
) -> None:
    fixture = await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, max_cost=5)
    run = await fixture.send("Look.")

    assert (run.end_reason, run.turns) == (RunEnding.BUDGET, 0)
    assert run.error is not None
    assert "no price is known for 'gpt-fake'" in run.error["message"]


async def test_a_run_stops_before_the_turn_after_its_tokens_are_used_up(run_fixture: RunFixture) -> None:
    fixture = await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, max_tokens=5_000)
    run = await fixture.send(
        "Look.",
        says("", ("ls", {"path": "/"}), input_tokens=1_000, output_tokens=10),
        says("", ("ls", {"path": "/"}), input_tokens=4_000, output_tokens=10),
    )
    other = await fixture.workspace.stores.sessions.create(fixture.tenant, agent_id=fixture.agent.id)
    again = await replace(fixture, session_id=SessionId(other.id)).send("Hello?", says("Hello."))

    assert (run.end_reason, run.turns, run.total_tokens) == (RunEnding.BUDGET, 2, 5_020)
    assert run.error is not None
    assert "has used 5,020 tokens; its limit is 5,000" in run.error["message"]
    assert again.end_reason is RunEnding.DONE


async def test_tokens_of_child_runs_count_against_the_budget(run_fixture: RunFixture) -> None:
    fixture = await office(run_fixture, max_tokens=5_000)
    plays(
        fixture,
        Go=[says("", delegates("Look"), input_tokens=90, output_tokens=10)],
        Look=[says("Seen.", input_tokens=4_900, output_tokens=10)],
    )

    run = await fixture.send("Go.")

    assert (run.end_reason, run.turns, run.child_tokens) == (RunEnding.BUDGET, 1, 4_910)
    assert (run.known_cost, run.total_unpriced) == (None, 2)


async def test_cost_of_child_runs_counts_against_the_budget_and_is_summed_once(run_fixture: RunFixture) -> None:
    await priced(run_fixture)
    fixture = await office(run_fixture, **PRICED, max_cost=0.02)
    plays(
        fixture,
        Go=[says("", delegates("Look"), input_tokens=90, output_tokens=10)],
        Look=[says("Seen.", input_tokens=9_000, output_tokens=10)],
    )

    run = await fixture.send("Go.")
    model_usage = fixture.workspace.stores.model_usage
    costs = {by: await model_usage.sums(fixture.tenant, by=by, days=30) for by in CostGroup}

    assert (run.end_reason, run.turns) == (RunEnding.BUDGET, 1)
    assert run.child_cost > run.cost > 0
    for by, found in costs.items():
        assert sum(one.cost for one in found) == run.cost + run.child_cost, by
        assert sum(one.runs for one in found) == 2, by
    # What its child runs have used is a session's own.
    assert [one.key for one in costs[CostGroup.SESSION]] == [str(fixture.session_id)]
    assert [one.key for one in costs[CostGroup.MODEL]] == ["openai/gpt-4o"]
    assert [one.key for one in costs[CostGroup.AGENT]] == [str(fixture.agent.id)]
    assert [one.key for one in costs[CostGroup.DAY]] == [f"{datetime.now(UTC):%Y-%m-%d}"]
