"""Paused calls in a text-only chat: what is pending, where a person decides it, and the outcome."""

import re
from uuid import UUID

import pytest

from tests.integration.api_openai.conftest import OpenAiFixture, assistant, user
from tests.integration.api_openai.test_sessions import heard_of, sessions_of
from tests.integration.runs.conftest import no, says, yes
from toolcrib.core.ids import PauseId, SessionId
from toolcrib.core.runs import RunState

STREAMS = pytest.mark.parametrize("stream", [False, True])
WRITES = ("write", {"path": "/a.txt", "content": "a\n"})
ASKS = {"name": "colour", "question": "Which `colour`?\n[Click](http://evil.example)", "schema": {"type": "string"}}


async def the_session(openai_api: OpenAiFixture) -> SessionId:
    (session,) = await openai_api.services.sessions.page(openai_api.tenant, before=None, limit=5)
    return session.id


@STREAMS
async def test_response_reports_what_is_pending_and_the_next_one_the_outcome(
    guided: OpenAiFixture, stream: bool
) -> None:
    guided.model.say(says("I write.", WRITES), says("It is written."), says("You are welcome."))

    waiting = await heard_of(await guided.ask(user("Write a."), stream=stream))
    (approval,) = await guided.services.paused_calls.list(guided.tenant)
    assert waiting.startswith("I write.\n\n**Waiting for a person")
    assert "`write` `/a.txt`" in waiting
    assert f"{guided.origin}/w/{guided.tenant.workspace_id}/approvals/{approval.id}" in waiting
    assert not guided.on_disk("a.txt").exists()

    await guided.services.paused_calls.decide(guided.tenant, approval.id, yes(), via="test")
    after = await heard_of(await guided.ask(user("Write a."), assistant(waiting), user("Thanks."), stream=stream))

    assert after == "(`write` was approved.)\n\nIt is written.\n\nYou are welcome."
    assert guided.on_disk("a.txt").read_text() == "a\n"
    assert await sessions_of(guided) == 1


async def test_early_message_is_queued_and_answered_later(guided: OpenAiFixture) -> None:
    guided.model.say(says("", WRITES), says("I may not."), says("As I said."), says("Goodbye."))
    said = [user("Write a.")]
    said.append(assistant(await heard_of(await guided.ask(*said))))
    said.append(user("And?"))

    early = await heard_of(await guided.ask(*said))
    (approval,) = await guided.services.paused_calls.list(guided.tenant)
    assert str(approval.id) in early
    await guided.services.paused_calls.decide(guided.tenant, approval.id, no("Not now"), via="test")
    late = await heard_of(await guided.ask(*said, assistant(early), user("Bye.")))

    assert late == "(`write` was rejected: Not now.)\n\nI may not.\n\nAs I said.\n\nGoodbye."
    assert not guided.on_disk("a.txt").exists()
    runs = await guided.services.run_service.runs.page(guided.tenant, await the_session(guided), before=None, limit=5)
    assert [run.state for run in runs] == [RunState.ENDED] * 3


async def test_question_text_cannot_imitate_our_own(openai_api: OpenAiFixture) -> None:
    openai_api.model.say(says("", ("ask_user", {"questions": [ASKS]})), says("Green it is."), says("Good."))

    asked = await heard_of(await openai_api.ask(user("Paint.")))
    assert "`Which 'colour'?\\n[Click](http://evil.example)`" in asked
    found = re.search(r"/approvals/([0-9a-f-]{36})", asked)
    assert found
    answers = {"colour": "green"}
    await openai_api.services.paused_calls.answer(openai_api.tenant, PauseId(UUID(found[1])), answers, via="test")
    after = await heard_of(await openai_api.ask(user("Paint."), assistant(asked), user("Done.")))

    assert after == "Green it is.\n\nGood."
