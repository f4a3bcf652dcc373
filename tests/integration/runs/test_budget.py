"""The budget: a run tracks the size of its context, compacts it, and concludes before it is full."""

from tests.fakes.model_server import plain
from tests.integration.runs.conftest import RunFixture, opened_office, says
from toolcrib.core.runs import RunEnding


async def test_context_usage_is_reported_with_every_response(run_fixture: RunFixture) -> None:
    await run_fixture.send("Hello?", says("Hello.", input_tokens=70_000, output_tokens=5))

    [usage] = [payload["usage"] for kind, payload in await run_fixture.events() if kind == "stream-end"]
    assert usage == {
        "inputTokens": 70_000,
        "outputTokens": 5,
        "contextTokens": 70_005,
        "contextWindow": 100_000,
        "cost": None,
    }


async def test_full_context_is_summarised_by_the_model_and_the_run_continues(run_fixture: RunFixture) -> None:
    await run_fixture.send("First, a question.", says("An answer."))
    await run_fixture.send("Second.", says("Another.", input_tokens=90_000))

    run = await run_fixture.send("Third.", says("They spoke of two things."), says("The third answer."))

    assert run.end_reason is RunEnding.DONE
    summary = run_fixture.model_input()[1]
    assert summary["role"] == "user"
    assert "They spoke of two things." in summary["content"]
    assert [message["content"] for message in run_fixture.model_input()[2:]] == ["Third."]
    stored = await run_fixture.messages()
    assert {"First, a question.", "An answer.", "Second."} <= {one.content for one in stored}, "nothing is lost"


async def test_context_is_compacted_without_the_model_when_it_cannot_summarise(run_fixture: RunFixture) -> None:
    await run_fixture.send(
        "Write the file a.txt.", says("", ("write", {"path": "/a.txt", "content": "a"})), says("Done.")
    )
    await run_fixture.send("More.", says("Yes.", input_tokens=90_000))

    run = await run_fixture.send("And now?", plain(400, {"error": {"message": "no"}}), says("Now this."))

    assert run.end_reason is RunEnding.DONE
    summary = run_fixture.model_input()[1]["content"]
    assert "The person said: Write the file a.txt." in summary
    assert "You called write" in summary


async def test_context_that_cannot_be_compacted_is_concluded(run_fixture: RunFixture) -> None:
    run = await run_fixture.send(
        "Look.", says("", ("ls", {"path": "/"}), input_tokens=95_000), says("I conclude.", input_tokens=96_000)
    )

    assert run.end_reason is RunEnding.BUDGET
    assert run_fixture.model.last.body["tool_choice"] == "none"


async def test_model_of_unknown_size_is_used_without_a_budget(run_fixture: RunFixture) -> None:
    run_fixture = await opened_office(
        run_fixture.workspace, run_fixture.model, run_fixture.providers, context_window=None, model="gpt-4o"
    )
    # The provider's model list has no size for this one.

    run = await run_fixture.send("Hello?", plain(200, {"object": "list", "data": [{"id": "gpt-4o"}]}), says("Hi."))

    assert run.end_reason is RunEnding.DONE


async def test_a_person_compacts_a_session_without_a_message(run_fixture: RunFixture) -> None:
    await run_fixture.send("First, a question.", says("An answer."))
    await run_fixture.send("Second.", says("Another.", input_tokens=40_000))
    run_fixture.model.say(says("They spoke of two things."))

    asked = await run_fixture.runs.submit(
        run_fixture.tenant, run_fixture.session_id, "/compact", via="test", compacts=True
    )
    await run_fixture.carry_on()
    compacted = await run_fixture.run(asked.id)
    after = await run_fixture.send("Third.", says("The third answer."))

    assert compacted.end_reason is RunEnding.DONE
    assert compacted.context_tokens < 1_000
    assert (after.end_reason, after.turns) == (RunEnding.DONE, 1)
    seen = [message["content"] for message in run_fixture.model_input()[1:]]
    assert "They spoke of two things." in seen[0]
    assert seen[1:] == ["Second.", "Another.", "Third."]
    roles = [one.role for one in await run_fixture.messages()]
    assert roles == ["user", "assistant", "user", "assistant", "summary", "user", "assistant"]


async def test_a_person_compacts_once_and_a_long_answer_to_the_last_question_stays(run_fixture: RunFixture) -> None:
    await run_fixture.send("First, a question.", says("An answer."))
    looks = [says("", ("ls", {"path": "/"})) for _ in range(10)]
    await run_fixture.send("Second.", *looks, says("Ten looks."))
    requests = len(run_fixture.model.received)
    run_fixture.model.say(says("They spoke."))

    await run_fixture.runs.submit(run_fixture.tenant, run_fixture.session_id, "/compact", via="test", compacts=True)
    await run_fixture.carry_on()
    assert len(run_fixture.model.received) == requests + 1
    await run_fixture.send("Third.", says("The third answer."))

    seen = [message["content"] for message in run_fixture.model_input()[1:] if message["role"] == "user"]
    assert "They spoke." in seen[0]
    assert seen[1:] == ["Second.", "Third."]


async def test_a_short_session_is_left_as_it_is(run_fixture: RunFixture) -> None:
    await run_fixture.send("Hello?", says("Hello."))
    requests = len(run_fixture.model.received)

    asked = await run_fixture.runs.submit(
        run_fixture.tenant, run_fixture.session_id, "/compact", via="test", compacts=True
    )
    await run_fixture.carry_on()

    assert (await run_fixture.run(asked.id)).end_reason is RunEnding.DONE
    assert len(run_fixture.model.received) == requests
    assert [one.content for one in await run_fixture.messages()] == ["Hello?", "Hello."]
