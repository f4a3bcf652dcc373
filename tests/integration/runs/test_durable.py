"""Runs outlive their processes: a new process resumes from what was committed; the old one commits nothing more."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.fakes.model_server import Answer
from tests.integration.gate.builders import with_tools
from tests.integration.runs.conftest import Office, opened_office, says, yes
from tests.wait_until import PATIENCE, TRIES
from toolcrib.core.ids import ProcessId, RunId, new_id
from toolcrib.core.runs import TRANSITIONS, Run, RunEnding, RunState
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runs.run_worker import RunWorker
from toolcrib.storage.server_processes import ServerProcessStore
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments


def test_state_table_is_complete() -> None:
    assert set(TRANSITIONS) == set(RunState)
    assert TRANSITIONS[RunState.ENDED] == frozenset()
    assert all(RunState.ENDED in then for state, then in TRANSITIONS.items() if state is not RunState.ENDED)


class Died(BaseException):
    """The process ends here: nothing after it is executed."""


@pytest.mark.req("RN-5", part="goes on from the last step")
async def test_new_process_resumes_from_what_was_committed(office: Office) -> None:
    """The process dies at every step in turn; the run's effects and messages are the same each time."""
    expected = None
    for dies_after in range(1, 9):
        fresh = await opened_office(office.crib, office.model, office.providers)
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
            fresh.model._answers.clear()
            fresh.model.say(*answers[3 - missing :])
            await fresh.carry_on()
        told = [(one.role, one.content, len(one.call_ids)) for one in await fresh.messages()]
        expected = expected or told
        assert told == expected
        assert (await fresh.run(run.id)).end_reason is RunEnding.DONE
        assert (fresh.crib.project / path[1:]).read_text() == "y\n"
        assert await fresh.is_whole()


async def _until_death(office: Office, steps: int) -> None:
    """Execute the run until it has made a given number of commits."""
    advance = office.advance
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

    advance._runs.save_turn = dying(advance._runs.save_turn)  # type: ignore[method-assign, no-untyped-call]
    advance._executor = _Mortal(advance._executor, dying)  # type: ignore[assignment]
    [run] = await office.take(ProcessId(new_id()))
    try:
        await advance(run)
    except Died:
        return


class _Mortal:
    def __init__(self, executor, dying) -> None:  # type: ignore[no-untyped-def]
        self._executor = executor
        self.execute = dying(executor.execute)

    def __getattr__(self, name: str) -> object:
        return getattr(self._executor, name)


@pytest.mark.req("RN-5", part="fenced")
async def test_superseded_process_commits_nothing_more(office: Office) -> None:
    run = await office.runs.submit(office.tenant, office.session_id, "Go.", via="test")
    [slow] = await office.take(ProcessId(new_id()))
    office.model.say(says("", ("write", {"path": "/a.txt", "content": "first"})), says("First."))

    [quick] = await office.take(ProcessId(new_id()))
    await office.advance(quick)
    office.model.say(says("", ("write", {"path": "/b.txt", "content": "second"})), says("Second."))
    await office.advance(slow)

    assert (await office.run(run.id)).end_reason is RunEnding.DONE
    assert [one.content for one in await office.messages()] == ["Go.", "", "First."]
    assert not (office.crib.project / "b.txt").exists()


@pytest.mark.req("RN-5", part="unknown")
async def test_started_call_with_external_effects_is_unknown_and_not_repeated(office: Office) -> None:
    rung: list[str] = []

    async def ring(arguments: ToolArguments, context: ToolContext) -> str:
        rung.append("rang")
        raise Died

    bell = Tool(
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
    crib = with_tools(office.crib, bell)
    office = await opened_office(crib, office.model, office.providers, tool_permissions={"ring": {"allowed": True}})
    run = await office.runs.submit(office.tenant, office.session_id, "Ring.", via="test")
    office.model.say(says("", ("ring", {})))
    [taken] = await office.take(ProcessId(new_id()))
    with pytest.raises(Died):
        await office.advance(taken)

    office.model.say(says("I do not know whether it rang."))
    await office.carry_on()

    assert rung == ["rang"]
    assert (await office.run(run.id)).end_reason is RunEnding.DONE
    assert "it is unknown" in office.told()[-1]["content"]
    [event] = [payload for kind, payload in await office.events() if kind == "tool-result"]
    assert event["status"] == "error"


@asynccontextmanager
async def at_work(office: Office, *, lease: float = 2.0) -> AsyncIterator[RunWorker]:
    """Run a server's loop."""
    settings = office.crib.settings
    with ProcessHeartbeat.start(settings.system_url, node=settings.node_name, lease=lease) as presence:
        processes = ServerProcessStore(office.crib.database)
        runner = RunWorker(
            office.runs, processes, office.advance, presence, node=settings.node_name, decided=asyncio.Event()
        )
        task = asyncio.create_task(runner.run())
        try:
            yield runner
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def ended(office: Office, run_id: RunId) -> Run:
    async with asyncio.timeout(PATIENCE):
        while (run := await office.run(run_id)).state is not RunState.ENDED:
            pass
    return run


@pytest.mark.req("RN-6", part="the stream, within a second, and what was said stays")
async def test_cancelling_stops_the_stream_within_a_second_and_keeps_its_text(office: Office) -> None:
    whole = says("These words were shown. These were not.")
    took = []
    async with at_work(office) as runner:
        for _ in range(TRIES):
            office.model.say(Answer(whole.pieces[:3], hang=True))
            office.model.hung_up.clear()
            asked = len(office.model.received)
            run = await office.runs.submit(office.tenant, office.session_id, "Talk.", via="test")
            runner.notify()
            async with asyncio.timeout(PATIENCE):
                while len(office.model.received) == asked:
                    await office.run(run.id)
            began = time.monotonic()
            await office.runs.cancel(office.tenant, run.id)
            await asyncio.wait_for(office.model.hung_up.wait(), PATIENCE)
            took.append(time.monotonic() - began)
            assert (await ended(office, run.id)).end_reason is RunEnding.CANCELLED
            assert await office.is_whole()
            if took[-1] < 1:
                break

    assert min(took) < 1


@pytest.mark.req("RN-6", part="while it waits")
async def test_cancelling_a_waiting_run_withdraws_its_question(office: Office) -> None:
    office = await opened_office(office.crib, office.model, office.providers, trust="guided")
    waiting = await office.send("Write it.", says("", ("write", {"path": "/a.txt", "content": "a"})))

    await office.runs.cancel(office.tenant, waiting.id)
    await office.carry_on()

    assert (await office.run(waiting.id)).end_reason is RunEnding.CANCELLED
    assert await office.crib.engine.approvals.open(office.tenant, session_id=office.session_id) == []
    assert await office.is_whole()


@pytest.mark.req("SC-1", part="another process goes on")
async def test_runs_of_a_silent_process_are_taken_over(office: Office) -> None:
    settings = office.crib.settings
    run = await office.runs.submit(office.tenant, office.session_id, "Go.", via="test")
    with ProcessHeartbeat.start(settings.system_url, node=settings.node_name, lease=1.0) as alive:
        [taken] = await office.runs.claim(alive.id, node=settings.node_name, lease=1.0, limit=1)
        assert await office.runs.claim(ProcessId(new_id()), node=settings.node_name, lease=1.0, limit=1) == []
    # It is silent now: its last heartbeat grows old.
    office.model.say(says("Taken over."))
    async with at_work(office, lease=1.0):
        done = await ended(office, run.id)

    assert taken.id == run.id
    assert (done.end_reason, done.epoch) == (RunEnding.DONE, 2)


@pytest.mark.req("SC-3", part="a run that waits")
async def test_waiting_run_has_no_process_until_a_person_decides(office: Office) -> None:
    office = await opened_office(office.crib, office.model, office.providers, trust="guided")
    waiting = await office.send("Write it.", says("", ("write", {"path": "/a.txt", "content": "a"})))

    assert await office.take(ProcessId(new_id())) == []
    assert waiting.active_since is None
    await office.decide(yes())
    assert [run.id for run in await office.take(ProcessId(new_id()))] == [waiting.id]
