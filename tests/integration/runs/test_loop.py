"""The loop: a message goes in, the model responds, its calls pass the gate, and the model gets their results."""

import pytest

from tests.integration.runs.conftest import RunFixture, no, opened_office, says, yes
from toolcrib.core.agents import TrustLevel
from toolcrib.core.callers import Caller
from toolcrib.core.ids import ProcessId, new_id
from toolcrib.core.runs import RunEnding, RunState
from toolcrib.core.tool_calls import Outcome, ToolCall


async def test_message_is_answered(run_fixture: RunFixture) -> None:
    run = await run_fixture.send("Say hello.", says("Hello!"))

    assert (run.state, run.end_reason, run.turns) == (RunState.ENDED, RunEnding.DONE, 1)
    assert [(one.role, one.content) for one in await run_fixture.messages()] == [
        ("user", "Say hello."),
        ("assistant", "Hello!"),
    ]
    assert [kind for kind, _ in await run_fixture.events()] == [
        "message",
        "run-state",
        "stream-start",
        "stream-end",
        "run-state",
    ]


async def test_calls_are_executed_and_the_model_gets_their_results(run_fixture: RunFixture) -> None:
    run = await run_fixture.send(
        "Write it.",
        says("I shall.", ("write", {"path": "/a.txt", "content": "a\n"}), ("ls", {"path": "/"})),
        says("Done."),
    )

    assert (run.end_reason, run.turns) == (RunEnding.DONE, 2)
    assert (run_fixture.workspace.project / "a.txt").read_text() == "a\n"
    *_, assistant, written, listed = run_fixture.model_input()
    assert [call["function"]["name"] for call in assistant["tool_calls"]] == ["write", "ls"]
    assert [message["role"] for message in (written, listed)] == ["tool", "tool"]
    assert '"path":"/a.txt"' in written["content"].replace(" ", "")
    assert await run_fixture.is_complete()


async def test_model_gets_failures_and_the_loop_continues(run_fixture: RunFixture) -> None:
    run = await run_fixture.send(
        "Try.",
        says("", ("read", {"path": "/nowhere"}), ("teleport", {}), ("read", {"pth": "/x"})),
        says("I could not."),
    )

    assert run.end_reason is RunEnding.DONE
    missing, unknown, wrong = run_fixture.model_input()[-3:]
    assert "/nowhere" in missing["content"]
    assert unknown["content"] == "Unknown tool: teleport"
    assert "path" in wrong["content"]


async def test_run_waits_for_a_person_and_continues_after_the_decision(
    run_fixture: RunFixture,
) -> None:
    run_fixture = await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, trust="guided")

    waiting = await run_fixture.send("Write it.", says("", ("write", {"path": "/a.txt", "content": "a\n"})))

    assert waiting.state is RunState.WAITING
    assert not (run_fixture.workspace.project / "a.txt").exists()
    await run_fixture.decide(yes())
    run_fixture.model.say(says("Written."))
    await run_fixture.carry_on()
    assert (await run_fixture.run(waiting.id)).end_reason is RunEnding.DONE
    assert (run_fixture.workspace.project / "a.txt").read_text() == "a\n"


async def test_model_gets_a_rejection_with_its_reason(run_fixture: RunFixture) -> None:
    run_fixture = await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, trust="guided")
    waiting = await run_fixture.send("Write it.", says("", ("write", {"path": "/a.txt", "content": "a\n"})))

    await run_fixture.decide(no("Use the other folder."))
    run_fixture.model.say(says("As you wish."))
    await run_fixture.carry_on()

    assert (await run_fixture.run(waiting.id)).end_reason is RunEnding.DONE
    assert "Use the other folder." in run_fixture.model_input()[-1]["content"]
    assert not (run_fixture.workspace.project / "a.txt").exists()


async def test_question_is_answered_and_the_answer_is_the_calls_result(run_fixture: RunFixture) -> None:
    asked = {"questions": [{"name": "color", "question": "Which?", "schema": '{"type": "string"}'}]}
    waiting = await run_fixture.send("Ask me.", says("", ("ask_user", asked)))
    assert waiting.state is RunState.WAITING

    [question] = await run_fixture.workspace.engine.paused_calls.list(
        run_fixture.tenant, session_id=run_fixture.session_id
    )
    await run_fixture.workspace.engine.paused_calls.answer(
        run_fixture.tenant, question.id, {"color": "red"}, via="test"
    )
    run_fixture.model.say(says("Red it is."))
    await run_fixture.carry_on()

    assert (await run_fixture.run(waiting.id)).end_reason is RunEnding.DONE
    assert run_fixture.model_input()[-1]["content"] == '{"color":"red"}'


async def test_later_message_waits_for_the_run_before_it(run_fixture: RunFixture) -> None:
    run_fixture = await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, trust="guided")
    first = await run_fixture.send("Write it.", says("", ("write", {"path": "/a.txt", "content": "a"})))
    second = await run_fixture.send("And then?")

    assert (first.state, second.state) == (RunState.WAITING, RunState.QUEUED)
    assert [one.content for one in await run_fixture.messages() if one.role == "user"] == ["Write it."]
    await run_fixture.decide(yes())
    run_fixture.model.say(says("First."), says("Second."))
    await run_fixture.carry_on()
    assert [(await run_fixture.run(run.id)).end_reason for run in (first, second)] == [RunEnding.DONE, RunEnding.DONE]
    assert [one.content for one in await run_fixture.messages() if one.role == "user"] == ["Write it.", "And then?"]


async def test_at_the_turn_limit_the_tools_are_withdrawn_and_the_model_concludes(run_fixture: RunFixture) -> None:
    run_fixture = await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, max_turns=2)

    run = await run_fixture.send(
        "Loop.", says("", ("ls", {"path": "/"})), says("", ("ls", {"path": "/"})), says("This is what I found.")
    )

    assert run.end_reason is RunEnding.TURN_LIMIT
    assert run_fixture.model.last.body["tool_choice"] == "none"
    assert (await run_fixture.messages())[-1].content == "This is what I found."


async def test_model_that_still_calls_tools_is_stopped_with_a_message(run_fixture: RunFixture) -> None:
    run_fixture = await opened_office(run_fixture.workspace, run_fixture.model, run_fixture.providers, max_turns=1)

    run = await run_fixture.send("Loop.", says("", ("ls", {"path": "/"})), says("", ("ls", {"path": "/"})))

    assert run.end_reason is RunEnding.TURN_LIMIT
    assert (await run_fixture.messages())[-1].content == "Stopped after 1 iterations."
    assert await run_fixture.is_complete()


async def test_violation_stops_the_run(run_fixture: RunFixture) -> None:
    run = await run_fixture.send("Escape.", says("", ("read", {"path": "/../../etc/passwd"}), ("ls", {"path": "/"})))

    assert run.end_reason is RunEnding.VIOLATION
    assert run.error is not None
    assert await run_fixture.is_complete()


async def test_allowed_number_of_violations_does_not_stop_the_run(run_fixture: RunFixture) -> None:
    run_fixture = await opened_office(
        run_fixture.workspace, run_fixture.model, run_fixture.providers, max_sandbox_violations=1
    )

    run = await run_fixture.send("Escape.", says("", ("read", {"path": "/../x"})), says("Sorry."))

    assert run.end_reason is RunEnding.DONE


async def test_without_credentials_the_run_fails_with_advice(run_fixture: RunFixture) -> None:
    run_fixture = await opened_office(
        run_fixture.workspace, run_fixture.model, run_fixture.providers, provider="anthropic", model="claude"
    )

    run = await run_fixture.send("Hello?")

    assert run.end_reason is RunEnding.FAILED
    assert run.error is not None
    assert "PUT /api/v1/credentials/anthropic" in run.error["message"]


@pytest.mark.parametrize(
    ("before", "after", "is_asked"), [("review", "guided", True), ("guided", "review", False), ("review", None, True)]
)
async def test_change_of_trust_holds_from_the_next_call_of_a_running_run(
    run_fixture: RunFixture, before: str, after: str | None, is_asked: bool
) -> None:
    """The first call of a turn reads; a person changes the trust; the second call of the same turn writes."""
    workspace = run_fixture.workspace
    run_fixture = await opened_office(workspace, run_fixture.model, run_fixture.providers, trust="guided")
    sessions, gate = workspace.stores.sessions, workspace.engine.executor
    await sessions.set_trust(run_fixture.tenant, run_fixture.session_id, TrustLevel(before))

    async def execute(call: ToolCall, caller: Caller) -> Outcome:
        outcome = await gate.execute(call, caller)
        if call.name == "ls":
            await sessions.set_trust(run_fixture.tenant, run_fixture.session_id, TrustLevel(after) if after else None)
        return outcome

    calls = ("ls", {"path": "/docs"}), ("write", {"path": "/docs/a.txt", "content": "a\n"})
    (workspace.project / "docs").mkdir()
    run_fixture.model.say(says("", *calls), says("Done."))
    sent = await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "Go.", via="test")
    [taken] = await run_fixture.take(ProcessId(new_id()))
    await run_fixture.advance_with(execute=execute)(taken)

    assert (await run_fixture.run(sent.id)).state is (RunState.WAITING if is_asked else RunState.ENDED)
    assert (workspace.project / "docs" / "a.txt").exists() is not is_asked
