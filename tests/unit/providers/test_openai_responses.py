"""OpenAI's Responses: reasoning goes back to the model that made it, and quirks of servers are understood."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.grammar import failure, received
from tests.fakes.memory import read_bytes
from tests.fakes.scripted_turns import THINK, TWO_CALLS, Scene
from tests.fakes.strictness import responses_refusal
from tests.fakes.tools import TOOLS
from tests.fakes.wires import ENCRYPTED, responses, sse
from toolcrib.core.errors import ProviderErrorKind
from toolcrib.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
    from_stored,
    to_stored,
)
from toolcrib.core.model_options import Effort
from toolcrib.core.model_stream import FinishReason
from toolcrib.providers import anthropic_messages
from toolcrib.providers.openai_responses import request_body
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.wire_history import ToolNameEncoder

MODEL = "gpt-5.6-terra"
REASONING = {
    "type": "reasoning",
    "id": "rs_fake",
    "summary": [{"type": "summary_text", "text": THINK.thinking}],
    "encrypted_content": ENCRYPTED,
}


def sent(
    *messages: Message, model: str = MODEL, provider: str = "openai", reasons: bool = True, **options: Any
) -> dict[str, Any]:
    request = ModelRequest(model, messages, tools=TOOLS, **options)
    names = ToolNameEncoder.of(request.tools, request.messages)
    body = request_body(request, names, provider=provider, reasons=reasons)
    assert responses_refusal(body, ENCRYPTED) is None
    return body


async def answered() -> tuple[Message, ...]:
    """A question, a message that thinks and calls, and the results; stored and loaded in between."""
    scene = replace(TWO_CALLS, thinking=THINK.thinking)
    message = received(await read_bytes("responses", responses(scene), model=MODEL)).message()
    loaded = from_stored(replace(to_stored(message), metadata=json.loads(json.dumps(to_stored(message).metadata))))
    assert loaded == message
    results = (ToolResultMessage(call.id, f"Output of {call.name}") for call in message.tool_calls)
    return (UserMessage("Go."), loaded, *results)


async def test_encrypted_reasoning_is_sent_back_before_what_followed_it() -> None:
    items = sent(SystemMessage("Be brief."), *await answered())["input"]

    assert items[1] == REASONING
    assert items[2] == {"role": "assistant", "content": TWO_CALLS.text}
    assert [item["type"] for item in items[3:]] == ["function_call"] * 2 + ["function_call_output"] * 2


async def test_a_dated_version_of_the_model_gets_the_reasoning_back() -> None:
    assert REASONING in sent(*await answered(), model=f"{MODEL}-2026-07-01")["input"]


@pytest.mark.parametrize(("model", "provider"), [("gpt-5.5", "openai"), (MODEL, "copilot")])
async def test_another_model_or_provider_gets_no_reasoning(model: str, provider: str) -> None:
    body = sent(*await answered(), model=model, provider=provider)

    assert "reasoning" not in [item.get("type") for item in body["input"]]
    assert ENCRYPTED not in json.dumps(body)
    assert json.dumps(body).count("function_call_output") == 2


async def test_another_wire_gets_no_reasoning() -> None:
    request = ModelRequest("claude-fake", await answered(), tools=TOOLS)
    names = ToolNameEncoder.of(request.tools, request.messages)

    assert ENCRYPTED not in json.dumps(anthropic_messages.request_body(request, names, provider="anthropic"))


async def test_reasoning_of_a_changed_message_is_not_sent() -> None:
    question, message, *results = await answered()
    assert isinstance(message, AssistantMessage)
    changed = replace(message, text="Something else.")

    assert "reasoning" not in [item.get("type") for item in sent(question, changed, *results)["input"]]


async def test_reasoning_without_its_content_is_not_sent() -> None:
    scene = [piece for piece in responses(THINK) if b"[DONE]" not in piece]
    bare = [piece.replace(b', "encrypted_content": "%s"' % ENCRYPTED.encode(), b"") for piece in scene]
    message = received(await read_bytes("responses", bare, model=MODEL)).message()

    assert sent(UserMessage("Go."), message, UserMessage("And?"))["input"][1]["role"] == "assistant"


async def test_the_phase_of_a_message_is_sent_back() -> None:
    stream = [
        piece.replace(b'"status": "completed", "content"', b'"phase": "commentary", "content"')
        for piece in responses(THINK)
    ]
    message = received(await read_bytes("responses", stream, model=MODEL)).message()

    items = sent(UserMessage("Go."), message, UserMessage("And?"))["input"]
    assert items[2] == {"role": "assistant", "content": THINK.text, "phase": "commentary"}


def test_only_a_reasoning_model_is_sent_fields_about_reasoning() -> None:
    thinker = sent(UserMessage("Go."), effort=Effort.HIGH)
    plain = sent(UserMessage("Go."), temperature=0.5, model="gpt-4o", reasons=False)

    assert thinker["reasoning"] == {"summary": "auto", "effort": "high"}
    assert thinker["include"] == ["reasoning.encrypted_content"]
    assert plain["temperature"] == 0.5
    assert plain.keys().isdisjoint({"reasoning", "include"})
    assert (thinker["store"], plain["store"]) == (False, False)


async def test_parts_of_a_summary_are_paragraphs() -> None:
    part, delta = "response.reasoning_summary_part.added", "response.reasoning_summary_text.delta"
    at = {"output_index": 0}
    stream = [
        sse({"type": "response.output_item.added", **at, "item": {"type": "reasoning", "id": "rs", "summary": []}}),
        sse({"type": part, **at}),
        sse({"type": delta, **at, "delta": "One."}),
        sse({"type": part, **at}),
        sse({"type": delta, **at, "delta": "Two."}),
        sse({"type": "response.completed", "response": {"id": "r"}}),
    ]
    assert received(await read_bytes("responses", stream)).message().thinking == "One.\n\nTwo."


@pytest.mark.parametrize("scene", [THINK, TWO_CALLS], ids=["text", "calls"])
async def test_items_without_an_index_are_identified_by_their_id(scene: Scene) -> None:
    without_index = [without("output_index", chunk) for chunk in responses(scene)]
    message = received(await read_bytes("responses", without_index)).message()

    assert message == received(await read_bytes("responses", responses(scene))).message()


def without(field: str, chunk: bytes) -> bytes:
    event = json.loads(chunk.partition(b"data: ")[2])
    event.pop(field, None)
    return sse(event)


async def test_event_without_an_item_is_an_error() -> None:
    stream = [sse({"type": "response.output_text.delta", "delta": "Hi"})]

    assert "without an item" in str(failure(await read_bytes("responses", stream)))


async def test_items_that_arrive_whole_are_complete() -> None:
    call = {"type": "function_call", "call_id": "1", "name": "fs_read", "arguments": '{"path": "a"}'}
    text = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Hi."}]}
    stream = []
    for index, item in enumerate((text, call)):
        stream += [
            sse({"type": "response.output_item.added", "output_index": index, "item": item}),
            sse({"type": "response.output_item.done", "output_index": index, "item": item}),
        ]
    stream.append(sse({"type": "response.completed", "response": {"id": "r"}}))
    message = received(await read_bytes("responses", stream)).message()

    assert (message.text, message.tool_calls[0].parsed()) == ("Hi.", {"path": "a"})


async def test_unknown_events_and_items_are_ignored() -> None:
    strange = [
        sse({"type": "response.output_item.added", "output_index": 7, "item": {"type": "web_search_call", "id": "ws"}}),
        sse({"type": "response.web_search_call.searching", "output_index": 7}),
        sse({"type": "response.hologram.delta", "delta": "?"}),
        sse({"type": "response.output_item.done", "output_index": 7, "item": {"type": "web_search_call", "id": "ws"}}),
    ]
    whole = responses(THINK)
    message = received(await read_bytes("responses", [*whole[:2], *strange, *whole[2:]])).message()

    assert (message.text, message.thinking) == (THINK.text, THINK.thinking)


async def test_a_refusal_is_told_apart() -> None:
    scene = replace(THINK, thinking="", text="I will not.", reason=FinishReason.REFUSAL)
    reception = received(await read_bytes("responses", responses(scene)))

    assert reception.message().text == "I will not."
    assert reception.finish
    assert reception.finish.reason is FinishReason.REFUSAL


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
async def test_an_incomplete_response_says_why(reason: str) -> None:
    response = {"id": "r", "incomplete_details": {"reason": reason}}
    finish = received(
        await read_bytes("responses", [sse({"type": "response.incomplete", "response": response})])
    ).finish

    assert finish
    assert finish.reason == {"max_output_tokens": "length", "content_filter": "refusal"}[reason]


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, ProviderErrorKind.RATE_LIMIT),
        ({"type": "error", "error": {"code": "server_is_overloaded"}}, ProviderErrorKind.OVERLOADED),
        ({"type": "error", "code": "context_length_exceeded", "message": "x"}, ProviderErrorKind.CONTEXT_TOO_LONG),
        (
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "x"}}},
            ProviderErrorKind.UNAVAILABLE,
        ),
        ({"type": "response.failed", "response": {"error": None}}, ProviderErrorKind.BROKEN_STREAM),
    ],
)
async def test_an_error_within_the_stream_has_its_kind(event: dict[str, Any], kind: ProviderErrorKind) -> None:
    assert failure(await read_bytes("responses", [*responses(THINK)[:3], sse(event)])).error.kind is kind


async def test_cached_tokens_are_reported() -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 7,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
    }
    stream = [sse({"type": "response.completed", "response": {"id": "r", "usage": usage}})]
    found = received(await read_bytes("responses", stream)).usage

    assert (found.input_tokens, found.cached_input_tokens, found.cache_write_tokens) == (100, 60, 30)
