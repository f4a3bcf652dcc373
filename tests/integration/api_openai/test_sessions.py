"""Complete sessions of the official OpenAI SDK against our server: responses, streams, history, usage, cancellation."""

import asyncio
from base64 import b64encode
from typing import Any
from uuid import UUID

import openai
import pytest

from tests.fakes import wires
from tests.fakes.model_server import Answer
from tests.fakes.scripted_turns import Scene
from tests.integration.api_openai.conftest import OpenAiFixture, assistant, user
from tests.integration.runs.conftest import MODEL, says
from tests.wait_until import PATIENCE
from toolcrib.core.ids import RunId
from toolcrib.core.runs import Run, RunEnding, RunState

WRITES = ("write", {"path": "/a.txt", "content": "a\n"})


async def run_of(openai_api: OpenAiFixture, answer_id: str) -> Run:
    return await openai_api.services.run_service.runs.get(
        openai_api.tenant, RunId(UUID(answer_id.removeprefix("chatcmpl-")))
    )


async def sessions_of(openai_api: OpenAiFixture) -> int:
    return len(await openai_api.services.sessions.page(openai_api.tenant, before=None, limit=50))


async def test_agents_are_listed_as_models(openai_api: OpenAiFixture) -> None:
    listed = [one async for one in openai_api.client.models.list()]
    one = await openai_api.client.models.retrieve(openai_api.name)

    assert [(one.id, one.owned_by) for one in listed] == [(openai_api.name, openai_api.workspace)]
    assert one == listed[0]


async def test_complete_run_is_one_response(openai_api: OpenAiFixture) -> None:
    openai_api.model.say(says("I write.", WRITES), says("It is written."))

    answer = await openai_api.ask(user("Write a."), temperature=0.3, user="ada")

    assert answer.choices[0].message.content == "I write.\n\nIt is written."
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (22, 14, 36)
    run = await run_of(openai_api, answer.id)
    assert (run.end_reason, run.via) == (RunEnding.DONE, "openai")
    assert openai_api.on_disk("a.txt").read_text() == "a\n"


async def test_response_is_streamed_in_deltas(openai_api: OpenAiFixture) -> None:
    openai_api.model.say(says("I write.", WRITES), says("It is written."))

    stream = await openai_api.ask(user("Write a."), stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]

    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert choices[0].delta.role == "assistant"
    assert "".join(choice.delta.content or "" for choice in choices) == "I write.\n\nIt is written."
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"]
    assert choices[-1].finish_reason == "stop"
    assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage] == [36]
    assert chunks[-1].choices == []
    assert len({chunk.id for chunk in chunks}) == 1


async def test_stream_reports_usage_only_on_request(openai_api: OpenAiFixture) -> None:
    openai_api.model.say(says("Hello."))

    chunks = [chunk async for chunk in await openai_api.ask(user("Hi"), stream=True)]

    assert [chunk.usage for chunk in chunks] == [None] * len(chunks)
    assert all(chunk.choices for chunk in chunks)


@pytest.mark.parametrize("stream", [False, True])
async def test_conversation_continues_in_its_session(openai_api: OpenAiFixture, stream: bool) -> None:
    openai_api.model.say(says("", ("ls", {"path": "/"})), says("Nothing here.\n"), says("Still nothing."))
    first = [{"role": "system", "content": "Be brief."}, user("What is there?")]

    heard = await heard_of(await openai_api.ask(*first, stream=stream))
    # Clients trim their history.
    await heard_of(await openai_api.ask(*first, assistant(heard.strip()), user("And now?"), stream=stream))

    assert await sessions_of(openai_api) == 1
    roles = [role for role, _ in openai_api.model_input()]
    assert roles == ["user", "user", "assistant", "tool", "assistant", "user"], "it remembers its calls, too"
    assert openai_api.model_input()[-1] == ("user", "And now?")


async def test_changed_history_starts_a_new_session(openai_api: OpenAiFixture) -> None:
    openai_api.model.say(says("One."), says("Two."), says("Another one."))
    await openai_api.ask(user("Count."))
    await openai_api.ask(user("Count."), assistant("One."), user("On."))

    again = await openai_api.ask(user("Count."), assistant("One."), user("On."))

    assert again.choices[0].message.content == "Another one.", "asked to say it again, it does"
    assert openai_api.model_input() == [("user", "Count."), ("assistant", "One."), ("user", "On.")]
    assert await sessions_of(openai_api) == 2


async def test_two_conversations_at_once_use_separate_sessions(openai_api: OpenAiFixture) -> None:
    openai_api.model.say(says("One."), says("Two."), says("Two."))
    await openai_api.ask(user("Count."))
    said = (user("Count."), assistant("One."), user("On."))

    answers = await asyncio.gather(openai_api.ask(*said), openai_api.ask(*said))

    assert [one.choices[0].message.content for one in answers] == ["Two.", "Two."]
    assert await sessions_of(openai_api) == 2


async def test_run_limit_is_reported_as_length(openai_api: OpenAiFixture) -> None:
    await openai_api.change(max_turns=1)
    openai_api.model.say(says("", ("ls", {"path": "/"})), says("That is all I can do."))

    answer = await openai_api.ask(user("Look everywhere."))

    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content == "That is all I can do."


@pytest.mark.parametrize("stream", [False, True])
async def test_disconnecting_cancels_the_run(openai_api: OpenAiFixture, stream: bool) -> None:
    begun = wires.chat_completions(Scene(text="I begin and go on"), MODEL)[:2]
    openai_api.model.say(Answer(tuple(begun), hang=True))

    async with openai_api.http() as http, asyncio.timeout(PATIENCE):
        body = {"model": openai_api.name, "messages": [user("Begin.")], "stream": stream}
        asking = asyncio.create_task(http.post("/chat/completions", json=body))
        run = await openai_api.first_run(RunState.RUNNING)
        asking.cancel()
        ended = await openai_api.until_ended(run)

    assert ended.end_reason is RunEnding.CANCELLED


async def test_failing_model_is_reported_once_and_not_retried(openai_api: OpenAiFixture) -> None:
    broken = Answer((b'{"error": {"message": "no such model", "type": "x"}}',), 404, content_type="application/json")
    openai_api.model.say(broken)

    with pytest.raises(openai.APIStatusError) as whole:
        await openai_api.ask(user("Hello?"))
    openai_api.model.say(broken)
    with pytest.raises(openai.APIError) as streamed:
        await heard_of(await openai_api.ask(user("Hello?"), stream=True))

    assert whole.value.status_code == 502
    assert whole.value.body == streamed.value.body
    assert len(openai_api.model.received) == 2


async def heard_of(answer: Any) -> str:
    if isinstance(answer, openai.AsyncStream):
        return "".join([chunk.choices[0].delta.content or "" async for chunk in answer if chunk.choices])
    content: str = answer.choices[0].message.content
    return content


def image_of(body: bytes) -> dict[str, Any]:
    url = f"data:image/png;base64,{b64encode(body).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


CAT, DOG = (image_of(b"\x89PNG\r\n\x1a\n" + animal) for animal in (b"cat", b"dog"))


def looking(*parts: dict[str, Any], text: str = "What is this?") -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}, *parts]}


def images_of(openai_api: OpenAiFixture) -> list[str]:
    """The images of the last request to the model, in order."""
    messages = openai_api.model.last.body["messages"]
    parts = [part for one in messages if isinstance(one["content"], list) for part in one["content"]]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


async def test_images_and_pdfs_of_a_message_reach_the_model(openai_api: OpenAiFixture) -> None:
    pdf = f"data:application/pdf;base64,{b64encode(b'%PDF-1.7').decode()}"
    openai_api.model.say(says("A cat."))
    await openai_api.ask(looking(CAT, {"type": "file", "file": {"filename": "a.pdf", "file_data": pdf}}))

    *_, image, document, text = openai_api.model.last.body["messages"][-1]["content"]
    assert image == CAT
    assert document["file"] == {"filename": "a.pdf", "file_data": pdf}
    assert text["text"].startswith("What is this?\n[Attached: image-1.png (image/png, 11 bytes).]")


async def test_an_image_is_sent_once_and_stays_in_its_conversation(openai_api: OpenAiFixture) -> None:
    openai_api.model.say(says("A pet."), says("A pet."), says("A cat."))
    await openai_api.ask(looking(CAT))
    # The same words about another image are another conversation.
    await openai_api.ask(looking(DOG))
    await openai_api.ask(looking(CAT), assistant("A pet."), user("Which one?"))

    assert images_of(openai_api) == [CAT["image_url"]["url"]]
    assert await sessions_of(openai_api) == 2


async def test_the_images_of_a_history_that_is_new_to_the_server_are_shown(openai_api: OpenAiFixture) -> None:
    openai_api.model.say(says("The dog."))
    await openai_api.ask(looking(CAT), assistant("A cat."), {"role": "user", "content": [DOG]})

    assert images_of(openai_api) == [CAT["image_url"]["url"], DOG["image_url"]["url"]]


async def test_repeated_request_with_a_key_is_one_run_and_is_authorized_again(openai_api: OpenAiFixture) -> None:
    openai_api.model.say(says("Hello."))
    headers = {"Idempotency-Key": "once"}

    first, again = [await openai_api.ask(user("Hi"), extra_headers=headers) for _ in range(2)]
    await openai_api.services.agents.delete(openai_api.tenant, openai_api.agent_id)

    assert (again.id, again.choices, again.usage) == (first.id, first.choices, first.usage)
    assert await sessions_of(openai_api) == 1
    with pytest.raises(openai.NotFoundError):
        await openai_api.ask(user("Hi"), extra_headers=headers)
