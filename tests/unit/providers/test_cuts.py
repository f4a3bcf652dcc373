"""A stream that is cut anywhere is never taken for a complete one, and how it is split makes no difference."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.grammar import received
from tests.fakes.memory import WIRES, read_bytes
from tests.fakes.scripted_turns import HELLO, NO_ARGUMENTS, THINK, TWO_CALLS, Scene, SceneCall
from toolcrib.core.errors import ProviderErrorKind
from toolcrib.core.model_stream import FinishReason, StreamEvent, StreamFailed, StreamFinish, StreamStart, ToolCallEnd

SCENES = {"text": HELLO, "thinking": THINK, "calls": TWO_CALLS, "bare call": NO_ARGUMENTS}
# After these bytes the message is complete: the rest adds nothing.
LAST = {
    "anthropic": b'{"type": "message_stop"}\n\n',
    "openai": b"data: [DONE]\n\n",
    "responses": b"\n\n",
    "gemini": b"\r\n\r\n",
    "ollama": b'"eval_count": 7}',
}


@pytest.mark.parametrize("broken", [True, False], ids=["connection broke", "body just ended"])
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_cut_at_any_byte_is_not_finished(wire: str, scene: Scene, broken: bool) -> None:
    whole = b"".join(WIRES[wire](scene))
    end = whole.rindex(LAST[wire]) + len(LAST[wire])
    if wire == "openai" and not broken:
        # A body that ends normally after the finish reason may lack the end marker: some servers never send it.
        end = whole.index(b'"finish_reason": "', whole.rindex(b'"delta": {}'))
        end = whole.index(b"\n\n", end) + 2
    if wire == "ollama" and broken:
        # A line is parsed when it has ended or the body has.
        end += 1
    asked = [json.loads(call.arguments) for call in scene.calls]

    for offset in range(end):
        events = await read_bytes(wire, [whole[:offset]], cut=broken)
        assert isinstance(events[-1], StreamFailed), (offset, whole[max(0, offset - 40) : offset])
        assert events[-1].error.kind is ProviderErrorKind.BROKEN_STREAM
        assert received(events).message().tool_calls == ()
        assert all(arguments in asked for arguments in ended_arguments(events))
    assert isinstance((await read_bytes(wire, [whole[:end]], cut=broken))[-1], StreamFinish)


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
@pytest.mark.parametrize("wire", WIRES)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
async def test_how_the_bytes_are_split_makes_no_difference(wire: str, scene: Scene, data: st.DataObject) -> None:
    whole = b"".join(WIRES[wire](scene))
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=60).map(sorted))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]

    assert plain(await read_bytes(wire, pieces)) == plain(await read_bytes(wire, [whole]))


@pytest.mark.parametrize("wire", ["anthropic", "openai", "responses"])
async def test_a_call_that_the_token_limit_cut_off_does_not_end(wire: str) -> None:
    cut_off = SceneCall("call_two", "list_directory", '{"path": "some/')
    scene = replace(TWO_CALLS, calls=(TWO_CALLS.calls[0], cut_off), reason=FinishReason.LENGTH)
    reception = received(await read_bytes(wire, WIRES[wire](scene)))

    assert reception.finish
    assert reception.finish.reason == "length"
    assert [call.name for call in reception.message().tool_calls] == ["fs.read"]
    assert reception.incomplete_calls == ["list_directory"]


def ended_arguments(events: list[StreamEvent]) -> list[object]:
    """The arguments of the completed calls."""
    reception = received(
        [*(event for event in events if not isinstance(event, StreamFailed)), StreamFinish(FinishReason.STOP)]
    )
    assert sum(isinstance(event, ToolCallEnd) for event in events) == len(reception.message().tool_calls)
    return [call.parsed() for call in reception.message().tool_calls]


def plain(events: list[StreamEvent]) -> object:
    """The comparable part of the events: generated ids differ, and so may the pieces."""
    reception = received(events)
    calls = [(call.name, call.arguments) for call in reception.message().tool_calls]
    starts = [event.model for event in events if isinstance(event, StreamStart)]
    return starts, reception.message().text, reception.message().thinking, calls, reception.finish, reception.usage
