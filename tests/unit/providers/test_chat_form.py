"""Requests to OpenAI and compatible servers: thinking and signatures are sent back to the model that made them."""

import json
from typing import Any

import pytest

from tests.fakes.grammar import received
from tests.fakes.memory import read_bytes
from tests.fakes.tools import TOOLS
from tests.fakes.wires import sse
from toolcrib.core.messages import (
    AssistantMessage,
    Message,
    ModelToolCall,
    SystemMessage,
    ToolCallId,
    ToolResultMessage,
    UserMessage,
)
from toolcrib.providers.chat_completions import request_body
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.wire_history import ToolNameEncoder

SIGNATURE = {"google": {"thought_signature": "abc"}}
DETAILS = [{"type": "reasoning.encrypted", "data": "xyz"}]


def sent(*messages: Message, model: str = "m", provider: str = "openai-compatible") -> list[dict[str, Any]]:
    request = ModelRequest(model, messages, tools=TOOLS)
    names = ToolNameEncoder.of(request.tools, request.messages)
    body = request_body(request, names, provider=provider, max_tokens_field="max_tokens")
    result: list[dict[str, Any]] = body["messages"]
    return result


async def answered() -> AssistantMessage:
    call = {"index": 0, "id": "1", "function": {"name": "fs_read", "arguments": "{}"}, "extra_content": SIGNATURE}
    deltas: list[dict[str, Any]] = [
        {"reasoning_content": "Hm."},
        {"reasoning_details": DETAILS},
        {"reasoning_opaque": "op"},
        {"reasoning_opaque": "aque"},
        {"tool_calls": [call]},
    ]
    stream = [sse({"id": "x", "choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
    stream.append(sse({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}))
    return received(await read_bytes("openai", stream)).message()


async def test_thinking_and_signatures_are_sent_back_with_tool_results() -> None:
    message = await answered()
    result = sent(UserMessage("Go."), message, ToolResultMessage(message.tool_calls[0].id, "x"))[1]

    assert result["reasoning_content"] == "Hm."
    assert result["reasoning_details"] == DETAILS
    assert result["reasoning_opaque"] == "opaque"
    assert result["tool_calls"][0]["extra_content"] == SIGNATURE


async def test_thinking_of_an_earlier_turn_is_not_sent() -> None:
    message = await answered()
    result = sent(UserMessage("Go."), message, ToolResultMessage(message.tool_calls[0].id, "x"), UserMessage("And?"))[1]

    assert "reasoning_content" not in result


@pytest.mark.parametrize(("model", "provider"), [("another", "openai-compatible"), ("m", "openai")])
async def test_another_provider_or_model_gets_neither_thinking_nor_signatures(model: str, provider: str) -> None:
    message = await answered()
    result = sent(UserMessage("Go."), message, model=model, provider=provider)[1]

    assert result.keys() == {"role", "content", "tool_calls"}
    assert result["tool_calls"][0].keys() == {"id", "type", "function"}


def test_the_conversation_is_encoded_in_openais_format() -> None:
    call = ModelToolCall(ToolCallId("call_1"), "fs.read", "{oops")

    assert sent(
        SystemMessage("Be brief."),
        UserMessage("Read."),
        AssistantMessage("", tool_calls=(call,)),
        ToolResultMessage(call.id, "No JSON.", is_error=True),
    ) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Read."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "fs_read", "arguments": json.dumps({"INVALID_JSON": "{oops"})},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "No JSON."},
    ]
