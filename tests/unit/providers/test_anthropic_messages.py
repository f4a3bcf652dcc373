"""Anthropic's wire format: requests, signed thinking that is sent back, and quirks of compatible servers."""

from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.grammar import failure, received
from tests.fakes.memory import WIRES, read_bytes
from tests.fakes.scripted_turns import THINK, TWO_CALLS, SceneCall
from tests.fakes.strictness import anthropic_refusal
from tests.fakes.tools import TOOLS
from tests.fakes.wires import SIGNATURE, sse
from toolcrib.core.errors import ProviderErrorKind
from toolcrib.core.messages import (
    AssistantMessage,
    Message,
    ModelToolCall,
    SystemMessage,
    ToolCallId,
    ToolResultMessage,
    UserMessage,
    from_stored,
    to_stored,
)
from toolcrib.core.model_stream import FinishReason, ToolCallDelta, ToolCallEnd
from toolcrib.providers.anthropic_messages import request_body
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.wire_history import ToolNameEncoder

THINK_AND_CALL = replace(TWO_CALLS, thinking="Which one? Grüße 🚀", reason=FinishReason.TOOL_CALLS)


def body_of(*messages: Message, model: str = "m", thinking: int = 0) -> dict[str, Any]:
    request = ModelRequest(model, messages, tools=TOOLS, thinking_tokens=thinking)
    return request_body(request, ToolNameEncoder.of(request.tools, request.messages), provider="anthropic")


async def answered() -> AssistantMessage:
    """A message with signed thinking, stored and loaded again."""
    message = received(await read_bytes("anthropic", WIRES["anthropic"](THINK_AND_CALL))).message()
    found = from_stored(to_stored(message))
    assert isinstance(found, AssistantMessage)
    return found


def results(message: AssistantMessage) -> list[ToolResultMessage]:
    return [ToolResultMessage(call.id, "Done.") for call in message.tool_calls]


@pytest.mark.req("PR-3", part="signed thinking survives the round trip")
async def test_signed_thinking_is_sent_back_unchanged() -> None:
    message = await answered()
    body = body_of(UserMessage("Go."), message, *results(message), thinking=2000)

    blocks = body["messages"][1]["content"]
    assert blocks[0] == {"type": "thinking", "thinking": THINK_AND_CALL.thinking, "signature": SIGNATURE}
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use"]
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert anthropic_refusal(body, SIGNATURE) is None


@pytest.mark.parametrize(
    "changed",
    [
        lambda message: replace(message, text="Shortened."),
        lambda message: replace(message, thinking=""),
        lambda message: replace(message, tool_calls=message.tool_calls[:1]),
        lambda message: replace(message, note=replace(message.note, provider="openai")),
        lambda message: replace(message, note=replace(message.note, model="another")),
    ],
    ids=["text", "thinking", "calls", "another provider's", "another model's"],
)
async def test_thinking_that_no_longer_matches_is_dropped_and_thinking_is_disabled(changed: Any) -> None:
    message = changed(await answered())
    body = body_of(UserMessage("Go."), message, *results(message), thinking=2000)

    assert "thinking" not in [block["type"] for block in body["messages"][1]["content"]]
    assert "thinking" not in body
    assert anthropic_refusal(body, SIGNATURE) is None


async def test_redacted_thinking_is_sent_back_in_order() -> None:
    stream = [
        sse({"type": "message_start", "message": {"id": "1", "model": "m"}}),
        sse({"type": "content_block_start", "index": 0, "content_block": {"type": "redacted_thinking", "data": "xyz"}}),
        sse({"type": "content_block_stop", "index": 0}),
        sse({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "Yes."}}),
        sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        sse({"type": "message_stop"}),
    ]
    message = received(await read_bytes("anthropic", stream)).message()

    blocks = body_of(UserMessage("Go."), message, UserMessage("And?"))["messages"][1]["content"]
    assert blocks == [{"type": "redacted_thinking", "data": "xyz"}, {"type": "text", "text": "Yes."}]


@pytest.mark.req("PR-3", part="Anthropic's form")
def test_the_conversation_is_encoded_in_anthropics_format() -> None:
    call = ModelToolCall(ToolCallId("call_1"), "fs.read", '{"path": "x"}')
    body = body_of(
        SystemMessage("Be brief."),
        UserMessage("Read x."),
        AssistantMessage("", tool_calls=(call,)),
        ToolResultMessage(call.id, "No such file.", is_error=True),
        UserMessage("Well?"),
    )

    assert body["system"] == "Be brief."
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Read x."}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "call_1", "name": "fs_read", "input": {"path": "x"}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "No such file.", "is_error": True},
                {"type": "text", "text": "Well?"},
            ],
        },
    ]


async def test_all_blocks_may_stop_at_the_end_as_in_llama_server() -> None:
    events = WIRES["anthropic"](TWO_CALLS)
    stops = [event for event in events if b"content_block_stop" in event]
    late = [event for event in events if event not in stops]
    late[-2:-2] = stops

    assert received(await read_bytes("anthropic", late)).message() == (
        received(await read_bytes("anthropic", events)).message()
    )


async def test_blocks_without_a_stop_end_with_the_message() -> None:
    events = [event for event in WIRES["anthropic"](TWO_CALLS) if b"content_block_stop" not in event]
    assert len(received(await read_bytes("anthropic", events)).message().tool_calls) == 2


async def test_a_complete_input_at_the_start_of_a_block_is_one_delta() -> None:
    start = {"type": "tool_use", "id": "1", "name": "fs_read", "input": {"path": "x"}}
    stream = [
        sse({"type": "message_start", "message": {"id": "1", "model": "m"}}),
        sse({"type": "content_block_start", "index": 0, "content_block": start}),
        sse({"type": "content_block_stop", "index": 0}),
        sse({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
        sse({"type": "message_stop"}),
    ]
    events = await read_bytes("anthropic", stream)

    assert [event for event in events if isinstance(event, ToolCallDelta)] == [ToolCallDelta(0, '{"path": "x"}')]
    assert events.count(ToolCallEnd(0)) == 1


@pytest.mark.req("PR-5", part="errors within a stream")
async def test_an_error_event_ends_the_stream() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    events = await read_bytes("anthropic", [*WIRES["anthropic"](THINK)[:6], sse(error)])

    found = failure(events).error
    assert (found.status, found.body, found.kind) == (529, "Overloaded", ProviderErrorKind.OVERLOADED)
    assert received(events).message().thinking


async def test_unknown_event_types_are_ignored() -> None:
    events = WIRES["anthropic"](THINK)
    events.insert(1, sse({"type": "something_new", "x": 1}))
    events.insert(4, sse({"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta"}}))

    assert received(await read_bytes("anthropic", events)).message().text == THINK.text


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_start"},
        {"type": "message_delta", "delta": None},
    ],
    ids=str,
)
async def test_invalid_events_break_the_stream(event: dict[str, Any]) -> None:
    events = await read_bytes("anthropic", [*WIRES["anthropic"](THINK)[:4], sse(event)])
    assert failure(events).error.kind is ProviderErrorKind.BROKEN_STREAM


async def test_a_delta_after_the_end_of_a_call_breaks_the_stream() -> None:
    scene = replace(TWO_CALLS, text="", calls=(SceneCall("1", "fs_read", '{"path": "x"}'),))
    events = WIRES["anthropic"](scene)
    more = {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}}
    events[-2:-2] = [sse(more)]

    assert failure(await read_bytes("anthropic", events)).error.kind is ProviderErrorKind.BROKEN_STREAM
