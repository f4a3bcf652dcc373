"""Every conversation is encoded in a form that the providers accept."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.strictness import (
    anthropic_refusal,
    gemini_refusal,
    ollama_refusal,
    openai_refusal,
    responses_refusal,
)
from tests.fakes.tools import TOOLS
from tests.fakes.wires import ENCRYPTED, SIGNATURE
from toolcrib.core.messages import (
    AssistantMessage,
    Message,
    ModelToolCall,
    SystemMessage,
    ToolCallId,
    ToolResultMessage,
    UserMessage,
)
from toolcrib.providers import anthropic_messages, chat_completions, gemini, ollama, openai_responses
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.stream_reader import encoded
from toolcrib.providers.wire_history import NO_OUTPUT, NO_RESULT, ToolNameEncoder, pair_tool_results, without_tool_calls

texts = st.sampled_from(["", " \n", "Hello.", "\ud800 half", "NUL \0"]) | st.text(max_size=8)
ids = st.sampled_from(["a", "b", "", "a_2", "an id with blanks", "x" * 50]).map(ToolCallId)
names = st.sampled_from(["fs.read", "fs_read", "", "mcp:server/tool", "tool " * 30, "read"])
arguments = st.sampled_from(
    ["", "{}", '{"path": "x"}', "[1]", "{oops", "null", "[" * 5_000, '{"x": NaN}', '{"x": 1e999}', '{"x": "\\ud800"}']
)
tool_calls = st.lists(st.builds(ModelToolCall, ids, names, arguments), max_size=3).map(tuple)
messages = st.lists(
    st.builds(SystemMessage, texts)
    | st.builds(UserMessage, texts)
    | st.builds(AssistantMessage, texts, texts, tool_calls)
    | st.builds(ToolResultMessage, ids, texts, st.booleans()),
    max_size=8,
).map(lambda drawn: (*drawn, UserMessage("Go.")))


@pytest.mark.parametrize("tools", [TOOLS, ()], ids=["tools", "no tools"])
@given(messages=messages, thinking=st.sampled_from([0, 2000]))
@settings(max_examples=100, deadline=None)
def test_every_conversation_is_accepted_by_the_providers(
    tools: tuple[object, ...], messages: tuple[Message, ...], thinking: int
) -> None:
    request = ModelRequest("m", messages, tools=TOOLS if tools else (), thinking_tokens=thinking)
    wire = ToolNameEncoder.of(request.tools, request.messages)
    anthropic = anthropic_messages.request_body(request, wire, provider="anthropic")
    openai = chat_completions.request_body(request, wire, provider="openai", max_tokens_field="max_tokens")
    responses = openai_responses.request_body(request, wire, provider="openai", reasons=True)
    google = gemini.request_body(replace(request, model="gemini-3.5-flash"), wire, provider="gemini")
    native = ollama.request_body(request, wire)

    assert anthropic_refusal(anthropic, SIGNATURE) is None
    assert openai_refusal(openai) is None
    assert responses_refusal(responses, ENCRYPTED) is None
    assert gemini_refusal(google, "gemini-3.5-flash", SIGNATURE) is None
    assert ollama_refusal(native) is None
    for body in (anthropic, openai, responses, google, native):
        assert json.loads(encoded(body)).keys() == body.keys()


def test_results_directly_follow_their_calls_in_order() -> None:
    a, b = (ModelToolCall(ToolCallId(name), "read") for name in "ab")
    asked = AssistantMessage("", tool_calls=(a, b))
    late: list[Message] = [ToolResultMessage(b.id, "B"), UserMessage("Wait."), ToolResultMessage(a.id, "")]

    assert pair_tool_results([asked, *late]) == [
        asked,
        ToolResultMessage(a.id, NO_OUTPUT),
        ToolResultMessage(b.id, "B"),
        UserMessage("Wait."),
    ]


def test_a_call_without_a_result_gets_a_placeholder() -> None:
    asked = AssistantMessage("", tool_calls=(ModelToolCall(ToolCallId("a"), "bash"),))
    assert pair_tool_results([asked])[1] == ToolResultMessage(ToolCallId("a"), NO_RESULT, is_error=True)


def test_a_reused_id_keeps_its_own_result() -> None:
    asked = AssistantMessage("", tool_calls=(ModelToolCall(ToolCallId("a"), "read"),))
    sent = pair_tool_results([asked, asked, ToolResultMessage(ToolCallId("a"), "second")])

    assert isinstance(sent[1], ToolResultMessage)
    assert isinstance(sent[3], ToolResultMessage)
    assert (sent[1].text, sent[3].text) == (NO_RESULT, "second")
    assert sent[1].call_id != sent[3].call_id


def test_without_tools_calls_and_results_become_text() -> None:
    call = ModelToolCall(ToolCallId("a"), "read", '{"path": "x"}')
    result = list(
        without_tool_calls(
            [AssistantMessage("Hm.", tool_calls=(call,)), ToolResultMessage(call.id, "X", is_error=True)]
        )
    )

    assert result == [AssistantMessage('Hm.\n[Called read with {"path": "x"}]'), UserMessage("[Error of read]\nX")]
