"""A provider that limits requests: the run is put aside, holds no worker, and goes on when its time has come."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest

from tests.fakes.model_server import Answer
from tests.integration.runs.conftest import RunFixture, opened_office, says
from tests.wait_until import PATIENCE
from toolcrib.core.errors import Conflict, ProviderError, ProviderErrorKind
from toolcrib.core.ids import MessageId, ProcessId, RunId, new_id
from toolcrib.core.runs import ModelUsage, Run, RunEnding, RunState, RunWait
from toolcrib.runs.model_turn import FailedTurn, ProviderPatience
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.wiring.runs import run_service


def limited(retry_after: int = 600, *, status: int = 429) -> Answer:
    """The provider's answer to one request too many."""
    body = b'{"error": {"message": "Too many requests"}}'
    return Answer((body,), status=status, headers={"Retry-After": str(retry_after)}, content_type="application/json")


async def time_passes(run_fixture: RunFixture, run_id: RunId) -> None:
    """The time has come at which a run goes on."""
    async with run_fixture.workspace.engine.database.as_system() as connection:
        await connection.execute(
            "update toolcrib.runs set not_before = now() where id = %s and not_before is not null", (run_id,)
        )


async def test_a_limited_run_is_put_aside_and_then_goes_on_where_it_was(run_fixture: RunFixture) -> None:
    aside = await run_fixture.send(
        "Write it.",
        says("I write.", ("write", {"path": "/a.txt", "content": "one\n"})),
        limited(),
    )
    asked = len(run_fixture.model.received)
    # It is not its time yet.
    await run_fixture.carry_on()
    too_early = len(run_fixture.model.received)

    run_fixture.model.say(says("Written."))
    await time_passes(run_fixture, aside.id)
    await run_fixture.carry_on()
    done = await run_fixture.run(aside.id)

    assert (aside.state, aside.waits_for, aside.turns) == (RunState.READY, RunWait.PROVIDER, 1)
    assert aside.not_before is not None
    assert 500 < (aside.not_before - datetime.now(UTC)).total_seconds() <= 750
    assert aside.active_since is None
    assert too_early == asked
    assert (done.end_reason, done.turns, done.not_before, done.waits_for) == (RunEnding.DONE, 2, None, None)
    assert [one.content for one in await run_fixture.messages()] == ["Write it.", "I write.", "Written."]
    assert await run_fixture.is_complete()
    # It took milliseconds, and would have taken ten minutes.
    assert done.active_ms < PATIENCE * 1000 < done.provider_wait_ms


async def test_subscribers_learn_until_when_the_run_waits(run_fixture: RunFixture) -> None:
    run = await run_fixture.send("Go.", limited())

    states = [payload for type_, payload in await run_fixture.events() if type_ == "run-state"]
    ends = [payload for type_, payload in await run_fixture.events() if type_ == "stream-end"]

    assert run.not_before is not None
    assert (states[-1]["state"], states[-1]["waitsFor"]) == ("ready", "provider")
    assert datetime.fromisoformat(states[-1]["until"]) == run.not_before
    assert "waitsFor" not in states[0]
    # The stream that has started has an end, and says nothing.
    assert [end["content"] for end in ends] == [""]


async def test_a_run_fails_after_so_many_waits_in_a_row(run_fixture: RunFixture) -> None:
    settings = run_fixture.workspace.settings
    run = await run_fixture.send("Go.", limited())
    for waits in range(1, settings.max_provider_waits + 1):
        assert (run.state, run.provider_waits) == (RunState.READY, waits)
        run_fixture.model.say(limited())
        await time_passes(run_fixture, run.id)
        await run_fixture.carry_on()
        run = await run_fixture.run(run.id)

    assert (run.state, run.end_reason) == (RunState.ENDED, RunEnding.FAILED)
    assert run.error is not None
    assert "Too many requests" in run.error["message"]
    assert [one.content for one in await run_fixture.messages()] == ["Go."]


async def test_an_answer_ends_the_row_of_waits(run_fixture: RunFixture) -> None:
    run = await run_fixture.send("Go.", limited())
    run_fixture.model.say(says("", ("read", {"path": "/missing"})), limited())
    await time_passes(run_fixture, run.id)
    await run_fixture.carry_on()

    again = await run_fixture.run(run.id)

    assert (again.state, again.turns, again.provider_waits) == (RunState.READY, 1, 1)
    assert again.provider_wait_ms > run.provider_wait_ms


async def test_a_run_fails_if_it_would_wait_for_too_long(run_fixture: RunFixture) -> None:
    hour = int(run_fixture.workspace.settings.max_provider_wait_seconds)

    run = await run_fixture.send("Go.", limited(hour + 1))

    assert (run.state, run.end_reason) == (RunState.ENDED, RunEnding.FAILED)


async def test_a_run_past_its_time_limit_is_not_put_aside(run_fixture: RunFixture) -> None:
    run_fixture = await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, run_timeout=600)
    run = await run_fixture.send("Go.", limited())
    async with run_fixture.workspace.engine.database.as_system() as connection:
        await connection.execute("update toolcrib.runs set active_ms = 600000 where id = %s", (run.id,))
    await time_passes(run_fixture, run.id)
    await run_fixture.carry_on()

    assert (await run_fixture.run(run.id)).end_reason is RunEnding.DEADLINE


async def test_what_was_said_before_a_limit_is_kept(run_fixture: RunFixture) -> None:
    whole = says("The first half").pieces
    broken = b'data: {"error": {"code": 429, "message": "slow down"}}\n\n'
    # It is asked for twice more, and withdrawn each time.
    run = await run_fixture.send("Go.", *[Answer((*whole[:-2], broken))] * 3)

    assert (run.state, run.end_reason) == (RunState.ENDED, RunEnding.FAILED)
    assert [one.content for one in await run_fixture.messages()] == ["Go.", "The first half"]


async def test_a_run_that_is_put_aside_is_cancelled_at_once(run_fixture: RunFixture) -> None:
    run = await run_fixture.send("Go.", limited())
    queued = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "And then.", via="test")

    cancelled = await run_fixture.runs.cancel(run_fixture.tenant, run.id)

    assert (cancelled.state, cancelled.end_reason, cancelled.not_before) == (
        RunState.ENDED,
        RunEnding.CANCELLED,
        None,
    )
    assert (await run_fixture.run(queued.id)).held
    with pytest.raises(Conflict):
        await run_fixture.runs.cancel(run_fixture.tenant, run.id)
    await run_fixture.carry_on()
    assert await run_fixture.is_complete() is False, "the held message waits for its release"


async def test_a_run_that_waits_for_its_workspace_is_ended_by_a_process_when_it_is_cancelled(
    run_fixture: RunFixture,
) -> None:
    """It may have open calls, which only a process closes. It does not wait until its time has come."""
    run = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "Go.", via="test")
    [taken] = await run_fixture.take(ProcessId(new_id()))
    assert await run_fixture.runs.put_aside(taken, 600)
    waiting = await run_fixture.run(run.id)
    states = [payload for type_, payload in await run_fixture.events() if type_ == "run-state"]

    cancelled = await run_fixture.runs.cancel(run_fixture.tenant, run.id)
    [taken] = await run_fixture.take(ProcessId(new_id()))
    await run_fixture.advance(taken)

    assert (waiting.state, waiting.waits_for, waiting.provider_waits) == (RunState.READY, RunWait.WORKER, 0)
    assert states[-1]["waitsFor"] == "worker"
    assert cancelled.state is not RunState.ENDED
    assert (await run_fixture.run(run.id)).end_reason is RunEnding.CANCELLED


async def test_a_cancelled_run_is_not_put_aside(run_fixture: RunFixture) -> None:
    run = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "Go.", via="test")
    [taken] = await run_fixture.take(ProcessId(new_id()))
    await run_fixture.runs.cancel(run_fixture.tenant, run.id)
    run_fixture.model.say(limited())

    await run_fixture.advance(taken)

    assert (await run_fixture.run(run.id)).end_reason is RunEnding.CANCELLED


@pytest.mark.long
async def test_the_queue_continues_the_run_when_its_time_has_come(run_fixture: RunFixture) -> None:
    engine = run_fixture.workspace.engine
    run_fixture.model.say(limited(6), says("Hello."))
    with ProcessHeartbeat.start(engine.settings.system_url, node=engine.settings.node_name, lease=15.0) as heartbeat:
        async with run_service(engine, run_fixture.advance, heartbeat) as service:
            run = await service.submit(run_fixture.tenant, run_fixture.session_id, "Go.", via="test")
            aside = await _until(run_fixture, run, lambda now: now.not_before is not None)
            done = await _until(run_fixture, run, lambda now: now.state is RunState.ENDED)

    assert aside.waits_for is RunWait.PROVIDER
    assert (done.end_reason, done.turns, done.epoch) == (RunEnding.DONE, 1, 2)
    assert aside.not_before is not None
    assert done.ended_at is not None
    assert done.ended_at >= aside.not_before
    assert [one.content for one in await run_fixture.messages()] == ["Go.", "Hello."]


async def _until(run_fixture: RunFixture, run: Run, is_so: Callable[[Run], bool]) -> Run:
    async with asyncio.timeout(PATIENCE):
        while not is_so(now := await run_fixture.run(run.id)):
            pass
    return now


async def test_an_entry_of_the_queue_that_comes_too_early_is_not_over(run_fixture: RunFixture) -> None:
    """The queue goes by the clock of a process, which may be ahead of the database's."""
    run = await run_fixture.send("Go.", limited())

    of_this_wait = await run_fixture.runs.is_put_aside(run.workspace_id, run.id, epoch=run.epoch + 1)
    of_an_earlier_one = await run_fixture.runs.is_put_aside(run.workspace_id, run.id, epoch=run.epoch)

    assert (of_this_wait, of_an_earlier_one) == (True, False)


LIMIT, OVERLOAD = ProviderErrorKind.RATE_LIMIT, ProviderErrorKind.OVERLOADED
# What the provider answered, and the shortest wait; None if the run fails.
WAITS = [
    (429, LIMIT, None, 10),
    (429, LIMIT, 1.0, 10),
    (429, LIMIT, 300.0, 300),
    (529, OVERLOAD, None, 10),
    (503, OVERLOAD, 30.0, 30),
    (503, OVERLOAD, None, None),
    (500, ProviderErrorKind.UNAVAILABLE, None, None),
    (429, ProviderErrorKind.QUOTA, 30.0, None),
    (401, ProviderErrorKind.CREDENTIALS, 30.0, None),
    (429, LIMIT, 3601.0, None),
]


async def test_how_long_a_run_is_put_aside(run_fixture: RunFixture) -> None:
    run = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "Go.", via="test")
    patience, used = ProviderPatience(), ModelUsage("openai-compatible", "fake", 0, 0, None)
    failed = partial(FailedTurn, turn={}, is_empty=True, message_id=MessageId(new_id()), used=used)

    for status, kind, retry_after, least in WAITS:
        error = ProviderError(status, "no", kind=kind, retry_after=retry_after)
        seconds = patience.wait(run, failed(error))
        if least is None:
            assert seconds is None, (status, kind, retry_after)
        else:
            assert seconds is not None
            assert least <= seconds <= least * 1.25, (status, kind, retry_after)
    limit = failed(ProviderError(429, "no", kind=LIMIT))
    fourth = patience.wait(replace(run, provider_waits=3), limit)
    assert fourth is not None
    assert 80 <= fourth <= 100
    assert patience.wait(replace(run, provider_waits=5), limit) is None
    assert patience.wait(replace(run, provider_wait_ms=3_595_000), limit) is None
    assert patience.wait(run, replace(limit, is_empty=False)) is None
