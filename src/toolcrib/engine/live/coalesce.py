"""Joins pieces of a stream that come close together. A model's tokens are many; a screen shows thirty a second."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from toolcrib.domain.events import Delta
from toolcrib.engine.live.keys import Key, key_of

SECONDS: Final = 0.03
# A piece is sent at once when it has grown to this, and a longer one is cut: no message of ours is larger.
MAX_CHARACTERS: Final = 16_000


class Coalescer:
    """Holds deltas for a moment and sends what belongs together as one. Order within a session is kept."""

    def __init__(self, send: Callable[[Delta], None], *, seconds: float = SECONDS) -> None:
        self._send = send
        self._seconds = seconds
        self._held: dict[Key, list[_Run]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, delta: Delta) -> None:
        for piece in _cut(delta):
            held = self._held.setdefault(key_of(piece), [])
            run = next((run for run in held if run.takes(piece)), None)
            if run is None:
                held.append(run := _Run(piece))
            else:
                run.add(piece)
            if run.length >= MAX_CHARACTERS:
                self.flush(key_of(piece))
        if self._held and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self.flush_all)

    def flush(self, key: Key) -> None:
        """Sends what is held of a session: something is about to be told that comes after it."""
        for run in self._held.pop(key, ()):
            self._send(run.joined())

    def flush_all(self) -> None:
        self._timer = None
        for key in list(self._held):
            self.flush(key)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.flush_all()


class _Run:
    """Pieces of one source that follow on each other."""

    def __init__(self, first: Delta) -> None:
        self._first = first
        self._texts = [first.text]
        self.length = len(first.text)

    def takes(self, piece: Delta) -> bool:
        first = self._first
        return (
            piece.source == first.source
            and piece.type is first.type
            and piece.attempt == first.attempt
            and piece.offset == first.offset + self.length
        )

    def add(self, piece: Delta) -> None:
        self._texts.append(piece.text)
        self.length += len(piece.text)

    def joined(self) -> Delta:
        return replace(self._first, text="".join(self._texts))


def _cut(delta: Delta) -> list[Delta]:
    if len(delta.text) <= MAX_CHARACTERS:
        return [delta]
    return [
        replace(delta, text=delta.text[start : start + MAX_CHARACTERS], offset=delta.offset + start)
        for start in range(0, len(delta.text), MAX_CHARACTERS)
    ]
