"""What can go wrong around a run: races with people, processes that die or sleep, models that misbehave."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.fakes import strictness, wires
from tests.fakes.model_server import Answer, plain
from tests.fakes.scripted_turns import Scene, SceneCall
from tests.integration.gate.builders import joined, with_tools
from tests.integration.runs.conftest import MODEL, RunFixture, no, opened_office, says, yes
from tests.integration.runs.test_durable import Died, at_work, ended
from tests.wait_until import PATIENCE, TRIES
from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import Conflict, Superseded
from toolcrib.core.ids import ProcessId, RunId, new_id
from toolcrib.core.model_stream import FinishReason
from toolcrib.core.runs import Run, RunEnding, RunState
from toolcrib.core.tool_calls import Danger, Effects, Outcome, ToolCategory
from toolcrib.policy.agent_definition import render_definition
from toolcrib.storage.database import Tenant
from toolcrib.storage.user_admin import UserAdmin
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments

WRITE = ("write", {"path": "/a.txt", "content": "a\n"})


@pytest.fixture
async def strict(run_fixture: RunFixture) -> AsyncIterator[RunFixture]:
    """A session whose every request to the model is one that the real services accept."""
    yield run_fixture
    assert_valid(run_fixture)


def assert_valid(run_fixture: RunFixture) -> None:
    for request in run_fixture.model.received:
        if "messages" in request.body:
            refusal = strictness.openai_refusal(request.body)
            assert refusal is None, f"{refusal}\n{json.dumps(request.body['messages'], indent=1)[:3_000]}"


async def guided(run_fixture: RunFixture, **rules: Any) -> RunFixture:
    return await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, trust="guided", **rules)


async def taken(run_fixture: RunFixture) -> Run:
    [run] = await run_fixture.take(ProcessId(new_id()))
    return run


async def submitted(run_fixture: RunFixture, text: str = "Go.") -> RunId:
    return (await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, text, via="test")).id


# Races at the moment when a run starts to wait


async def test_decision_made_while_the_run_starts_to_wait_wakes_it(
    strict: RunFixture, database_urls: DatabaseUrls
) -> None:
    """The wait is committed between the start and the commit of the decision, or the other way round."""
    run_fixture = await guided(strict)
    waiting = await run_fixture.send("Write.", says("", WRITE))
    await put_back(run_fixture, waiting.id)
    run = await taken(run_fixture)
    async with asleep_but_not_committed(run_fixture, run):
        deciding = asyncio.create_task(run_fixture.decide(yes()))
        await blocked(database_urls.owner, "update toolcrib.paused_calls", deciding)
    await deciding
    assert (await run_fixture.run(run.id)).state is RunState.READY
    run_fixture.model.say(says("Written."))
    await run_fixture.carry_on()
    assert (await run_fixture.run(run.id)).end_reason is RunEnding.DONE


@asynccontextmanager
async def asleep_but_not_committed(run_fixture: RunFixture, run: Run) -> AsyncIterator[None]:
    """Do what ``Runs.wait`` does, and pause before the commit."""
    async with run_fixture.workspace.database.as_system() as connection, connection.transaction():
        await connection.execute("select toolcrib.lock_run(%s, %s, %s)", (run.workspace_id, run.id, run.epoch))
        await connection.execute(
            "update toolcrib.runs set state = 'waiting', worker_id = null where workspace_id = %s and id = %s",
            (run.workspace_id, run.id),
        )
        yield


async def put_back(run_fixture: RunFixture, run_id: RunId) -> None:
    async with run_fixture.workspace.database.as_system() as connection:
        await connection.execute("update toolcrib.runs set state = 'ready' where id = %s", (run_id,))


async def blocked(owner_url: str, query: str, task: asyncio.Task[Any]) -> None:
    """Return when a statement waits for a lock that we hold, or has passed it."""
    async with asyncio.timeout(PATIENCE), await psycopg.AsyncConnection.connect(owner_url, autocommit=True) as watching:
        while not task.done():
            cursor = await watching.execute(
                """
                select count(*) from pg_stat_activity
                where datname = current_database() and wait_event_type = 'Lock' and query ~ %s
                """,
                (query,),
            )
            row = await cursor.fetchone()
            if row and row[0]:
                return


async def test_superseded_process_does_not_spin_while_the_run_waits(strict: RunFixture) -> None:
    run_fixture = await guided(strict)
    waiting = await run_fixture.send("Write.", says("", WRITE))
    await put_back(run_fixture, waiting.id)
    slow = await taken(run_fixture)
    await put_back(run_fixture, waiting.id)
    quick = await taken(run_fixture)
    await run_fixture.advance(quick)
    assert (await run_fixture.run(waiting.id)).state is RunState.WAITING

    async with asyncio.timeout(PATIENCE):
        await run_fixture.advance(slow)
    with pytest.raises(Superseded):
        await run_fixture.runs.save_waiting(slow, [])

    assert (await run_fixture.run(waiting.id)).state is RunState.WAITING


async def test_of_two_answers_the_first_wins(strict: RunFixture) -> None:
    run_fixture = await guided(strict)
    waiting = await run_fixture.send("Write.", says("", WRITE))
    [approval] = await run_fixture.workspace.engine.paused_calls.list(
        run_fixture.tenant, session_id=run_fixture.session_id
    )

    outcomes = await asyncio.gather(
        *(
            run_fixture.workspace.engine.paused_calls.decide(run_fixture.tenant, approval.id, decision, via="test")
            for decision in (yes(), no(), yes(), no())
        ),
        return_exceptions=True,
    )
    run_fixture.model.say(says("So be it."))
    await run_fixture.carry_on()

    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 3
    assert (await run_fixture.run(waiting.id)).end_reason is RunEnding.DONE
    assert await run_fixture.is_complete()


async def test_crash_during_an_approved_call_does_not_ask_again(strict: RunFixture) -> None:
    run_fixture = await guided(strict)
    waiting = await run_fixture.send("Write.", says("", WRITE))
    await run_fixture.decide(yes())

    async def dying(*_: Any, **__: Any) -> None:
        async with run_fixture.workspace.database.as_system() as connection:
            # The state after the call has started, and before its change is committed.
            await connection.execute(
                "update toolcrib.tool_calls set state = 'running' where run_id = %s", (waiting.id,)
            )
        raise Died

    with pytest.raises(Died):
        await run_fixture.advance_with(resume=dying)(await taken(run_fixture))
    run_fixture.model.say(says("Written."))
    async with asyncio.timeout(PATIENCE):
        await run_fixture.carry_on()

    assert (await run_fixture.run(waiting.id)).end_reason is RunEnding.DONE
    assert (run_fixture.workspace.project / "a.txt").read_text() == "a\n"
    assert [kind for kind, _ in await run_fixture.events()].count("tool-confirm") == 1


# Cancellation


async def test_queued_run_is_cancelled_at_once_and_never_starts(strict: RunFixture) -> None:
    run_fixture = await guided(strict)
    first = await run_fixture.send("Write.", says("", WRITE))
    second, third = await submitted(run_fixture, "Second."), await submitted(run_fixture, "Third.")

    cancelled = await run_fixture.runs.cancel(run_fixture.tenant, second)
    await run_fixture.decide(no())
    run_fixture.model.say(says("No."), says("Third, then."))
    await run_fixture.carry_on()

    assert cancelled.end_reason is RunEnding.CANCELLED
    assert (await run_fixture.run(first.id)).end_reason is RunEnding.DONE
    assert (await run_fixture.run(third)).end_reason is RunEnding.DONE
    assert [one.content for one in await run_fixture.messages() if one.role == "user"] == ["Write.", "Third."]


async def test_stopping_a_run_holds_the_queued_messages_until_they_are_released(strict: RunFixture) -> None:
    run_fixture = await guided(strict)
    first = await run_fixture.send("Write.", says("", WRITE))
    second, third = await submitted(run_fixture, "Second."), await submitted(run_fixture, "Third.")

    await run_fixture.runs.cancel(run_fixture.tenant, first.id)
    later = await submitted(run_fixture, "Do this instead.")
    run_fixture.model.say(says("Instead."))
    await run_fixture.carry_on()
    asked = len(run_fixture.model.received)
    held = [await run_fixture.run(run_id) for run_id in (second, third)]
    shown = [payload for kind, payload in await run_fixture.events() if kind == "run-state" and payload.get("held")]

    await run_fixture.runs.release_held(run_fixture.tenant, third)
    with pytest.raises(Conflict, match="not held"):
        await run_fixture.runs.release_held(run_fixture.tenant, third)
    await run_fixture.runs.cancel(run_fixture.tenant, second)
    run_fixture.model.say(says("Third, then."))
    await run_fixture.carry_on()

    assert (await run_fixture.run(first.id)).end_reason is RunEnding.CANCELLED
    assert [(run.state, run.held) for run in held] == [(RunState.QUEUED, True)] * 2
    assert [(one["runId"], one["prompt"]) for one in shown] == [(str(second), "Second."), (str(third), "Third.")]
    assert asked == 2
    assert (await run_fixture.run(later)).end_reason is RunEnding.DONE
    assert (await run_fixture.run(third)).end_reason is RunEnding.DONE
    said = [one.content for one in await run_fixture.messages() if one.role == "user"]
    assert said == ["Write.", "Do this instead.", "Third."]


async def test_cancelling_while_runs_start_and_end_never_deadlocks(strict: RunFixture) -> None:
    ids = [await submitted(strict, f"Message {number}.") for number in range(12)]
    strict.model.say(*(says("Yes.") for _ in ids))

    async def cancel(run_id: RunId) -> None:
        try:
            await strict.runs.cancel(strict.tenant, run_id)
        except Conflict:
            return

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(strict.carry_on(), *(cancel(run_id) for run_id in ids[1:]))
        await strict.carry_on()
        # A run that had started held those behind it that were not cancelled yet.
        await asyncio.gather(*(cancel(run_id) for run_id in ids[1:]))

    endings = {(await strict.run(run_id)).end_reason for run_id in ids}
    assert endings <= {RunEnding.DONE, RunEnding.CANCELLED}


async def test_cancelling_during_compaction_leaves_the_context_unchanged(run_fixture: RunFixture) -> None:
    await run_fixture.send("First.", says("One."))
    await run_fixture.send("Second.", says("Two.", input_tokens=90_000))
    asked = len(run_fixture.model.received)
    run_fixture.model.say(Answer(says("A summary").pieces[:2], hang=True))
    async with at_work(run_fixture) as signal:
        run_id = await submitted(run_fixture, "Third.")
        signal.notify(run_fixture.tenant.workspace_id, [run_id])
        async with asyncio.timeout(PATIENCE):
            while len(run_fixture.model.received) == asked:
                await run_fixture.run(run_id)
        await run_fixture.runs.cancel(run_fixture.tenant, run_id)
        run = await ended(run_fixture, run_id)

    assert run.end_reason is RunEnding.CANCELLED
    assert [one.role for one in await run_fixture.messages()] == ["user", "assistant", "user", "assistant", "user"]


async def test_cancelling_during_a_call_stops_it_and_leaves_a_consistent_history(run_fixture: RunFixture) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    async def dawdle(arguments: ToolArguments, context: ToolContext) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    run_fixture = await opened_office(
        with_tools(run_fixture.workspace, _tool("dawdle", dawdle)),
        run_fixture.model,
        run_fixture.providers,
        tool_permissions={"dawdle": {"allowed": True}, "ls": {"allowed": True}},
    )
    took = []
    async with at_work(run_fixture) as signal:
        for _ in range(TRIES):
            run_fixture.model.say(says("I wait.", ("dawdle", {}), ("dawdle", {})))
            began.clear()
            stopped.clear()
            run_id = await submitted(run_fixture)
            signal.notify(run_fixture.tenant.workspace_id, [run_id])
            await asyncio.wait_for(began.wait(), PATIENCE)
            asked_at = time.monotonic()
            await run_fixture.runs.cancel(run_fixture.tenant, run_id)
            await asyncio.wait_for(stopped.wait(), PATIENCE)
            took.append(time.monotonic() - asked_at)
            run = await ended(run_fixture, run_id)
            assert run.end_reason is RunEnding.CANCELLED
            assert await run_fixture.is_complete()
            if took[-1] < 1:
                break

    assert min(took) < 1
    await run_fixture.send("And now?", says("Now this."))
    assert_valid(run_fixture)


async def test_response_interrupted_by_a_server_shutdown_is_requested_again(run_fixture: RunFixture) -> None:
    run_fixture.model.say(Answer(says("Half of an answer that goes on.").pieces[:3], hang=True))
    async with at_work(run_fixture) as signal:
        run_id = await submitted(run_fixture)
        signal.notify(run_fixture.tenant.workspace_id, [run_id])
        async with asyncio.timeout(PATIENCE):
            while not run_fixture.model.received:
                await run_fixture.run(run_id)
    assert (await run_fixture.run(run_id)).state is RunState.READY

    run_fixture.model.say(says("The whole answer."))
    await run_fixture.carry_on()

    assert (await run_fixture.run(run_id)).end_reason is RunEnding.DONE
    assert [one.content for one in await run_fixture.messages()] == ["Go.", "The whole answer."]


async def test_call_interrupted_by_a_server_shutdown_is_left_to_the_next_server(run_fixture: RunFixture) -> None:
    began: list[asyncio.Event] = [asyncio.Event()]

    async def dawdle(arguments: ToolArguments, context: ToolContext) -> str:
        if not began[0].is_set():
            began[0].set()
            await asyncio.Event().wait()
        return "done at last"

    run_fixture = await opened_office(
        with_tools(run_fixture.workspace, _tool("dawdle", dawdle, idempotent=True)),
        run_fixture.model,
        run_fixture.providers,
        tool_permissions={"dawdle": {"allowed": True}},
    )
    run_fixture.model.say(says("", ("dawdle", {})), says("Good."))
    async with at_work(run_fixture) as signal:
        run_id = await submitted(run_fixture)
        signal.notify(run_fixture.tenant.workspace_id, [run_id])
        await asyncio.wait_for(began[0].wait(), PATIENCE)

    await run_fixture.carry_on()

    assert (await run_fixture.run(run_id)).end_reason is RunEnding.DONE
    assert run_fixture.model_input()[-1]["content"] == "done at last"


# Processes


async def test_run_continues_after_its_process_loses_the_database_for_a_moment(run_fixture: RunFixture) -> None:
    run_fixture.model.say(says("", ("ls", {"path": "/"})), says("", ("ls", {"path": "/"})), says("Done."))
    broken = 0

    async def failing(run: Run) -> None:
        nonlocal broken
        if broken < 2:
            broken += 1
            raise psycopg.OperationalError("the connection was lost")
        await run_fixture.advance(run)

    async with at_work(run_fixture, execute=failing) as signal:
        run_id = await submitted(run_fixture)
        signal.notify(run_fixture.tenant.workspace_id, [run_id])
        run = await ended(run_fixture, run_id)

    assert (run.end_reason, broken, run.epoch) == (RunEnding.DONE, 2, 3)


async def test_run_that_fails_by_an_internal_error_ends_and_reports_it(
    run_fixture: RunFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(run_fixture.workspace.stores.agents, "get", broken)
    run_id = await submitted(run_fixture)
    await run_fixture.advance(await taken(run_fixture))

    run = await run_fixture.run(run_id)
    assert run.end_reason is RunEnding.FAILED
    assert run.error is not None
    assert "Internal server error" in run.error["message"]


# People and rules that change meanwhile


async def test_deleting_the_session_ends_the_run(strict: RunFixture) -> None:
    run_fixture = await guided(strict)
    await run_fixture.send("Write.", says("", WRITE))
    await run_fixture.decide(yes())
    run = await taken(run_fixture)
    await run_fixture.workspace.stores.sessions.delete(run_fixture.tenant, run_fixture.session_id)

    async with asyncio.timeout(PATIENCE):
        await run_fixture.advance(run)

    assert not (run_fixture.workspace.project / "a.txt").exists()


async def test_deleting_the_agent_fails_the_run_and_withdraws_its_approval(strict: RunFixture) -> None:
    run_fixture = await guided(strict)
    waiting = await run_fixture.send("Write.", says("", WRITE))
    await run_fixture.workspace.stores.agents.delete(run_fixture.tenant, run_fixture.agent.id)
    await put_back(run_fixture, waiting.id)

    await run_fixture.carry_on()

    run = await run_fixture.run(waiting.id)
    assert run.end_reason is RunEnding.FAILED
    assert (
        await run_fixture.workspace.engine.paused_calls.list(run_fixture.tenant, session_id=run_fixture.session_id)
        == []
    )
    assert await run_fixture.is_complete()


@pytest.mark.parametrize("became", ["nobody", "viewer", "disabled"])
async def test_removing_the_sender_stops_further_model_requests(strict: RunFixture, became: str) -> None:
    run_fixture = strict
    first = says("", ("ls", {"path": "/"}))
    run_fixture.model.say(first)
    run_id = await submitted(run_fixture)
    workspace, sender = run_fixture.workspace, run_fixture.workspace.caller.user_id
    owner = Tenant.of(await joined(workspace, WorkspaceRole.OWNER))

    async def removed_meanwhile(*args: Any) -> Outcome:
        outcome = await workspace.engine.executor.execute(*args)
        if became == "nobody":
            await workspace.stores.workspaces.remove_member(owner, sender)
        elif became == "disabled":
            await UserAdmin(workspace.database).change(sender, disabled=True)
        else:
            await workspace.stores.workspaces.change_role(owner, sender, WorkspaceRole.VIEWER)
        return outcome

    await run_fixture.advance_with(execute=removed_meanwhile)(await taken(run_fixture))

    async with run_fixture.workspace.database.as_system() as connection:
        cursor = await connection.execute("select end_reason, error from toolcrib.runs where id = %s", (run_id,))
        row = await cursor.fetchone()
    assert row is not None
    assert row[0] == "failed"
    assert "no longer a member" in row[1]["message"]
    assert len(run_fixture.model.received) == 1


async def test_tightened_rules_apply_to_a_run_in_progress(strict: RunFixture) -> None:
    run_fixture = strict
    run_id = await submitted(run_fixture)
    run_fixture.model.say(says("", ("ls", {"path": "/"})), says("", WRITE), says("I may not."))

    async def tightened(*args: Any) -> Outcome:
        outcome = await run_fixture.workspace.engine.executor.execute(*args)
        given = run_fixture.agent.rules.model_dump(mode="json")
        rules = AgentRules.model_validate({**given, "tool_permissions": {"ls": {"allowed": True}}})
        definition = render_definition(rules)
        await run_fixture.workspace.stores.agents.update(
            run_fixture.tenant, run_fixture.agent.id, definition=definition
        )
        return outcome

    await run_fixture.advance_with(execute=tightened)(await taken(run_fixture))

    assert (await run_fixture.run(run_id)).end_reason is RunEnding.DONE
    assert not (run_fixture.workspace.project / "a.txt").exists()
    assert {tool["function"]["name"] for tool in run_fixture.model.last.body["tools"]} == {"ls"}


# Models that misbehave


async def test_stream_that_breaks_off_is_withdrawn_and_asked_for_again(strict: RunFixture) -> None:
    whole = says("These words were shown. These were not.")

    run = await strict.send("Talk.", Answer(whole.pieces[:4], cut=True), says("All of it."))

    assert run.end_reason is RunEnding.DONE
    assert [one.content for one in await strict.messages()] == ["Talk.", "All of it."]
    ends = [payload for kind, payload in await strict.events() if kind == "stream-end"]
    assert [(end["finishReason"], end["content"]) for end in ends] == [("withdrawn", ""), ("stop", "All of it.")]


async def test_stream_of_a_process_that_died_is_withdrawn_by_the_next_one(strict: RunFixture) -> None:
    run = await strict.runs.submit(strict.tenant, strict.session_id, "Talk.", via="test")
    strict.model.say(Answer(says("These words were shown. These were not.").pieces[:4], hang=True))
    [taken] = await strict.take(ProcessId(new_id()))
    streaming = asyncio.create_task(strict.advance(taken))
    async with asyncio.timeout(PATIENCE):
        while not strict.model.received:
            await strict.run(run.id)
    streaming.cancel()
    await asyncio.gather(streaming, return_exceptions=True)

    strict.model.say(says("Said by the heir."))
    await strict.carry_on()

    streams = [payload for kind, payload in await strict.events() if kind.startswith("stream-")]
    assert [one.get("finishReason") for one in streams] == [None, "withdrawn", None, "stop"]
    assert streams[0]["messageId"] == streams[1]["messageId"] != streams[2]["messageId"]


async def test_truncated_stream_fails_the_run_with_what_was_received(strict: RunFixture) -> None:
    whole = says("These words were shown. These were not.")

    run = await strict.send("Talk.", *[Answer(whole.pieces[:4], cut=True)] * 3)

    assert run.end_reason is RunEnding.FAILED
    [asked, cut] = await strict.messages()
    assert cut.content
    assert cut.metadata == {"cut": True}
    ends = [payload["finishReason"] for kind, payload in await strict.events() if kind == "stream-end"]
    assert ends == ["withdrawn", "withdrawn", "cut"]
    await strict.send("Again.", says("Better."))
    assert strict.model_input()[-1]["content"] == "Again."
    assert asked.role == "user"


@pytest.mark.parametrize("status", [400, 401, 500])
async def test_provider_error_fails_the_run_and_the_next_message_is_answered(strict: RunFixture, status: int) -> None:
    refusals = [plain(status, {"error": {"message": "no"}}, retry_after="0") for _ in range(10)]
    failed = await strict.send("Talk.", *refusals)
    strict.model.unsay()

    again = await strict.send("Again.", says("Yes."))

    assert (failed.end_reason, again.end_reason) == (RunEnding.FAILED, RunEnding.DONE)
    assert failed.error is not None


async def test_model_timeout_fails_the_run(strict: RunFixture) -> None:
    run_fixture = await opened_office(strict.workspace, strict.model, strict.providers, turn_timeout=0.3)

    run = await run_fixture.send("Talk.", Answer((), hang=True), Answer((), hang=True), Answer((), hang=True))

    assert run.end_reason is RunEnding.FAILED
    assert run.error is not None


@pytest.mark.parametrize("reason", list(FinishReason))
@pytest.mark.parametrize("thinking", ["", "Hm."])
async def test_empty_response_of_any_kind_ends_the_run_and_harms_no_later_one(
    strict: RunFixture, reason: FinishReason, thinking: str
) -> None:
    empty = Answer(tuple(wires.chat_completions(Scene(thinking=thinking, reason=reason), MODEL)))
    run = await strict.send("Talk.", empty)

    again = await strict.send("Again.", says("Yes."))

    assert (run.end_reason, again.end_reason) == (RunEnding.FAILED, RunEnding.DONE)
    codes = {FinishReason.LENGTH: "OUTPUT_LIMIT", FinishReason.REFUSAL: "ANSWER_REFUSED"}
    assert run.error is not None
    assert run.error["code"] == codes.get(reason, "EMPTY_ANSWER")


@pytest.mark.parametrize("path", ["/a.txt", "/none.txt"], ids=["calls that worked", "a call that failed"])
async def test_empty_answer_after_calls_is_told_and_ends_the_run_by_how_they_ended(
    strict: RunFixture, path: str
) -> None:
    calls = says("", ("write", {"path": "/a.txt", "content": "a"}), ("read", {"path": path}))
    run = await strict.send("Write.", calls, says(""))

    last = (await strict.messages())[-1]
    [*_, end] = [payload for kind, payload in await strict.events() if kind == "stream-end"]
    if path == "/a.txt":
        assert (run.end_reason, run.error) == (RunEnding.DONE, None)
        assert last.content == "(The model ended without an answer, after calls that worked: `write`, `read`.)"
        assert end["content"] == last.content
    else:
        assert (run.end_reason, run.error and run.error["code"]) == (RunEnding.FAILED, "EMPTY_ANSWER")
    assert (await strict.send("Again.", says("Yes."))).end_reason is RunEnding.DONE


async def test_response_truncated_at_the_models_own_limit_is_marked(strict: RunFixture) -> None:
    scene = Scene(text="As long as I could", reason=FinishReason.LENGTH)

    run = await strict.send("Talk.", Answer(tuple(wires.chat_completions(scene, MODEL))))

    [end] = [payload for kind, payload in await strict.events() if kind == "stream-end"]
    assert end["finishReason"] == "length"
    assert (run.end_reason, run.error and run.error["code"]) == (RunEnding.FAILED, "OUTPUT_LIMIT")
    assert [one.content for one in await strict.messages()] == ["Talk.", "As long as I could"]


async def test_call_that_the_output_limit_has_cut_is_named_and_none_of_its_message_runs(strict: RunFixture) -> None:
    calls = (
        SceneCall("call_0", "write", '{"path": "/whole.txt", "content": "a"}'),
        SceneCall("call_1", "write", '{"path": "/cut.txt", "content": "b'),
    )
    scene = Scene(text="Two files.", calls=calls, reason=FinishReason.LENGTH)

    run = await strict.send("Write.", Answer(tuple(wires.chat_completions(scene, MODEL))))

    assert run.end_reason is RunEnding.FAILED
    assert run.error is not None
    assert "requested calls that did not run: `write`, `write`" in run.error["message"]
    assert list(strict.workspace.project.glob("*.txt")) == []
    assert await strict.is_complete()


async def test_repeated_call_ids_of_the_model_are_kept_separate(strict: RunFixture) -> None:
    calls = tuple(SceneCall("call_0", "ls", '{"path": "/"}') for _ in range(3))
    scene = Scene(calls=calls, reason=FinishReason.TOOL_CALLS)
    answer = Answer(tuple(wires.chat_completions(scene, MODEL)))

    run = await strict.send("Look.", answer, answer, says("Seen."))

    assert run.end_reason is RunEnding.DONE
    assert len({call_id for one in await strict.messages() for call_id in one.call_ids}) == 6
    assert len([message for message in strict.model_input() if message["role"] == "tool"]) == 6
    assert await strict.is_complete()


async def test_hundred_calls_in_one_message_are_all_answered(strict: RunFixture) -> None:
    calls = [("write", {"path": f"/{number}.txt", "content": "x"}) for number in range(100)]

    run = await strict.send("Many.", says("", *calls), says("Done."))

    assert run.end_reason is RunEnding.DONE
    assert len(list(strict.workspace.project.glob("*.txt"))) == 100
    assert len([message for message in strict.model_input() if message["role"] == "tool"]) == 100


NO_OBJECTS = [
    '{"path": "/a',
    "[1, 2]",
    "null",
    '"text"',
    '{"path": 1e999}',
    '{"a":' * 5_000,
    "{'path': '/'}",
    "\\ud800",
]


@pytest.mark.parametrize("arguments", NO_OBJECTS)
async def test_arguments_that_are_not_an_object_get_an_error_and_the_loop_continues(
    strict: RunFixture, arguments: str
) -> None:
    scene = Scene(calls=(SceneCall("call_x", "ls", arguments),), reason=FinishReason.TOOL_CALLS)

    run = await strict.send("Look.", Answer(tuple(wires.chat_completions(scene, MODEL))), says("I see."))

    assert run.end_reason is RunEnding.DONE
    assert await strict.is_complete()


async def test_text_that_postgresql_cannot_store_does_not_break_the_run(strict: RunFixture) -> None:
    odd = "a\x00b\ud800c"

    run = await strict.send(odd.replace("\x00", "").replace("\ud800", ""), says(odd, ("ls", {"path": odd})), says(odd))

    assert run.end_reason in (RunEnding.DONE, RunEnding.VIOLATION)
    assert await strict.is_complete()


async def test_arguments_and_results_of_megabytes_work_and_the_model_gets_a_part(strict: RunFixture) -> None:
    large = "line of text\n" * 200_000

    run = await strict.send(
        "Much.",
        in_one_piece("write", {"path": "/large.txt", "content": large}),
        says("", ("read", {"path": "/large.txt", "limit": 0}), ("file_info", {"path": "/none"})),
        says("Done."),
    )

    assert run.end_reason is RunEnding.DONE
    assert (strict.workspace.project / "large.txt").read_text() == large
    assert all(len(message["content"]) < 100_000 for message in strict.model_input() if message["role"] == "tool")


async def test_after_a_violation_no_other_call_of_the_message_starts(strict: RunFixture) -> None:
    """Calls that depend on each other keep their order; here all of them follow the one that reads everything."""
    escape = ("read", {"path": "/../../etc/passwd"})
    writes = [("write", {"path": "/a.txt", "content": str(number)}) for number in range(20)]

    run = await strict.send("Escape.", says("", escape, *writes))

    assert run.end_reason is RunEnding.VIOLATION
    assert await strict.is_complete()
    assert not (strict.workspace.project / "a.txt").exists()


async def test_violations_are_counted_across_the_processes_of_a_run(strict: RunFixture) -> None:
    run_fixture = await opened_office(strict.workspace, strict.model, strict.providers, max_sandbox_violations=1)
    run_id = await submitted(run_fixture)
    run_fixture.model.say(says("", ("read", {"path": "/../x"})), Answer((), hang=True))
    task = asyncio.create_task(run_fixture.advance(await taken(run_fixture)))
    async with asyncio.timeout(PATIENCE):
        while len(run_fixture.model.received) < 2:
            await run_fixture.run(run_id)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    run_fixture.model.unsay()
    run_fixture.model.say(says("", ("read", {"path": "/../y"})))
    await run_fixture.carry_on()

    assert (await run_fixture.run(run_id)).end_reason is RunEnding.VIOLATION


async def test_time_spent_waiting_for_a_person_is_not_counted(strict: RunFixture) -> None:
    run_fixture = await guided(strict, run_timeout=5)
    waiting = await run_fixture.send("Write.", says("", WRITE))
    async with run_fixture.workspace.database.as_system() as connection:
        # It has waited for an hour, after four seconds of work.
        await connection.execute(
            """
            update toolcrib.runs set active_ms = 4000, created_at = now() - interval '1 hour',
                started_at = now() - interval '1 hour' where id = %s
            """,
            (waiting.id,),
        )
    await run_fixture.decide(yes())
    run_fixture.model.say(says("Written."))
    await run_fixture.carry_on()
    assert (await run_fixture.run(waiting.id)).end_reason is RunEnding.DONE


async def test_nothing_new_starts_after_the_deadline(strict: RunFixture) -> None:
    run_fixture = await opened_office(strict.workspace, strict.model, strict.providers, run_timeout=5)
    run_id = await submitted(run_fixture)
    run_fixture.model.say(says("", WRITE))
    run = await taken(run_fixture)

    await run_fixture.advance(replace(run, active_ms=5_001))

    done = await run_fixture.run(run_id)
    assert done.end_reason is RunEnding.DEADLINE
    assert not (run_fixture.workspace.project / "a.txt").exists()
    assert await run_fixture.is_complete()


async def test_queued_messages_are_answered_in_order(strict: RunFixture) -> None:
    run_fixture = await guided(strict)
    await run_fixture.send("Write.", says("", WRITE))
    for number in range(5):
        await submitted(run_fixture, f"Message {number}.")
    await run_fixture.decide(yes())
    run_fixture.model.say(*(says(f"Answer {number}.") for number in range(6)))

    await run_fixture.carry_on()

    said = [one.content for one in await run_fixture.messages() if not one.call_ids]
    assert said == ["Write.", "Answer 0.", *(w for n in range(5) for w in (f"Message {n}.", f"Answer {n + 1}."))]


async def test_prompt_names_only_the_offered_tools(strict: RunFixture) -> None:
    await strict.send("Hello.", says("Hello."))

    offered = {tool["function"]["name"] for tool in strict.model.last.body["tools"]}
    prompt, _, _ = strict.model_input()[0]["content"].partition("- Directory:")
    named = {line[2:].split(":")[0].replace(".", "_") for line in prompt.splitlines() if line.startswith("- ")}
    assert named == offered


async def test_model_without_tools_is_used_for_plain_chat(strict: RunFixture) -> None:
    run_fixture = await opened_office(
        strict.workspace, strict.model, strict.providers, model="toolless", context_window=None
    )
    run_id = await submitted(run_fixture, "Say hello.")

    await run_fixture.carry_on()

    assert (await run_fixture.run(run_id)).end_reason is RunEnding.DONE
    assert "tools" not in run_fixture.model.last.body
    assert "You have no tools" in run_fixture.model_input()[0]["content"]


def in_one_piece(name: str, arguments: dict[str, Any]) -> Answer:
    """A call whose arguments come in one event of the maximum length."""
    pieces = says("", (name, {"marker": "@"})).pieces
    head, tail = pieces[:2], pieces[-3:]
    call = json.loads(pieces[1][len(b"data: ") :])
    call["choices"][0]["delta"] = {"tool_calls": [{"index": 0, "function": {"arguments": json.dumps(arguments)}}]}
    return Answer((*head, wires.sse(call), *tail))


def _tool(name: str, function: Any, **more: Any) -> Tool:
    given: dict[str, Any] = {
        "category": ToolCategory.EXEC,
        "danger": Danger.DANGEROUS,
        "effects": lambda _: Effects(hosts=(f"{name}.example",)),
        "idempotent": False,
        "checks_membership": False,
    }
    return Tool(
        name=name, toolset="workspace", description="…", arguments=ToolArguments, function=function, **{**given, **more}
    )
