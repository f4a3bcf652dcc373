"""Coalesces stream deltas that arrive close together, and keeps the text so far for late subscribers.

A model emits many tokens; a screen shows about thirty updates a second.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from toolcrib.core.events import Delta, DeltaType
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
        self._held: dict[Key, list[_DeltaRun]] = {}
        # Sessions to which something was sent since the last round, or the one before.
        self._recent: dict[Key, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, delta: Delta) -> None:
        """Add a delta: sends it now or joins it with the next ones."""
        key = key_of(delta)
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
        for run in held:
            if run.takes(piece):
                run.add(piece)
                break
        else:
            held.append(run := _DeltaRun(piece))
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


class _DeltaRun:
    """Consecutive deltas of one source."""

    def __init__(self, first: Delta) -> None:
        self._first = first
        self._texts = [first.text]
        self.length = len(first.text)

    def takes(self, piece: Delta) -> bool:
        """Return whether the delta continues this one."""
        first = self._first
        return (
            piece.source == first.source
            and piece.type is first.type
            and piece.attempt == first.attempt
            and piece.offset == first.offset + self.length
        )

    def add(self, piece: Delta) -> None:
        """Append a delta."""
        self._texts.append(piece.text)
        self.length += len(piece.text)

    def joined(self) -> Delta:
        """Return the joined delta."""
        return self._first if len(self._texts) == 1 else replace(self._first, text="".join(self._texts))


def _cut(delta: Delta) -> list[Delta]:
    if len(delta.text) <= MAX_COALESCED_CHARACTERS:
        return [delta]
    return [
        replace(delta, text=delta.text[start : start + MAX_COALESCED_CHARACTERS], offset=delta.offset + start)
        for start in range(0, len(delta.text), MAX_COALESCED_CHARACTERS)
    ]


# Of a longer text the beginning is dropped; the delta's offset shows it.
MAX_PARTIAL_CHARACTERS: Final = 200_000
# A source that is silent for this long has ended, or its node has.
SILENT_SECONDS: Final = 60.0


@dataclass(slots=True)
class _PartialText:
    last: Delta
    start: int
    texts: list[str]
    length: int
    at: float

    @property
    def end(self) -> int:
        return self.start + self.length

    def as_delta(self) -> Delta:
        if len(self.texts) > 1:
            self.texts = ["".join(self.texts)]
        return replace(self.last, text=self.texts[0], offset=self.start)


class PartialTexts:
    """The texts that are still growing, by session, source and type, for subscribers that join late.

    In memory only: the complete text becomes an event.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[Key, dict[tuple[str, DeltaType], _PartialText]] = {}

    def add(self, delta: Delta) -> None:
        """Append a delta to the text of its source."""
        sources = self._sessions.setdefault(key_of(delta), {})
        partial = sources.get((delta.source, delta.type))
        if partial is not None and delta.attempt < partial.last.attempt:
            return
        if partial is None or delta.attempt > partial.last.attempt or not partial.start <= delta.offset <= partial.end:
            # A new source or attempt, or a gap: the known text starts here.
            begun = _PartialText(delta, delta.offset, [delta.text], len(delta.text), self._clock())
            sources[delta.source, delta.type] = begun
            return
        partial.at = self._clock()
        news = delta.text[partial.end - delta.offset :]
        partial.texts.append(news)
        partial.length += len(news)
        if partial.length > 2 * MAX_PARTIAL_CHARACTERS:
            kept = "".join(partial.texts)[-MAX_PARTIAL_CHARACTERS:]
            partial.start, partial.texts, partial.length = partial.end - len(kept), [kept], len(kept)

    def of(self, key: Key) -> list[Delta]:
        """Return the text so far of each source as one delta, in the order in which they started."""
        return [partial.as_delta() for partial in self._sessions.get(key, {}).values()]

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
        before = self._clock() - SILENT_SECONDS
        for key, sources in list(self._sessions.items()):
            for silent in [one for one, partial in sources.items() if partial.at < before]:
                del sources[silent]
            if not sources:
                self.drop(key)
