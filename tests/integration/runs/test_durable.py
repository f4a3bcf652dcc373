"""Runs outlive their processes: a new process resumes from what was committed; the old one commits nothing more."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.fakes.model_server import Answer
from tests.integration.gate.builders import with_tools
from tests.integration.runs.conftest import RunFixture, opened_office, says, yes
from tests.wait_until import PATIENCE, TRIES
from toolcrib.core.errors import Overloaded
from toolcrib.core.ids import ProcessId, RunId, new_id
from toolcrib.core.runs import TRANSITIONS, Run, RunEnding, RunState, RunWait
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.events.event_bus import WakeSignal
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runs.run_worker import CLAIM_TRANSITIONS, ClaimPhase
from toolcrib.storage.database import OperationalError
from toolcrib.storage.server_state import ServerStateStore
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments, tool
from toolcrib.wiring.runs import run_service


def test_state_table_is_complete() -> None:
    assert set(TRANSITIONS) == set(RunState)
    assert TRANSITIONS[RunState.ENDED] == frozenset()
    assert all(RunState.ENDED in then for state, then in TRANSITIONS.items() if state is not RunState.ENDED)


class Died(BaseException):
    """The process ends here: nothing after it is executed."""


async def test_new_process_resumes_from_what_was_committed(run_fixture: RunFixture) -> None:
    """The process dies at every step in turn; the run's effects and messages are the same each time."""
    expected = None
    for dies_after in range(1, 9):
        fresh = await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers)
        path = f"/{dies_after}.txt"
        answers = [
            says("", ("write", {"path": path, "content": "x\n"}), ("read", {"path": "/missing"})),
            says("", ("edit", {"path": path, "old_string": "x", "new_string": "y"})),
            says("Done."),
        ]
        run = await fresh.runs.submit(fresh.tenant, fresh.session_id, "Go.", via="test")
        fresh.model.say(*answers)
        await _until_death(fresh, dies_after)
        if (await fresh.run(run.id)).state is RunState.RUNNING:
            # A turn that was streamed and not committed is requested again.
            missing = 3 - (await fresh.run(run.id)).turns
            fresh.model.unsay()
            fresh.model.say(*answers[3 - missing :])
            await fresh.carry_on()
        model_input = [(one.role, one.content, len(one.call_ids)) for one in await fresh.messages()]
        expected = expected or model_input
        assert model_input == expected
        assert (await fresh.run(run.id)).end_reason is RunEnding.DONE
        assert (fresh.workspace.project / path[1:]).read_text() == "y\n"
        assert await fresh.is_complete()


async def _until_death(run_fixture: RunFixture, steps: int) -> None:
    """Execute the run in its own process until it has made a given number of commits."""
    doomed = replace(run_fixture, workspace=run_fixture.workspace.with_engine())
    engine = doomed.workspace.engine
    done = 0

    def dying(commit):  # type: ignore[no-untyped-def]
        async def committed(*args, **kwargs):  # type: ignore[no-untyped-def]
            nonlocal done
            result = await commit(*args, **kwargs)
            done += 1
            if done >= steps:
                raise Died
            return result

        return committed

    engine.stores.runs.save_turn = dying(engine.stores.runs.save_turn)  # type: ignore[method-assign, no-untyped-call]
    advance = doomed.advance_with(execute=dying(engine.executor.execute))  # type: ignore[no-untyped-call]
    [run] = await run_fixture.take(ProcessId(new_id()))
    try:
        await advance(run)
    except Died:
        return


async def test_superseded_process_commits_nothing_more(run_fixture: RunFixture) -> None:
    run = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "Go.", via="test")
    [slow] = await run_fixture.take(ProcessId(new_id()))
    run_fixture.model.say(says("", ("write", {"path": "/a.txt", "content": "first"})), says("First."))

    [quick] = await run_fixture.take(ProcessId(new_id()))
    await run_fixture.advance(quick)
    run_fixture.model.say(says("", ("write", {"path": "/b.txt", "content": "second"})), says("Second."))
    await run_fixture.advance(slow)

    assert (await run_fixture.run(run.id)).end_reason is RunEnding.DONE
    assert [one.content for one in await run_fixture.messages()] == ["Go.", "", "First."]
    assert not (run_fixture.workspace.project / "b.txt").exists()


async def test_started_call_with_external_effects_is_unknown_and_not_repeated(run_fixture: RunFixture) -> None:
    rung: list[str] = []

    async def ring(arguments: ToolArguments, context: ToolContext) -> str:
        rung.append("rang")
        raise Died

    wake_signal = Tool(
        name="ring",
        toolset="workspace",
        description="Rings.",
        category=ToolCategory.EXEC,
        danger=Danger.DANGEROUS,
        arguments=ToolArguments,
        effects=lambda _: Effects(hosts=("bell.example",)),
        function=ring,
        idempotent=False,
        checks_membership=False,
    )
    workspace = with_tools(run_fixture.workspace, wake_signal)
    run_fixture = await opened_office(
        workspace, run_fixture.model, run_fixture.providers, tool_permissions={"ring": {"allowed": True}}
    )
    run = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "Ring.", via="test")
    run_fixture.model.say(says("", ("ring", {})))
    [taken] = await run_fixture.take(ProcessId(new_id()))
    with pytest.raises(Died):
        await run_fixture.advance(taken)

    run_fixture.model.say(says("I do not know whether it rang."))
    await run_fixture.carry_on()

    assert rung == ["rang"]
    assert (await run_fixture.run(run.id)).end_reason is RunEnding.DONE
    assert "it is unknown" in run_fixture.model_input()[-1]["content"]
    [event] = [payload for kind, payload in await run_fixture.events() if kind == "tool-result"]
    assert event["status"] == "error"


@asynccontextmanager
async def at_work(
    run_fixture: RunFixture, *, lease: float = 2.0, execute: Callable[[Run], Awaitable[None]] | None = None
) -> AsyncIterator[WakeSignal]:
    """Run a server's loop, and yield what wakes it."""
    engine = run_fixture.workspace.engine
    with ProcessHeartbeat.start(engine.settings.system_url, node=engine.settings.node_name, lease=lease) as heartbeat:
        async with run_service(engine, execute or run_fixture.advance, heartbeat):
            yield engine.wake_signal


async def ended(run_fixture: RunFixture, run_id: RunId) -> Run:
    async with asyncio.timeout(PATIENCE):
        while (run := await run_fixture.run(run_id)).state is not RunState.ENDED:
            pass
    return run


async def test_cancelling_stops_the_stream_within_a_second_and_keeps_its_text(run_fixture: RunFixture) -> None:
    whole = says("These words were shown. These were not.")
    took = []
    async with at_work(run_fixture) as signal:
        for _ in range(TRIES):
            run_fixture.model.say(Answer(whole.pieces[:3], hang=True))
            run_fixture.model.hung_up.clear()
            asked = len(run_fixture.model.received)
            run = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "Talk.", via="test")
            signal.notify(run.workspace_id, [run.id])
            async with asyncio.timeout(PATIENCE):
                while len(run_fixture.model.received) == asked:
                    await run_fixture.run(run.id)
            began = time.monotonic()
            await run_fixture.runs.cancel(run_fixture.tenant, run.id)
            await asyncio.wait_for(run_fixture.model.hung_up.wait(), PATIENCE)
            took.append(time.monotonic() - began)
            assert (await ended(run_fixture, run.id)).end_reason is RunEnding.CANCELLED
            assert await run_fixture.is_complete()
            if took[-1] < 1:
                break

    assert min(took) < 1


async def test_cancelling_a_waiting_run_withdraws_its_question(run_fixture: RunFixture) -> None:
    run_fixture = await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, trust="guided")
    waiting = await run_fixture.send("Write it.", says("", ("write", {"path": "/a.txt", "content": "a"})))

    await run_fixture.runs.cancel(run_fixture.tenant, waiting.id)
    await run_fixture.carry_on()

    assert (await run_fixture.run(waiting.id)).end_reason is RunEnding.CANCELLED
    assert (
        await run_fixture.workspace.engine.paused_calls.list(run_fixture.tenant, session_id=run_fixture.session_id)
        == []
    )
    assert await run_fixture.is_complete()


async def test_runs_of_a_silent_process_are_taken_over(run_fixture: RunFixture) -> None:
    settings = run_fixture.workspace.settings
    run = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "Go.", via="test")
    at = run.workspace_id, run.id
    with ProcessHeartbeat.start(settings.system_url, node=settings.node_name, lease=1.0) as alive:
        taken = await run_fixture.runs.take(alive.id, *at, node=settings.node_name, lease=1.0)
        assert await run_fixture.runs.take(ProcessId(new_id()), *at, node=settings.node_name, lease=1.0) is None
    # It is silent now: its last heartbeat grows old.
    run_fixture.model.say(says("Taken over."))
    async with at_work(run_fixture, lease=1.0):
        done = await ended(run_fixture, run.id)

    assert taken is not None
    assert (done.end_reason, done.epoch) == (RunEnding.DONE, 2)


async def test_run_that_was_taken_by_a_statement_without_an_answer_goes_on(run_fixture: RunFixture) -> None:
    """Its row says that this process executes it, and this process does not know of it."""
    takes = run_fixture.runs.take_free
    lost: list[RunId] = []

    async def take_unseen(*args: Any, **kwargs: Any) -> list[Run]:
        taken = await takes(*args, **kwargs)
        if taken and not lost:
            lost.extend(run.id for run in taken)
            raise OperationalError("server closed the connection unexpectedly")
        return taken

    run_fixture.runs.take_free = take_unseen  # type: ignore[method-assign]
    run_fixture.model.say(says("Found."))
    async with at_work(run_fixture, lease=4.0) as signal:
        run = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "Go.", via="test")
        signal.notify(run.workspace_id, [run.id])
        done = await ended(run_fixture, run.id)

    assert lost == [run.id]
    assert done.end_reason is RunEnding.DONE
    assert done.epoch > 1


async def test_released_run_is_not_given_up_when_the_database_is_away_as_it_is_stopped(
    run_fixture: RunFixture,
) -> None:
    """A person cancels it, and the release is tried until the database has done it."""
    releases = run_fixture.runs.release
    failed: list[object] = []

    async def release(*args: Any, **kwargs: Any) -> bool:
        if len(failed) < 3:
            failed.append(args)
            raise OperationalError("connection refused")
        return await releases(*args, **kwargs)

    run_fixture.runs.release = release  # type: ignore[method-assign]
    run_fixture.model.say(Answer(says("Never whole.").pieces[:3], hang=True))
    async with at_work(run_fixture) as signal:
        run = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "Go.", via="test")
        signal.notify(run.workspace_id, [run.id])
        async with asyncio.timeout(PATIENCE):
            while not run_fixture.model.received:
                await run_fixture.run(run.id)
        await run_fixture.runs.cancel(run_fixture.tenant, run.id)
        done = await ended(run_fixture, run.id)

    assert len(failed) == 3
    assert done.end_reason is RunEnding.CANCELLED


async def test_call_that_found_no_room_is_repeated_and_the_model_reads_only_its_result(run_fixture: RunFixture) -> None:
    begun: list[str] = []

    @tool(name="search_all", read_only=True, idempotent=True)
    async def search_all() -> str:
        """Do more than the server has room for at the moment."""
        begun.append("once")
        if len(begun) == 1:
            raise Overloaded("Too many searches are queued. Try again in a moment.")
        return "Found."

    workspace = with_tools(run_fixture.workspace, search_all)
    run_fixture = await opened_office(
        workspace, run_fixture.model, run_fixture.providers, tool_permissions={"search_all": {"allowed": True}}
    )
    run_fixture.model.say(says("", ("search_all", {})), says("Done."))
    async with at_work(run_fixture) as signal:
        run = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "Search.", via="test")
        signal.notify(run.workspace_id, [run.id])
        done = await ended(run_fixture, run.id)

    assert (done.end_reason, len(begun)) == (RunEnding.DONE, 2)
    assert "Found." in run_fixture.model_input()[-1]["content"]
    assert [event["status"] for kind, event in await run_fixture.events() if kind == "tool-result"] == ["success"]


async def test_run_that_nobody_attends_to_is_named_and_counted(
    run_fixture: RunFixture, database_urls: DatabaseUrls
) -> None:
    state = ServerStateStore(run_fixture.workspace.engine.database)
    run = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "Go.", via="test")
    before = (await state.read()).unattended_runs
    assert (await run_fixture.run(run.id)).waits_for is RunWait.WORKER

    with psycopg.connect(database_urls.owner) as connection:
        connection.execute("delete from dbos.workflow_status where workflow_uuid like %s", (f"{run.id}/%",))
    assert (await run_fixture.run(run.id)).waits_for is RunWait.NOBODY

    # Of a process that has no heartbeat.
    [_] = await run_fixture.take(ProcessId(new_id()))
    assert (await run_fixture.run(run.id)).waits_for is RunWait.NOBODY
    assert (await state.read()).unattended_runs == before + 1


def test_claims_end_over_and_releasing_is_never_left_for_work() -> None:
    assert set(CLAIM_TRANSITIONS) == set(ClaimPhase)
    assert CLAIM_TRANSITIONS[ClaimPhase.OVER] == frozenset()
    assert CLAIM_TRANSITIONS[ClaimPhase.RELEASING] == {ClaimPhase.OVER}
    assert all(ClaimPhase.OVER in after for phase, after in CLAIM_TRANSITIONS.items() if phase is not ClaimPhase.OVER)


async def test_waiting_run_has_no_process_until_a_person_decides(run_fixture: RunFixture) -> None:
    run_fixture = await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, trust="guided")
    waiting = await run_fixture.send("Write it.", says("", ("write", {"path": "/a.txt", "content": "a"})))

    assert await run_fixture.take(ProcessId(new_id())) == []
    assert waiting.active_since is None
    await run_fixture.decide(yes())
    assert [run.id for run in await run_fixture.take(ProcessId(new_id()))] == [waiting.id]
