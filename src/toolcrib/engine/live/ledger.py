"""What one watcher has heard of each source, so that nothing is told twice and an end is an end."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from toolcrib.domain.events import Delta, Event, EventType

# Which field of an event names the source that it ends.
_ENDS: Final[Mapping[str, str]] = {EventType.TOOL_RESULT: "toolId", EventType.STREAM_END: "messageId"}
# Sources that have ended are remembered for stragglers, this many.
_REMEMBERED: Final = 256


def source_ended_by(event: Event) -> str | None:
    """The source that has no more to say after this event."""
    field = _ENDS.get(event.type)
    return None if field is None else event.payload.get(field)


@dataclass(slots=True)
class _Heard:
    attempt: int
    start: int
    end: int


class Ledger:
    """Decides what of a delta is news to this watcher."""

    def __init__(self) -> None:
        self._heard: dict[str, _Heard] = {}
        self._ended: dict[str, None] = {}

    def note(self, event: Event) -> None:
        source = source_ended_by(event)
        if source is None:
            return
        self._heard.pop(source, None)
        self._ended[source] = None
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def news(self, delta: Delta) -> Delta | None:
        """The part that was not heard yet; none if there is none, or if it comes too late."""
        if delta.source in self._ended:
            return None
        heard = self._heard.get(delta.source)
        if heard is not None and delta.attempt < heard.attempt:
            return None
        end = delta.offset + len(delta.text)
        if heard is None or delta.attempt > heard.attempt:
            self._heard[delta.source] = _Heard(delta.attempt, delta.offset, end)
            return delta
        if delta.offset < heard.start:
            # What was missed at the beginning: told whole, and put in its place by its offset.
            heard.start, heard.end = delta.offset, max(heard.end, end)
            return delta
        if end <= heard.end:
            return None
        known = max(0, heard.end - delta.offset)
        heard.end = end
        return replace(delta, text=delta.text[known:], offset=delta.offset + known) if known else delta
