"""Deltas of streams: coalesced, kept as the text so far for late subscribers, and delivered once.

A model emits many tokens; a screen shows about thirty updates a second.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from toolcrib.core.events import Delta, DeltaType, Event, EventType
from toolcrib.events.event_bus import Key, key_of

# Deltas that arrive closer together than this are joined. A loaded server joins more, and so sends less.
SECONDS: Final = 0.01
MOST_SECONDS: Final = 0.05
# A delta of this size is sent at once, and a longer one is split: no message is larger.
MAX_COALESCED_CHARACTERS: Final = 16_000


class DeltaCoalescer:
    """Sends a delta that follows a pause at once, and joins those that arrive soon after it. Keeps the order."""

    def __init__(self, send: Callable[[Delta], None], *, seconds: float = SECONDS) -> None:
        self._send = send
        self._least = self._seconds = seconds
        self._held: dict[Key, list[_GrowingText]] = {}
        # Sessions to which something was sent since the last round, or the one before.
        self._recent: dict[Key, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, delta: Delta) -> None:
        """Add a delta: sends it now or joins it with the next ones."""
        key = key_of(delta)
        text = _encodable(delta.text)
        if text is not delta.text:
            delta = replace(delta, text=text)
        if key not in self._recent and key not in self._held and len(delta.text) <= MAX_COALESCED_CHARACTERS:
            # The common case: the delta follows a pause.
            self._send(delta)
            self._recent[key] = asyncio.get_running_loop().time()
        else:
            for piece in _cut(delta):
                self._hold(key, piece)
            if key not in self._recent:
                self.flush(key)
        self._set_timer()

    def flush(self, key: Key) -> None:
        """Send what is buffered for a session, because an event that follows it is about to be sent."""
        held = self._held.pop(key, ())
        for run in held:
            self._send(run.joined())
        if held:
            self._recent[key] = asyncio.get_running_loop().time()

    def flush_all(self) -> None:
        """Send what is buffered for all sessions."""
        for key in list(self._held):
            self.flush(key)

    def close(self) -> None:
        """Stop the timer and send what is buffered."""
        if self._timer is not None:
            self._timer.cancel()
        self.flush_all()

    def _hold(self, key: Key, piece: Delta) -> None:
        held = self._held.setdefault(key, [])
        source = (piece.source, piece.type, piece.attempt)
        for run in held:
            if (run.first.source, run.first.type, run.first.attempt) == source and run.end == piece.offset:
                run.add(piece.text)
                break
        else:
            held.append(run := _GrowingText(piece))
        if run.length >= MAX_COALESCED_CHARACTERS:
            self.flush(key)

    def _set_timer(self) -> None:
        if self._timer is None and (self._held or self._recent):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(loop.time() + self._seconds, self._round, loop.time() + self._seconds)

    def _round(self, due: float) -> None:
        """Send what is buffered. The lateness and duration of the round measure the server's load."""
        loop = asyncio.get_running_loop()
        self._timer = None
        began = loop.time()
        self._recent = {key: at for key, at in self._recent.items() if began - at < self._seconds}
        self.flush_all()
        pressed = 4 * (loop.time() - due)
        self._seconds = min(MOST_SECONDS, max(self._least, pressed))
        self._set_timer()


class _GrowingText:
    """Consecutive deltas of one source, joined when they are needed. ``at``: when it last grew."""

    def __init__(self, first: Delta, at: float = 0.0) -> None:
        self.first = first
        self.start = first.offset
        self.length = len(first.text)
        self.at = at
        self._texts = [first.text]

    @property
    def end(self) -> int:
        return self.start + self.length

    def add(self, text: str) -> None:
        self._texts.append(text)
        self.length += len(text)

    def joined(self) -> Delta:
        if len(self._texts) > 1:
            self._texts = ["".join(self._texts)]
        return replace(self.first, text=self._texts[0], offset=self.start)

    def drop_beginning(self, kept: int) -> None:
        """Keep only the last characters."""
        text = "".join(self._texts)[-kept:]
        self.start, self.length, self._texts = self.end - len(text), len(text), [text]


def _cut(delta: Delta) -> list[Delta]:
    return [
        replace(delta, text=delta.text[start : start + MAX_COALESCED_CHARACTERS], offset=delta.offset + start)
        for start in range(0, len(delta.text), MAX_COALESCED_CHARACTERS)
    ]


def _encodable(text: str) -> str:
    """Replace unpaired surrogates, which cannot be encoded. Keeps the length, because offsets count characters."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text


# Of a longer text the beginning is dropped; the delta's offset shows it.
MAX_PARTIAL_CHARACTERS: Final = 200_000
# A source that is silent for this long has ended, or its node has.
SILENT_SECONDS: Final = 60.0


class PartialTexts:
    """The texts that are still growing, by session, source and type, for subscribers that join late.

    In memory only: the complete text becomes an event.
    """

    def __init__(self) -> None:
        self._sessions: dict[Key, dict[tuple[str, DeltaType], _GrowingText]] = {}

    def add(self, delta: Delta) -> None:
        """Append a delta to the text of its source."""
        sources = self._sessions.setdefault(key_of(delta), {})
        partial = sources.get((delta.source, delta.type))
        if partial is not None and delta.attempt < partial.first.attempt:
            return
        if partial is None or delta.attempt > partial.first.attempt or not partial.start <= delta.offset <= partial.end:
            # A new source or attempt, or a gap: the known text starts here.
            sources[delta.source, delta.type] = _GrowingText(delta, time.monotonic())
            return
        partial.at = time.monotonic()
        partial.add(delta.text[partial.end - delta.offset :])
        if partial.length > 2 * MAX_PARTIAL_CHARACTERS:
            partial.drop_beginning(MAX_PARTIAL_CHARACTERS)

    def of(self, key: Key) -> list[Delta]:
        """Return the text so far of each source as one delta, in the order in which they started."""
        return [partial.joined() for partial in self._sessions.get(key, {}).values()]

    def all(self) -> list[Delta]:
        """Return the text so far of every source in every session."""
        return [delta for key in self._sessions for delta in self.of(key)]

    def end(self, key: Key, source: str) -> None:
        """Drop a source that has ended: its text is an event by now."""
        sources = self._sessions.get(key, {})
        for kind in DeltaType:
            sources.pop((source, kind), None)
        if not sources:
            self._sessions.pop(key, None)

    def drop(self, key: Key) -> None:
        """Drop all texts of a session."""
        self._sessions.pop(key, None)

    def forget_silent(self) -> None:
        """Drop the texts of sources that have been silent for too long."""
        before = time.monotonic() - SILENT_SECONDS
        for key, sources in list(self._sessions.items()):
            for silent in [one for one, partial in sources.items() if partial.at < before]:
                del sources[silent]
            if not sources:
                self.drop(key)


# The field of an event that names the source that it ends.
_ENDS: Final[Mapping[str, str]] = {EventType.TOOL_RESULT: "toolId", EventType.STREAM_END: "messageId"}
# How many ended sources are remembered, to drop their late deltas.
_REMEMBERED: Final = 256


def source_ended_by(event: Event) -> str | None:
    """Return the source that this event ends, or None."""
    field = _ENDS.get(event.type)
    return None if field is None else event.payload.get(field)


@dataclass(slots=True)
class _SourceOffset:
    attempt: int
    start: int
    end: int


class DeliveredOffsets:
    """Tracks what one subscriber received of each source, so that nothing is sent twice or after its end."""

    def __init__(self) -> None:
        # A message's text and its reasoning are counted separately.
        self._received: dict[tuple[str, DeltaType], _SourceOffset] = {}
        self._ended: dict[str, None] = {}

    def record(self, event: Event) -> None:
        """Record an event: marks the source that it ends."""
        source = source_ended_by(event)
        if source is None:
            return
        for kind in DeltaType:
            self._received.pop((source, kind), None)
        self._ended[source] = None
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def undelivered(self, delta: Delta) -> Delta | None:
        """Return the part of the delta that was not delivered yet, or None if there is none or its source has ended."""
        if delta.source in self._ended:
            return None
        key = (delta.source, delta.type)
        received = self._received.get(key)
        if received is not None and delta.attempt < received.attempt:
            return None
        end = delta.offset + len(delta.text)
        if received is None or delta.attempt > received.attempt:
            self._received[key] = _SourceOffset(delta.attempt, delta.offset, end)
            return delta
        if delta.offset < received.start:
            # Text from before the first received offset: sent whole, its offset puts it in order.
            received.start, received.end = delta.offset, max(received.end, end)
            return delta
        if end <= received.end:
            return None
        known = max(0, received.end - delta.offset)
        received.end = end
        return replace(delta, text=delta.text[known:], offset=delta.offset + known) if known else delta
