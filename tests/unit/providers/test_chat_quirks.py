"""Observed quirks of OpenAI-compatible servers, and how we parse them."""

import json
from typing import Any

import pytest

from tests.fakes.grammar import failure, received
from tests.fakes.memory import read_bytes
from tests.fakes.wires import sse
from toolcrib.core.errors import ProviderErrorKind
from toolcrib.core.messages import AssistantMessage, ModelToolCall, ToolCallId, UserMessage
from toolcrib.core.model_stream import FinishReason, StreamFinish, ThinkingDelta, ToolCallDelta

DONE = b"data: [DONE]\n\n"


def delta(reason: str | None = None, **fields: Any) -> bytes:
    return sse({"id": "x", "model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": reason}]})


def piece(
    index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = ""
) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name is not None else {})
    given = {"index": index, "id": id}
    return {key: value for key, value in given.items() if value is not None} | {"function": function}


def calls(*pieces: dict[str, Any]) -> bytes:
    return delta(tool_calls=list(pieces))


A, B = '{"path": "a"}', '{"path": "b"}'
STOP = delta("stop")

TWO_CALLS: dict[str, list[bytes]] = {
    "as OpenAI: id and name first, arguments by index": [
        calls(piece(0, "1", "fs_read")),
        calls(piece(0, arguments=A[:5])),
        calls(piece(1, "2", "fs_read")),
        calls(piece(0, arguments=A[5:])),
        calls(piece(1, arguments=B)),
        delta("tool_calls"),
    ],
    "llama-cpp-python: id and name in every piece, and the old function_call beside it": [
        calls(piece(0, "1", "fs_read", A[:5])),
        delta(tool_calls=[piece(0, "1", "fs_read", A[5:])], function_call={"name": "fs_read", "arguments": A[5:]}),
        calls(piece(1, "2", "fs_read", B)),
        delta("tool_calls"),
    ],
    "no index at all, calls whole": [calls(piece(None, "1", "fs_read", A), piece(None, "2", "fs_read", B)), STOP],
    "no index, no ids": [calls(piece(None, None, "fs_read", A)), calls(piece(None, None, "fs_read", B)), STOP],
    "no index, arguments in pieces": [
        calls(piece(None, "1", "fs_read", A[:5])),
        calls(piece(None, None, None, A[5:])),
        calls(piece(None, "2", "fs_read", B[:5])),
        calls(piece(None, "2", None, B[5:])),
        STOP,
    ],
    "every call at index 0": [
        calls(piece(0, "1", "fs_read", A[:5])),
        calls(piece(0, arguments=A[5:])),
        calls(piece(0, "2", "fs_read", B[:5])),
        calls(piece(0, arguments=B[5:])),
        STOP,
    ],
    "another id in every piece": [
        calls(piece(0, "1", "fs_read", A[:5])),
        calls(piece(0, "9", None, A[5:])),
        calls(piece(1, "2", "fs_read", B)),
        STOP,
    ],
    "the same id for all": [calls(piece(0, "1", "fs_read", A)), calls(piece(1, "1", "fs_read", B)), STOP],
    "the name after the id, and after some arguments": [
        calls(piece(0, "1", "", A[:5])),
        calls(piece(0, None, "fs_read", A[5:])),
        calls(piece(1, "2", "fs_read", B)),
        delta("tool_calls"),
    ],
    "arguments as an object": [
        calls(piece(0, "1", "fs_read", json.loads(A)), piece(1, "2", "fs_read", json.loads(B))),
        STOP,
    ],
    "an index that begins at 1, and holes": [calls(piece(1, "1", "fs_read", A), piece(7, "2", "fs_read", B)), STOP],
    "the finish with the last piece": [
        calls(piece(0, "1", "fs_read", A)),
        delta("tool_calls", tool_calls=[piece(1, "2", "fs_read", B)]),
    ],
    "nulls everywhere": [
        delta(role="assistant", content=None, tool_calls=None, refusal=None, reasoning_content=None),
        calls(piece(0, "1", "fs_read", None)),
        calls(piece(0, None, None, A)),
        calls(piece(1, "2", "fs_read", B)),
        delta("tool_calls", content=None),
    ],
}


@pytest.mark.parametrize("stream", TWO_CALLS.values(), ids=TWO_CALLS)
@pytest.mark.parametrize("end", [[DONE], []], ids=["with [DONE]", "without"])
async def test_two_calls_are_parsed(stream: list[bytes], end: list[bytes]) -> None:
    reception = received(await read_bytes("openai", [*stream, *end]))

    assert reception.error is None
    assert [(call.name, call.arguments) for call in reception.message().tool_calls] in (
        [("fs.read", A), ("fs.read", B)],
        [("fs.read", json.dumps(json.loads(A))), ("fs.read", json.dumps(json.loads(B)))],
    )
    assert reception.finish
    assert reception.finish.reason is FinishReason.TOOL_CALLS


async def test_a_reused_id_is_replaced_by_a_new_one() -> None:
    earlier = AssistantMessage(tool_calls=(ModelToolCall(ToolCallId("call_0"), "fs.read", A),))
    stream = [calls(piece(0, "call_0", "fs_read", B)), delta("tool_calls"), DONE]

    (call,) = received(await read_bytes("openai", stream, messages=[earlier])).message().tool_calls

    assert call.id != "call_0"


@pytest.mark.parametrize("arguments", ["", None])
async def test_missing_arguments_are_no_delta_and_an_empty_object(arguments: str | None) -> None:
    events = await read_bytes("openai", [calls(piece(0, "1", "fs_read", arguments)), delta("tool_calls"), DONE])

    assert not [event for event in events if isinstance(event, ToolCallDelta)]
    assert received(events).message().tool_calls[0].parsed() == {}


async def test_usage_is_read_from_a_chunk_without_choices_or_from_the_last_one() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
    alone = sse({"id": "x", "choices": [], "usage": usage})
    beside = sse({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage})

    for stream in ([delta(content="Hi"), STOP, alone, DONE], [delta(content="Hi"), beside, DONE]):
        found = received(await read_bytes("openai", stream)).usage
        assert (found.input_tokens, found.output_tokens, found.cached_input_tokens) == (5, 3, 2)


async def test_comments_other_fields_and_crlf_are_accepted() -> None:
    hello, stop = delta(content="Hi").replace(b"\n", b"\r\n"), STOP.replace(b"data: ", b"data:")
    stream = [b": OPENROUTER PROCESSING\n\n", b"retry: 3000\r\n\r\n", b"event: x\nid: 7\n", hello, stop, DONE]

    assert received(await read_bytes("openai", stream)).message().text == "Hi"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
async def test_thinking_is_parsed_from_each_field_name_and_the_name_is_kept(field: str) -> None:
    events = await read_bytes("openai", [delta(**{field: "Hm."}), delta(content="Yes."), STOP, DONE])

    assert ThinkingDelta("Hm.") in events
    finish = events[-1]
    assert isinstance(finish, StreamFinish)
    assert finish.note
    assert finish.note.data == {"thinking_field": field}


async def test_content_in_parts_is_parsed() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Yes."}]
    message = received(await read_bytes("openai", [delta(content=parts), STOP, DONE])).message()

    assert (message.thinking, message.text) == ("Hm.", "Yes.")


async def test_only_the_first_choice_is_parsed() -> None:
    other = sse({"id": "x", "choices": [{"index": 1, "delta": {"content": "No."}, "finish_reason": "stop"}]})
    assert received(await read_bytes("openai", [delta(content="Yes."), other, STOP, DONE])).message().text == "Yes."


async def test_a_model_refusal_is_text_with_a_finish_reason() -> None:
    reception = received(await read_bytes("openai", [delta(refusal="I will not."), STOP, DONE]))

    assert reception.message().text == "I will not."
    assert reception.finish
    assert reception.finish.reason is FinishReason.REFUSAL


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 429, "message": "slow down"}, ProviderErrorKind.RATE_LIMIT),
        ({"code": 502, "message": "upstream died"}, ProviderErrorKind.UNAVAILABLE),
        ({"type": "exceed_context_size_error", "message": "exceeds context size"}, ProviderErrorKind.CONTEXT_TOO_LONG),
        ({"message": "something"}, ProviderErrorKind.UNAVAILABLE),
        ("just text", ProviderErrorKind.REQUEST),
    ],
    ids=str,
)
async def test_an_error_within_the_stream_ends_it(error: object, kind: ProviderErrorKind) -> None:
    events = await read_bytes(
        "openai", [delta(content="I be"), sse({"error": error}), delta(content="gin"), STOP, DONE]
    )

    assert failure(events).error.kind is kind
    assert received(events).message().text == "I be"


async def test_a_call_without_a_name_is_a_broken_stream() -> None:
    events = await read_bytes("openai", [calls(piece(0, "1", None, A)), delta("tool_calls"), DONE])
    assert failure(events).error.kind is ProviderErrorKind.BROKEN_STREAM


async def test_invalid_arguments_are_passed_on_unchanged() -> None:
    (call,) = (
        received(await read_bytes("openai", [calls(piece(0, "1", "fs_read", "{oops")), delta("tool_calls"), DONE]))
        .message()
        .tool_calls
    )

    assert call.arguments == "{oops"
    assert call.parsed() is None


async def test_unknown_tool_names_are_passed_on() -> None:
    stream = [calls(piece(0, "1", "functions.made_up", A)), delta("tool_calls"), DONE]
    (call,) = received(await read_bytes("openai", stream, messages=[UserMessage("Go.")])).message().tool_calls

    assert call.name == "functions.made_up"
