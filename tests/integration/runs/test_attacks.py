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

from tests.conftest import DatabaseUrls
from tests.fakes import strictness, wires
from tests.fakes.model_server import Answer, plain
from tests.fakes.scripted_turns import Scene, SceneCall
from tests.integration.gate.builders import with_tools
from tests.integration.runs.conftest import MODEL, Office, no, opened_office, says, yes
from tests.integration.runs.test_durable import Died, at_work, ended
from tests.wait_until import PATIENCE, TRIES
from toolcrib.core.agents import AgentRules
from toolcrib.core.errors import Conflict, Superseded
from toolcrib.core.ids import ProcessId, RunId, new_id
from toolcrib.core.model_stream import FinishReason
from toolcrib.core.runs import Run, RunEnding, RunState
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.policy.agent_definition import render_definition
from toolcrib.storage.agents import AgentStore
from toolcrib.storage.sessions import SessionStore
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments

WRITE = ("write", {"path": "/a.txt", "content": "a\n"})


@pytest.fixture
async def strict(office: Office) -> AsyncIterator[Office]:
    """A session whose every request to the model is one that the real services accept."""
    yield office
    assert_valid(office)


def assert_valid(office: Office) -> None:
    for request in office.model.received:
        if "messages" in request.body:
            refusal = strictness.openai_refusal(request.body)
            assert refusal is None, f"{refusal}\n{json.dumps(request.body['messages'], indent=1)[:3_000]}"


async def guided(office: Office, **rules: Any) -> Office:
    return await opened_office(office.crib, office.model, office.providers, trust="guided", **rules)


async def taken(office: Office) -> Run:
    [run] = await office.take(ProcessId(new_id()))
    return run


async def submitted(office: Office, text: str = "Go.") -> RunId:
    return (await office.runs.submit(office.tenant, office.session_id, text, via="test")).id


# Races at the moment when a run starts to wait


@pytest.mark.req("SC-3", part="no wakening is lost")
async def test_decision_made_while_the_run_starts_to_wait_wakes_it(strict: Office, database_urls: DatabaseUrls) -> None:
    """The wait is committed between the start and the commit of the decision, or the other way round."""
    office = await guided(strict)
    waiting = await office.send("Write.", says("", WRITE))
    await put_back(office, waiting.id)
    run = await taken(office)
    async with asleep_but_not_committed(office, run):
        deciding = asyncio.create_task(office.decide(yes()))
        await blocked(database_urls.owner, "update toolcrib.approvals", deciding)
    await deciding
    assert (await office.run(run.id)).state is RunState.READY
    office.model.say(says("Written."))
    await office.carry_on()
    assert (await office.run(run.id)).end_reason is RunEnding.DONE


@asynccontextmanager
async def asleep_but_not_committed(office: Office, run: Run) -> AsyncIterator[None]:
    """Do what ``Runs.wait`` does, and pause before the commit."""
    async with office.crib.database.as_system() as connection, connection.transaction():
        await connection.execute("select toolcrib.lock_run(%s, %s, %s)", (run.workspace_id, run.id, run.epoch))
        await connection.execute(
            "update toolcrib.runs set state = 'waiting', worker_id = null where workspace_id = %s and id = %s",
            (run.workspace_id, run.id),
        )
        yield


async def put_back(office: Office, run_id: RunId) -> None:
    async with office.crib.database.as_system() as connection:
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


async def test_superseded_process_does_not_spin_while_the_run_waits(strict: Office) -> None:
    office = await guided(strict)
    waiting = await office.send("Write.", says("", WRITE))
    await put_back(office, waiting.id)
    slow = await taken(office)
    await put_back(office, waiting.id)
    quick = await taken(office)
    await office.advance(quick)
    assert (await office.run(waiting.id)).state is RunState.WAITING

    async with asyncio.timeout(PATIENCE):
        await office.advance(slow)
    with pytest.raises(Superseded):
        await office.runs.save_waiting(slow, [])

    assert (await office.run(waiting.id)).state is RunState.WAITING


async def test_of_two_answers_the_first_wins(strict: Office) -> None:
    office = await guided(strict)
    waiting = await office.send("Write.", says("", WRITE))
    [approval] = await office.crib.engine.approvals.open(office.tenant, session_id=office.session_id)

    outcomes = await asyncio.gather(
        *(
            office.crib.engine.approvals.decide(office.tenant, approval.id, judgement, via="test")
            for judgement in (yes(), no(), yes(), no())
        ),
        return_exceptions=True,
    )
    office.model.say(says("So be it."))
    await office.carry_on()

    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 3
    assert (await office.run(waiting.id)).end_reason is RunEnding.DONE
    assert await office.is_whole()


@pytest.mark.req("RN-5", part="what a person allowed and a crash interrupted")
async def test_crash_during_an_approved_call_does_not_ask_again(strict: Office) -> None:
    office = await guided(strict)
    waiting = await office.send("Write.", says("", WRITE))
    await office.decide(yes())
    advance = office.advance
    recorder = advance._executor

    class Dying:
        def __getattr__(self, name: str) -> object:
            return getattr(recorder, name)

        async def resume(self, *args: Any, **kwargs: Any) -> Any:
            async with office.crib.database.as_system() as connection:
                # The state after the call has started, and before its change is committed.
                await connection.execute(
                    "update toolcrib.tool_calls set state = 'running' where run_id = %s", (waiting.id,)
                )
            raise Died

    advance._executor = Dying()  # type: ignore[assignment]
    with pytest.raises(Died):
        await advance(await taken(office))
    office.model.say(says("Written."))
    async with asyncio.timeout(PATIENCE):
        await office.carry_on()

    assert (await office.run(waiting.id)).end_reason is RunEnding.DONE
    assert (office.crib.project / "a.txt").read_text() == "a\n"
    assert [kind for kind, _ in await office.events()].count("tool-confirm") == 1


# Cancellation


async def test_queued_run_is_cancelled_at_once_and_never_starts(strict: Office) -> None:
    office = await guided(strict)
    first = await office.send("Write.", says("", WRITE))
    second, third = await submitted(office, "Second."), await submitted(office, "Third.")

    cancelled = await office.runs.cancel(office.tenant, second)
    await office.decide(no())
    office.model.say(says("No."), says("Third, then."))
    await office.carry_on()

    assert cancelled.end_reason is RunEnding.CANCELLED
    assert (await office.run(first.id)).end_reason is RunEnding.DONE
    assert (await office.run(third)).end_reason is RunEnding.DONE
    assert [one.content for one in await office.messages() if one.role == "user"] == ["Write.", "Third."]


async def test_cancelling_while_runs_start_and_end_never_deadlocks(strict: Office) -> None:
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

    endings = {(await strict.run(run_id)).end_reason for run_id in ids}
    assert endings <= {RunEnding.DONE, RunEnding.CANCELLED}


async def test_cancelling_during_compaction_leaves_the_context_unchanged(office: Office) -> None:
    await office.send("First.", says("One."))
    await office.send("Second.", says("Two.", input_tokens=90_000))
    asked = len(office.model.received)
    office.model.say(Answer(says("A summary").pieces[:2], hang=True))
    async with at_work(office) as runner:
        run_id = await submitted(office, "Third.")
        runner.notify()
        async with asyncio.timeout(PATIENCE):
            while len(office.model.received) == asked:
                await office.run(run_id)
        await office.runs.cancel(office.tenant, run_id)
        run = await ended(office, run_id)

    assert run.end_reason is RunEnding.CANCELLED
    assert [one.role for one in await office.messages()] == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.req("RN-6", part="a tool")
async def test_cancelling_during_a_call_stops_it_and_leaves_a_consistent_history(office: Office) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    async def dawdle(arguments: ToolArguments, context: ToolContext) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    office = await opened_office(
        with_tools(office.crib, _tool("dawdle", dawdle)),
        office.model,
        office.providers,
        tool_permissions={"dawdle": {"allowed": True}, "ls": {"allowed": True}},
    )
    took = []
    async with at_work(office) as runner:
        for _ in range(TRIES):
            office.model.say(says("I wait.", ("dawdle", {}), ("dawdle", {})))
            began.clear()
            stopped.clear()
            run_id = await submitted(office)
            runner.notify()
            await asyncio.wait_for(began.wait(), PATIENCE)
            asked_at = time.monotonic()
            await office.runs.cancel(office.tenant, run_id)
            await asyncio.wait_for(stopped.wait(), PATIENCE)
            took.append(time.monotonic() - asked_at)
            run = await ended(office, run_id)
            assert run.end_reason is RunEnding.CANCELLED
            assert await office.is_whole()
            if took[-1] < 1:
                break

    assert min(took) < 1
    await office.send("And now?", says("Now this."))
    assert_valid(office)


@pytest.mark.req("RN-5", part="a server that is stopped in good order")
async def test_response_interrupted_by_a_server_shutdown_is_requested_again(office: Office) -> None:
    office.model.say(Answer(says("Half of an answer that goes on.").pieces[:3], hang=True))
    async with at_work(office) as runner:
        run_id = await submitted(office)
        runner.notify()
        async with asyncio.timeout(PATIENCE):
            while not office.model.received:
                await office.run(run_id)
    assert (await office.run(run_id)).state is RunState.READY

    office.model.say(says("The whole answer."))
    await office.carry_on()

    assert (await office.run(run_id)).end_reason is RunEnding.DONE
    assert [one.content for one in await office.messages()] == ["Go.", "The whole answer."]


@pytest.mark.req("RN-5", part="a call whose server is stopped in good order")
async def test_call_interrupted_by_a_server_shutdown_is_left_to_the_next_server(office: Office) -> None:
    began: list[asyncio.Event] = [asyncio.Event()]

    async def dawdle(arguments: ToolArguments, context: ToolContext) -> str:
        if not began[0].is_set():
            began[0].set()
            await asyncio.Event().wait()
        return "done at last"

    office = await opened_office(
        with_tools(office.crib, _tool("dawdle", dawdle, idempotent=True)),
        office.model,
        office.providers,
        tool_permissions={"dawdle": {"allowed": True}},
    )
    office.model.say(says("", ("dawdle", {})), says("Good."))
    async with at_work(office) as runner:
        run_id = await submitted(office)
        runner.notify()
        await asyncio.wait_for(began[0].wait(), PATIENCE)

    await office.carry_on()

    assert (await office.run(run_id)).end_reason is RunEnding.DONE
    assert office.told()[-1]["content"] == "done at last"


# Processes


@pytest.mark.req("SC-1", part="a database that was away")
async def test_run_continues_after_its_process_loses_the_database_for_a_moment(office: Office) -> None:
    office.model.say(says("", ("ls", {"path": "/"})), says("", ("ls", {"path": "/"})), says("Done."))
    broken = 0
    async with at_work(office) as runner:
        advance = runner._advance

        async def failing(run: Run) -> None:
            nonlocal broken
            if broken < 2:
                broken += 1
                raise psycopg.OperationalError("the connection was lost")
            await advance(run)

        runner._advance = failing
        run_id = await submitted(office)
        runner.notify()
        run = await ended(office, run_id)

    assert (run.end_reason, broken, run.epoch) == (RunEnding.DONE, 2, 3)


async def test_run_that_fails_by_an_internal_error_ends_and_reports_it(office: Office) -> None:
    advance = office.advance

    async def broken(*_: Any) -> None:
        raise ZeroDivisionError

    advance._stories.load = broken  # type: ignore[method-assign, assignment]
    run_id = await submitted(office)
    await advance(await taken(office))

    run = await office.run(run_id)
    assert run.end_reason is RunEnding.FAILED
    assert run.error is not None
    assert "Internal server error" in run.error["message"]


# People and rules that change meanwhile


async def test_deleting_the_session_ends_the_run(strict: Office) -> None:
    office = await guided(strict)
    await office.send("Write.", says("", WRITE))
    await office.decide(yes())
    run = await taken(office)
    await SessionStore(office.crib.database).delete(office.tenant, office.session_id)

    async with asyncio.timeout(PATIENCE):
        await office.advance(run)

    assert not (office.crib.project / "a.txt").exists()


async def test_deleting_the_agent_fails_the_run_and_withdraws_its_approval(strict: Office) -> None:
    office = await guided(strict)
    waiting = await office.send("Write.", says("", WRITE))
    await AgentStore(office.crib.database).delete(office.tenant, office.agent.id)
    await put_back(office, waiting.id)

    await office.carry_on()

    run = await office.run(waiting.id)
    assert run.end_reason is RunEnding.FAILED
    assert await office.crib.engine.approvals.open(office.tenant, session_id=office.session_id) == []
    assert await office.is_whole()


@pytest.mark.parametrize("became", ["nobody", "viewer"])
async def test_removing_the_sender_stops_further_model_requests(strict: Office, became: str) -> None:
    office = strict
    first = says("", ("ls", {"path": "/"}))
    office.model.say(first)
    run_id = await submitted(office)
    advance = office.advance
    execute = advance._execute

    async def removed_meanwhile(*args: Any) -> None:
        await execute(*args)
        async with office.crib.database.as_system() as connection:
            query = "update toolcrib.members set role = 'viewer' where user_id = %s"
            if became == "nobody":
                query = "delete from toolcrib.members where user_id = %s"
            await connection.execute(query, (office.crib.caller.user_id,))

    advance._execute = removed_meanwhile  # type: ignore[method-assign, assignment]
    await advance(await taken(office))

    async with office.crib.database.as_system() as connection:
        cursor = await connection.execute("select end_reason, error from toolcrib.runs where id = %s", (run_id,))
        row = await cursor.fetchone()
    assert row is not None
    assert row[0] == "failed"
    assert "no longer a member" in row[1]["message"]
    assert len(office.model.received) == 1


async def test_tightened_rules_apply_to_a_run_in_progress(strict: Office) -> None:
    office = strict
    run_id = await submitted(office)
    office.model.say(says("", ("ls", {"path": "/"})), says("", WRITE), says("I may not."))
    advance = office.advance
    execute = advance._execute

    async def tightened(*args: Any) -> None:
        await execute(*args)
        given = office.agent.rules.model_dump(mode="json")
        rules = AgentRules.model_validate({**given, "tool_permissions": {"ls": {"allowed": True}}})
        definition = render_definition(rules)
        await AgentStore(office.crib.database).update(office.tenant, office.agent.id, definition=definition)

    advance._execute = tightened  # type: ignore[method-assign, assignment]
    await advance(await taken(office))

    assert (await office.run(run_id)).end_reason is RunEnding.DONE
    assert not (office.crib.project / "a.txt").exists()
    assert {tool["function"]["name"] for tool in office.model.last.body["tools"]} == {"ls"}


# Models that misbehave


async def test_truncated_stream_fails_the_run_with_what_was_received(strict: Office) -> None:
    whole = says("These words were shown. These were not.")

    run = await strict.send("Talk.", Answer(whole.pieces[:4], cut=True))

    assert run.end_reason is RunEnding.FAILED
    [asked, cut] = await strict.messages()
    assert cut.content
    assert cut.metadata == {"cut": True}
    assert [kind for kind, _ in await strict.events()].count("stream-end") == 1
    await strict.send("Again.", says("Better."))
    assert strict.told()[-1]["content"] == "Again."
    assert asked.role == "user"


@pytest.mark.parametrize("status", [400, 401, 500])
async def test_provider_error_fails_the_run_and_the_next_message_is_answered(strict: Office, status: int) -> None:
    refusals = [plain(status, {"error": {"message": "no"}}, retry_after="0") for _ in range(10)]
    failed = await strict.send("Talk.", *refusals)
    strict.model._answers.clear()

    again = await strict.send("Again.", says("Yes."))

    assert (failed.end_reason, again.end_reason) == (RunEnding.FAILED, RunEnding.DONE)
    assert failed.error is not None


async def test_model_timeout_fails_the_run(strict: Office) -> None:
    office = await opened_office(strict.crib, strict.model, strict.providers, turn_timeout=0.3)

    run = await office.send("Talk.", Answer((), hang=True), Answer((), hang=True), Answer((), hang=True))

    assert run.end_reason is RunEnding.FAILED
    assert run.error is not None


@pytest.mark.parametrize("reason", list(FinishReason))
@pytest.mark.parametrize("thinking", ["", "Hm."])
async def test_empty_response_of_any_kind_ends_the_run_and_harms_no_later_one(
    strict: Office, reason: FinishReason, thinking: str
) -> None:
    empty = Answer(tuple(wires.chat_completions(Scene(thinking=thinking, reason=reason), MODEL)))
    run = await strict.send("Talk.", empty)

    again = await strict.send("Again.", says("Yes."))

    assert (run.end_reason, again.end_reason) == (RunEnding.DONE, RunEnding.DONE)


async def test_response_truncated_at_the_models_own_limit_is_marked(strict: Office) -> None:
    scene = Scene(text="As long as I could", reason=FinishReason.LENGTH)

    await strict.send("Talk.", Answer(tuple(wires.chat_completions(scene, MODEL))))

    [end] = [payload for kind, payload in await strict.events() if kind == "stream-end"]
    assert end["finishReason"] == "length"


async def test_repeated_call_ids_of_the_model_are_kept_separate(strict: Office) -> None:
    calls = tuple(SceneCall("call_0", "ls", '{"path": "/"}') for _ in range(3))
    scene = Scene(calls=calls, reason=FinishReason.TOOL_CALLS)
    answer = Answer(tuple(wires.chat_completions(scene, MODEL)))

    run = await strict.send("Look.", answer, answer, says("Seen."))

    assert run.end_reason is RunEnding.DONE
    assert len({call_id for one in await strict.messages() for call_id in one.call_ids}) == 6
    assert len([message for message in strict.told() if message["role"] == "tool"]) == 6
    assert await strict.is_whole()


async def test_hundred_calls_in_one_message_are_all_answered(strict: Office) -> None:
    calls = [("write", {"path": f"/{number}.txt", "content": "x"}) for number in range(100)]

    run = await strict.send("Many.", says("", *calls), says("Done."))

    assert run.end_reason is RunEnding.DONE
    assert len(list(strict.crib.project.glob("*.txt"))) == 100
    assert len([message for message in strict.told() if message["role"] == "tool"]) == 100


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
    strict: Office, arguments: str
) -> None:
    scene = Scene(calls=(SceneCall("call_x", "ls", arguments),), reason=FinishReason.TOOL_CALLS)

    run = await strict.send("Look.", Answer(tuple(wires.chat_completions(scene, MODEL))), says("I see."))

    assert run.end_reason is RunEnding.DONE
    assert await strict.is_whole()


async def test_text_that_postgresql_cannot_store_does_not_break_the_run(strict: Office) -> None:
    odd = "a\x00b\ud800c"

    run = await strict.send(odd.replace("\x00", "").replace("\ud800", ""), says(odd, ("ls", {"path": odd})), says(odd))

    assert run.end_reason in (RunEnding.DONE, RunEnding.VIOLATION)
    assert await strict.is_whole()


async def test_arguments_and_results_of_megabytes_work_and_the_model_gets_a_part(strict: Office) -> None:
    large = "line of text\n" * 200_000

    run = await strict.send(
        "Much.",
        in_one_piece("write", {"path": "/large.txt", "content": large}),
        says("", ("read", {"path": "/large.txt", "limit": 0}), ("file_info", {"path": "/none"})),
        says("Done."),
    )

    assert run.end_reason is RunEnding.DONE
    assert (strict.crib.project / "large.txt").read_text() == large
    assert all(len(message["content"]) < 100_000 for message in strict.told() if message["role"] == "tool")


async def test_after_a_violation_no_other_call_of_the_message_starts(strict: Office) -> None:
    """Calls that depend on each other keep their order; here all of them follow the one that reads everything."""
    escape = ("read", {"path": "/../../etc/passwd"})
    writes = [("write", {"path": "/a.txt", "content": str(number)}) for number in range(20)]

    run = await strict.send("Escape.", says("", escape, *writes))

    assert run.end_reason is RunEnding.VIOLATION
    assert await strict.is_whole()
    assert not (strict.crib.project / "a.txt").exists()


@pytest.mark.req("PO-6", part="counted over takeovers")
async def test_violations_are_counted_across_the_processes_of_a_run(strict: Office) -> None:
    office = await opened_office(strict.crib, strict.model, strict.providers, max_sandbox_violations=1)
    run_id = await submitted(office)
    office.model.say(says("", ("read", {"path": "/../x"})), Answer((), hang=True))
    task = asyncio.create_task(office.advance(await taken(office)))
    async with asyncio.timeout(PATIENCE):
        while len(office.model.received) < 2:
            await office.run(run_id)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    office.model._answers.clear()
    office.model.say(says("", ("read", {"path": "/../y"})))
    await office.carry_on()

    assert (await office.run(run_id)).end_reason is RunEnding.VIOLATION


@pytest.mark.req("RN-2", part="deadline without waiting")
async def test_time_spent_waiting_for_a_person_is_not_counted(strict: Office) -> None:
    office = await guided(strict, run_timeout=5)
    waiting = await office.send("Write.", says("", WRITE))
    async with office.crib.database.as_system() as connection:
        # It has waited for an hour, after four seconds of work.
        await connection.execute(
            """
            update toolcrib.runs set active_ms = 4000, created_at = now() - interval '1 hour',
                started_at = now() - interval '1 hour' where id = %s
            """,
            (waiting.id,),
        )
    await office.decide(yes())
    office.model.say(says("Written."))
    await office.carry_on()
    assert (await office.run(waiting.id)).end_reason is RunEnding.DONE


@pytest.mark.req("RN-2", part="deadline")
async def test_nothing_new_starts_after_the_deadline(strict: Office) -> None:
    office = await opened_office(strict.crib, strict.model, strict.providers, run_timeout=5)
    run_id = await submitted(office)
    office.model.say(says("", WRITE))
    run = await taken(office)

    await office.advance(replace(run, active_ms=5_001))

    done = await office.run(run_id)
    assert done.end_reason is RunEnding.DEADLINE
    assert not (office.crib.project / "a.txt").exists()
    assert await office.is_whole()


@pytest.mark.req("RN-1", part="queued in order")
async def test_queued_messages_are_answered_in_order(strict: Office) -> None:
    office = await guided(strict)
    await office.send("Write.", says("", WRITE))
    for number in range(5):
        await submitted(office, f"Message {number}.")
    await office.decide(yes())
    office.model.say(*(says(f"Answer {number}.") for number in range(6)))

    await office.carry_on()

    said = [one.content for one in await office.messages() if not one.call_ids]
    assert said == ["Write.", "Answer 0.", *(w for n in range(5) for w in (f"Message {n}.", f"Answer {n + 1}."))]


@pytest.mark.req("RN-7", part="exactly the tools that are offered")
async def test_prompt_names_only_the_offered_tools(strict: Office) -> None:
    await strict.send("Hello.", says("Hello."))

    offered = {tool["function"]["name"] for tool in strict.model.last.body["tools"]}
    prompt = strict.told()[0]["content"]
    named = {line[2:].split(":")[0].replace(".", "_") for line in prompt.splitlines() if line.startswith("- ")}
    assert named == offered


@pytest.mark.req("PR-4", part="a model without tools")
async def test_model_without_tools_is_used_for_plain_chat(strict: Office) -> None:
    office = await opened_office(strict.crib, strict.model, strict.providers, model="toolless", context_window=None)
    run_id = await submitted(office, "Say hello.")

    await office.carry_on()

    assert (await office.run(run_id)).end_reason is RunEnding.DONE
    assert "tools" not in office.model.last.body
    assert "You have no tools" in office.told()[0]["content"]


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
