"""A command's output: the head and the tail are kept, the rest is counted. Knows no processes."""

import codecs
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

KEPT_BYTES: Final = 100_000
# What is shown while a command runs; a reader of the stream has no use for gigabytes.
STREAMED_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Output:
    """What a command said: all of it, or its head and tail with ``dropped`` bytes between them."""

    head: bytes
    tail: bytes
    dropped: int

    @property
    def text(self) -> str:
        """For a reader: what was left out is said where it was."""
        if not self.dropped:
            return (self.head + self.tail).decode(errors="replace")
        return (
            f"{self.head.decode(errors='replace')}\n[… {self.dropped} bytes left out …]\n"
            f"{self.tail.decode(errors='replace')}"
        )


class Gathering:
    """Takes output as it comes, in constant memory, and passes the first of it on as text."""

    def __init__(self, emit: Callable[[str], None], *, kept: int = KEPT_BYTES, streamed: int = STREAMED_BYTES) -> None:
        self._emit = emit
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._to_stream = streamed
        self._head_size = kept // 2
        self._tail_size = kept - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self._taken = 0

    def take(self, piece: bytes) -> None:
        self._taken += len(piece)
        self._stream(piece)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += piece[:room]
            piece = piece[room:]
        self._tail += piece[-self._tail_size :]
        # Cut at twice the size: moving the tail at every piece would cost more than reading it.
        if len(self._tail) > 2 * self._tail_size:
            del self._tail[: -self._tail_size]

    def finish(self) -> Output:
        if self._to_stream > 0 and (rest := self._decoder.decode(b"", final=True)):
            self._emit(rest)
        tail = bytes(self._tail[-self._tail_size :])
        return Output(bytes(self._head), tail, self._taken - len(self._head) - len(tail))

    def _stream(self, piece: bytes) -> None:
        if self._to_stream <= 0:
            return
        shown = piece[: self._to_stream]
        self._to_stream -= len(shown)
        if text := self._decoder.decode(shown):
            self._emit(text)
        if self._to_stream <= 0:
            self._emit("\n[… more output follows; its end is in the result …]\n")
