"""Joins pieces of a stream that come close together. A model's tokens are many; a screen shows thirty a second."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from toolcrib.domain.events import Delta
from toolcrib.engine.live.keys import Key, key_of

# Pieces that come closer together than this are joined. A server that is hard pressed joins more, and so sends less.
SECONDS: Final = 0.01
MOST_SECONDS: Final = 0.05
# A piece is sent at once when it has grown to this, and a longer one is cut: no message of ours is larger.
MAX_CHARACTERS: Final = 16_000


class Coalescer:
    """Sends a piece that comes after a pause at once, and joins those that follow on it too soon. Order is kept."""

    def __init__(self, send: Callable[[Delta], None], *, seconds: float = SECONDS) -> None:
        self._send = send
        self._least = self._seconds = seconds
        self._held: dict[Key, list[_Run]] = {}
        # Sessions to which something was sent since the last round, or the one before.
        self._recent: dict[Key, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, delta: Delta) -> None:
        key = key_of(delta)
        if key not in self._recent and key not in self._held and len(delta.text) <= MAX_CHARACTERS:
            # Nearly all come after a pause.
            self._send(delta)
            self._recent[key] = asyncio.get_running_loop().time()
        else:
            for piece in _cut(delta):
                self._hold(key, piece)
            if key not in self._recent:
                self.flush(key)
        self._set_timer()

    def flush(self, key: Key) -> None:
        """Sends what is held of a session: something is about to be told that comes after it."""
        held = self._held.pop(key, ())
        for run in held:
            self._send(run.joined())
        if held:
            self._recent[key] = asyncio.get_running_loop().time()

    def flush_all(self) -> None:
        for key in list(self._held):
            self.flush(key)

    def close(self) -> None:
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
            held.append(run := _Run(piece))
        if run.length >= MAX_CHARACTERS:
            self.flush(key)

    def _set_timer(self) -> None:
        if self._timer is None and (self._held or self._recent):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(loop.time() + self._seconds, self._round, loop.time() + self._seconds)

    def _round(self, due: float) -> None:
        """Sends what is held. How late it is, and how long it takes, says how hard pressed the server is."""
        loop = asyncio.get_running_loop()
        self._timer = None
        began = loop.time()
        self._recent = {key: at for key, at in self._recent.items() if began - at < self._seconds}
        self.flush_all()
        pressed = 4 * (loop.time() - due)
        self._seconds = min(MOST_SECONDS, max(self._least, pressed))
        self._set_timer()


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
        return self._first if len(self._texts) == 1 else replace(self._first, text="".join(self._texts))


def _cut(delta: Delta) -> list[Delta]:
    if len(delta.text) <= MAX_CHARACTERS:
        return [delta]
    return [
        replace(delta, text=delta.text[start : start + MAX_CHARACTERS], offset=delta.offset + start)
        for start in range(0, len(delta.text), MAX_CHARACTERS)
    ]
