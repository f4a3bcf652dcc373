"""A credential with limits: a turn without room is put aside in no process, and goes on when there is room."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.fakes.model_server import Answer
from tests.integration.runs.conftest import RunFixture, says
from tests.integration.runs.test_provider_limits import limited
from tests.wait_until import PATIENCE
from toolcrib.core.errors import NotFound
from toolcrib.core.ids import ProcessId, RunId, SessionId, new_id
from toolcrib.core.provider_credentials import ProviderCredentials, RequestLimits
from toolcrib.core.runs import Run, RunEnding, RunState, RunWait
from toolcrib.runs.model_slots import ModelSlots, NoModelSlot
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.storage.model_slots import ModelSlotStore
from toolcrib.storage.users import ActingUser

PROVIDER = "openai-compatible"


async def set_limits(fixture: RunFixture, *, at_once: int | None = None, per_minute: int | None = None) -> None:
    assert fixture.tenant.user_id is not None
    access = fixture.workspace.stores.access
    await access.set_limits(ActingUser(fixture.tenant.user_id), PROVIDER, RequestLimits(at_once, per_minute))


def slots_of(fixture: RunFixture, process_id: ProcessId) -> ModelSlots:
    engine = fixture.workspace.engine
    return ModelSlots(ModelSlotStore(engine.database), engine.wake_signal, process_id, lease=15.0)


@pytest.fixture
def slots(run_fixture: RunFixture) -> Iterator[ModelSlots]:
    """The slots of another process, which is alive: servers of other tests free those of dead ones at any moment."""
    settings = run_fixture.workspace.settings
    with ProcessHeartbeat.start(settings.system_url, node=settings.node_name, lease=15.0) as heartbeat:
        yield slots_of(run_fixture, heartbeat.id)


async def other_session(fixture: RunFixture) -> RunFixture:
    made = await fixture.workspace.stores.sessions.create(fixture.tenant, agent_id=fixture.agent.id)
    return replace(fixture, session_id=SessionId(made.id))


async def submitted(fixture: RunFixture, text: str) -> Run:
    """Submit a message, and take its run."""
    run = await fixture.runs.submit(fixture.tenant, fixture.session_id, text, via="test")
    taken = await take(fixture, run.id)
    assert taken is not None
    return taken


async def take(fixture: RunFixture, run_id: RunId) -> Run | None:
    node = fixture.workspace.settings.node_name
    return await fixture.runs.take(ProcessId(new_id()), fixture.tenant.workspace_id, run_id, node=node, lease=15.0)


async def send(fixture: RunFixture, text: str, *answers: Answer) -> Run:
    """Send a message and execute its run only, until it ends or waits."""
    fixture.model.say(*answers)
    run = await submitted(fixture, text)
    await fixture.advance(run)
    return await fixture.run(run.id)


async def credentials_of(fixture: RunFixture) -> ProviderCredentials:
    assert fixture.tenant.user_id is not None
    found = await fixture.workspace.stores.access.of(fixture.tenant.user_id, PROVIDER)
    assert found is not None
    return found


async def sweep(fixture: RunFixture) -> None:
    await ModelSlotStore(fixture.workspace.engine.database).sweep(ProcessId(new_id()), lease=15.0)


async def rows(fixture: RunFixture, table: str) -> int:
    async with fixture.workspace.engine.database.as_system() as connection:
        row = await connection.returned_row(
            f"select count(*) from toolcrib.{table} where user_id = %s", (fixture.tenant.user_id,)
        )
    return int(row[0])


async def test_a_credential_without_limits_leaves_no_rows(run_fixture: RunFixture) -> None:
    run = await run_fixture.send("Go.", says("Done."))

    assert run.end_reason is RunEnding.DONE
    assert await rows(run_fixture, "model_lanes") == 0


async def test_a_turn_without_room_is_put_aside_and_goes_on_when_a_request_ends(
    run_fixture: RunFixture, slots: ModelSlots
) -> None:
    await set_limits(run_fixture, at_once=1)
    first = await submitted(run_fixture, "First.")
    second = await other_session(run_fixture)
    async with slots.hold(first, PROVIDER, await credentials_of(run_fixture)):
        aside = await send(second, "Second.")
        asked = len(run_fixture.model.received)
    freed = await second.run(aside.id)
    run_fixture.model.say(says("Done."))
    taken = await take(second, aside.id)
    assert taken is not None
    await second.advance(taken)
    done = await second.run(aside.id)
    states = [payload for type_, payload in await second.events() if type_ == "run-state"]

    assert (aside.state, aside.waits_for, aside.provider_waits) == (RunState.READY, RunWait.CREDENTIAL, 0)
    assert aside.active_since is None
    assert asked == 0
    assert (freed.state, freed.waits_for) == (RunState.READY, RunWait.WORKER)
    assert (done.end_reason, done.turns, done.provider_wait_ms) == (RunEnding.DONE, 1, 0)
    assert [state["waitsFor"] for state in states if "waitsFor" in state] == ["credential"]


async def test_as_many_start_in_a_minute_as_the_limit_says(run_fixture: RunFixture) -> None:
    await set_limits(run_fixture, per_minute=2)
    await run_fixture.send("One.", says("1"))
    await run_fixture.send("Two.", says("2"))
    aside = await run_fixture.send("Three.")
    await sweep(run_fixture)
    too_early = await run_fixture.run(aside.id)
    # A minute passes.
    async with run_fixture.workspace.engine.database.as_system() as connection:
        await connection.execute("update toolcrib.model_starts set started_at = started_at - interval '1 minute'")
    await sweep(run_fixture)
    run_fixture.model.say(says("3"))
    await run_fixture.carry_on()

    assert (aside.waits_for, too_early.waits_for) == (RunWait.CREDENTIAL, RunWait.CREDENTIAL)
    assert (await run_fixture.run(aside.id)).end_reason is RunEnding.DONE
    assert await rows(run_fixture, "model_slots") == 0


async def test_another_attempt_of_a_request_counts_as_a_start(run_fixture: RunFixture) -> None:
    await set_limits(run_fixture, per_minute=5)

    run = await run_fixture.send("Go.", limited(0, status=503), says("Done."))

    assert run.end_reason is RunEnding.DONE
    assert await rows(run_fixture, "model_starts") == len(run_fixture.model.received) == 2


async def test_a_raised_limit_gives_room_at_once(run_fixture: RunFixture, slots: ModelSlots) -> None:
    await set_limits(run_fixture, at_once=1)
    first = await submitted(run_fixture, "First.")
    second = await other_session(run_fixture)
    async with slots.hold(first, PROVIDER, await credentials_of(run_fixture)):
        aside = await send(second, "Second.")
        await set_limits(run_fixture, at_once=2)
        await sweep(run_fixture)
        assert (await second.run(aside.id)).waits_for is RunWait.WORKER


async def test_a_run_that_waits_for_room_is_cancelled_at_once_and_leaves_its_place(
    run_fixture: RunFixture, slots: ModelSlots
) -> None:
    await set_limits(run_fixture, at_once=1)
    first = await submitted(run_fixture, "First.")
    second = await other_session(run_fixture)
    async with slots.hold(first, PROVIDER, await credentials_of(run_fixture)):
        aside = await send(second, "Second.")
        cancelled = await second.runs.cancel(second.tenant, aside.id)

    assert (cancelled.state, cancelled.end_reason) == (RunState.ENDED, RunEnding.CANCELLED)
    assert await rows(run_fixture, "model_slots") == 0


async def test_room_that_appears_while_a_run_is_put_aside_is_not_missed(
    run_fixture: RunFixture, slots: ModelSlots
) -> None:
    await set_limits(run_fixture, at_once=1)
    credentials = await credentials_of(run_fixture)
    first = await submitted(run_fixture, "First.")
    second = await submitted(await other_session(run_fixture), "Second.")
    async with slots.hold(first, PROVIDER, credentials):
        with pytest.raises(NoModelSlot):
            await slots.hold(second, PROVIDER, credentials).__aenter__()

    assert not await run_fixture.runs.await_slot(second, PROVIDER)
    async with slots.hold(second, PROVIDER, credentials):
        pass


async def test_the_sweep_starts_what_waits_without_another_event(run_fixture: RunFixture) -> None:
    await set_limits(run_fixture, at_once=1)
    first = await submitted(run_fixture, "First.")
    second, slots = await other_session(run_fixture), slots_of(run_fixture, ProcessId(new_id()))
    # Its process has no heartbeat: it is dead.
    await slots.hold(first, PROVIDER, await credentials_of(run_fixture)).__aenter__()
    aside = await send(second, "Second.")
    sweeping = asyncio.create_task(slots_of(run_fixture, ProcessId(new_id())).run())
    try:
        async with asyncio.timeout(PATIENCE):
            while (await second.run(aside.id)).waits_for is RunWait.CREDENTIAL:
                pass
    finally:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)


async def test_credentials_of_the_environment_are_limited_by_settings_only(run_fixture: RunFixture) -> None:
    access, user_id = run_fixture.workspace.stores.access, run_fixture.tenant.user_id
    assert user_id is not None
    access.use_environment(user_id, {PROVIDER: ProviderCredentials("of the environment")})
    access.limits = RequestLimits(at_once=3)
    try:
        found = await credentials_of(run_fixture)
        [shown] = await access.list(ActingUser(user_id))
        with pytest.raises(NotFound, match="TOOLCRIB_MODEL_REQUESTS_AT_ONCE"):
            await set_limits(run_fixture, at_once=1)
    finally:
        access.limits = RequestLimits()
        access.use_environment(user_id, {})

    assert (found.limits, shown.limits) == (RequestLimits(at_once=3), RequestLimits(at_once=3))
