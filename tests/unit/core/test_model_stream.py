"""The union of stream events, and the messages built from them."""

from toolcrib.core.errors import ProviderError, ProviderErrorKind
from toolcrib.core.messages import AssistantMessage, ModelToolCall, ProviderMetadata, ToolCallId
from toolcrib.core.model_stream import (
    FinishReason,
    MessageBuilder,
    StreamEvent,
    StreamFailed,
    StreamFinish,
    StreamStart,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)

ONE, TWO = ToolCallId("call_1"), ToolCallId("call_2")
CALLS: list[StreamEvent] = [
    StreamStart("1", "m"),
    TextDelta("I "),
    ThinkingDelta("hm"),
    ToolCallStart(0, ONE, "read_file"),
    ToolCallDelta(0, '{"pa'),
    ToolCallStart(1, TWO, "bash"),
    ToolCallDelta(1, "{}"),
    ToolCallEnd(1),
    ToolCallDelta(0, 'th": 1}'),
    TextDelta("look"),
    ToolCallEnd(0),
    TokenUsage(5, 3),
]


def received(*events: StreamEvent) -> MessageBuilder:
    reception = MessageBuilder()
    for event in events:
        reception.add(event)
    return reception


def test_provider_error_stores_status_and_body() -> None:
    error = ProviderError(401, "Unauthorized")

    assert (error.status, error.body) == (401, "Unauthorized")
    assert error.message == "Provider error (401): Unauthorized"
    assert isinstance(error, Exception)


def test_stream_event_discriminated_union_covers_all_variants() -> None:
    events: list[StreamEvent] = [
        *CALLS,
        StreamFinish(FinishReason.STOP),
        StreamFinish(FinishReason.TOOL_CALLS),
        StreamFailed(ProviderError(500, "oops")),
    ]

    assert {event.type for event in events} == {
        "start",
        "text",
        "thinking",
        "tool_call_start",
        "tool_call_delta",
        "tool_call_end",
        "usage",
        "finish",
        "error",
    }


def test_a_message_is_assembled_from_its_events() -> None:
    note = ProviderMetadata("p", "m", {"x": 1})
    reception = received(*CALLS, StreamFinish(FinishReason.TOOL_CALLS, note))

    calls = (ModelToolCall(ONE, "read_file", '{"path": 1}'), ModelToolCall(TWO, "bash", "{}"))
    assert reception.message() == AssistantMessage("I look", "hm", calls, note)
    assert reception.usage == TokenUsage(5, 3)


def test_an_interrupted_message_has_no_tool_calls() -> None:
    error = ProviderError(0, "cut", kind=ProviderErrorKind.BROKEN_STREAM)
    reception = received(*CALLS[:-3], StreamFailed(error))

    assert reception.message() == AssistantMessage("I ", "hm")
    assert reception.incomplete_calls == ["read_file"]
    assert reception.error is error
    assert reception.finish is None
