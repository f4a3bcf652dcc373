"""How many long connections may be open: of one person, and on this node. Counted in this process."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fastapi import HTTPException

from toolcrib.domain.ids import UserId


@dataclass(frozen=True, slots=True)
class Pace:
    """How patient the server is with its connections, in seconds."""

    # For a client to say who it is, if it did not when it connected.
    introduce: float = 10.0
    # For a client to take what it is sent. Whoever takes longer is let go, and may come back and resume.
    stall: float = 10.0
    # Between two looks at whether the connection may stay open.
    check: float = 30.0
    # Between two signs of life on a stream that has nothing to say.
    beat: float = 15.0


class Doors:
    """Counts who is inside."""

    def __init__(self, *, per_person: int = 64, in_all: int = 5_000, pace: Pace | None = None) -> None:
        self.pace = pace or Pace()
        self._per_person = per_person
        self._in_all = in_all
        self._inside: Counter[UserId] = Counter()
        self._strangers = 0

    @contextmanager
    def stranger(self) -> Iterator[None]:
        """Someone who has not said yet who they are."""
        if self._strangers >= self._in_all // 10:
            raise _too_many("Too many connections wait to be authenticated. Try again in a moment.")
        self._strangers += 1
        try:
            yield
        finally:
            self._strangers -= 1

    @contextmanager
    def inside(self, user_id: UserId) -> Iterator[None]:
        """A person's connection, while it lasts; 429 if there are too many."""
        if self._inside[user_id] >= self._per_person:
            raise _too_many(f"You have {self._per_person} live connections open. Close one first.")
        if self._inside.total() >= self._in_all:
            raise _too_many("This node has as many live connections as it takes. Try again in a moment.")
        self._inside[user_id] += 1
        try:
            yield
        finally:
            self._inside[user_id] -= 1
            if not self._inside[user_id]:
                del self._inside[user_id]


def _too_many(words: str) -> HTTPException:
    return HTTPException(429, words, {"Retry-After": "5"})
