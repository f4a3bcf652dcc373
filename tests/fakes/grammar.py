"""The grammar of a stream, as core/model_stream.py defines it, and small helpers to collect streams."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from toolcrib.core.model_stream import (
    MessageBuilder,
    StreamEvent,
    StreamFailed,
    StreamFinish,
    StreamStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)


def check(events: Sequence[StreamEvent]) -> None:
    """Fails unless the events form one complete stream."""
    assert events, "a stream tells at least how it ended"
    ends = [number for number, event in enumerate(events) if isinstance(event, StreamFinish | StreamFailed)]
    assert ends == [len(events) - 1], f"exactly one end, and that last: {events}"
    if not isinstance(events[0], StreamFailed):
        assert isinstance(events[0], StreamStart), f"it begins with the start: {events[0]}"
    assert sum(isinstance(event, StreamStart) for event in events) <= 1
    begun: set[int] = set()
    open_now: set[int] = set()
    ids: set[str] = set()
    for event in events:
        match event:
            case ToolCallStart(index, call_id, name):
                assert index == len(begun), f"calls are numbered in order: {event}"
                assert name, f"calls have names: {event}"
                assert call_id not in ids | {""}, f"calls have ids of their own: {event}"
                begun.add(index)
                open_now.add(index)
                ids.add(call_id)
            case ToolCallDelta(index, arguments):
                assert index in open_now, f"a delta belongs to an open call: {event}"
                assert arguments, f"a delta holds something: {event}"
            case ToolCallEnd(index):
                assert index in open_now, f"only what is open can end: {event}"
                open_now.remove(index)


async def taken(stream: AsyncGenerator[StreamEvent, None]) -> list[StreamEvent]:
    """All events of a stream, checked."""
    async with aclosing(stream):
        events = [event async for event in stream]
    check(events)
    return events


def received(events: Sequence[StreamEvent]) -> MessageBuilder:
    reception = MessageBuilder()
    for event in events:
        reception.add(event)
    return reception


def failure(events: Sequence[StreamEvent]) -> StreamFailed:
    last = events[-1]
    assert isinstance(last, StreamFailed), f"it should have failed: {last}"
    return last
