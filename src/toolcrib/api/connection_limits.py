"""Limits of long-lived connections and of login attempts, per user and per node. Counted in this process only."""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fastapi import HTTPException

from toolcrib.core.ids import UserId


@dataclass(frozen=True, slots=True)
class ConnectionTimeouts:
    """Timeouts of long-lived connections, in seconds."""

    # For a client to authenticate, if it did not do so when it connected.
    introduce: float = 10.0
    # For a client to read a message. A slower one is disconnected and may resume later.
    stall: float = 10.0
    # Between two checks whether the connection is still authorized.
    check: float = 30.0
    # Between two heartbeats on an idle stream.
    beat: float = 15.0


class ConnectionLimits:
    """Counts open connections."""

    def __init__(self, *, per_person: int = 64, in_all: int = 5_000, pace: ConnectionTimeouts | None = None) -> None:
        self.pace = pace or ConnectionTimeouts()
        self._per_person = per_person
        self._in_all = in_all
        self._inside: Counter[UserId] = Counter()
        self._strangers = 0
        self._waiting: dict[UserId, set[asyncio.Event]] = {}

    @property
    def is_anyone_waiting(self) -> bool:
        """Whether any connection waits for a check."""
        return bool(self._waiting)

    async def wait(self, user_id: UserId, seconds: float) -> None:
        """Wait until the next authorization check of a user's connection: after a while, or when ``wake`` is called."""
        woken = asyncio.Event()
        self._waiting.setdefault(user_id, set()).add(woken)
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await woken.wait()
        except TimeoutError:
            return
        finally:
            self._waiting[user_id].discard(woken)
            if not self._waiting[user_id]:
                del self._waiting[user_id]

    def wake(self, people: Collection[UserId]) -> None:
        """Check the connections of these users now."""
        for user_id in people:
            for waiting in self._waiting.get(user_id, ()):
                waiting.set()

    @contextmanager
    def unauthenticated(self) -> Iterator[None]:
        """Count a connection that is not authenticated yet."""
        if self._strangers >= self._in_all // 10:
            raise _too_many_connections("Too many connections are waiting for authentication. Try again in a moment.")
        self._strangers += 1
        try:
            yield
        finally:
            self._strangers -= 1

    @contextmanager
    def authenticated(self, user_id: UserId) -> Iterator[None]:
        """Count a user's connection while it lasts.

        Raises:
            HTTPException: 429. The user or the node has too many.
        """
        if self._inside[user_id] >= self._per_person:
            raise _too_many_connections(f"You have {self._per_person} live connections open. Close one first.")
        if self._inside.total() >= self._in_all:
            raise _too_many_connections("This node has reached its limit of live connections. Try again in a moment.")
        self._inside[user_id] += 1
        try:
            yield
        finally:
            self._inside[user_id] -= 1
            if not self._inside[user_id]:
                del self._inside[user_id]


def _too_many_connections(words: str) -> HTTPException:
    return HTTPException(429, words, {"Retry-After": "5"})


_MINUTE = 60
_HOUR = 60 * _MINUTE
# Beyond this many keys the oldest are dropped: counting does not stop a client with so many addresses.
_REMEMBERED = 50_000
_FIRST_WAIT = 5.0


class RateWindow:
    """Allows ``limit`` attempts per key within any ``seconds``."""

    def __init__(self, limit: int, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._tries: dict[Hashable, deque[float]] = {}

    def take(self, key: Hashable) -> None:
        """Count an attempt.

        Raises:
            HTTPException: 429. There were too many.
        """
        now = self._clock()
        tries = self._tries.setdefault(key, deque(maxlen=self._limit))
        while tries and tries[0] <= now - self._seconds:
            tries.popleft()
        if len(tries) == self._limit:
            raise _too_many_attempts(tries[0] + self._seconds - now)
        tries.append(now)
        if len(self._tries) > _REMEMBERED:
            del self._tries[next(iter(self._tries))]

    def forget(self, key: Hashable) -> None:
        """Clear the attempts of a key after a successful one."""
        self._tries.pop(key, None)


class Backoff:
    """After ``free`` attempts per key, each further one must wait twice as long, until there was a pause."""

    def __init__(self, free: int, *, longest: float = 5 * _MINUTE, clock: Callable[[], float] = time.monotonic) -> None:
        self._free = free
        self._longest = longest
        self._clock = clock
        self._tries: dict[Hashable, tuple[int, float]] = {}

    def take(self, key: Hashable) -> None:
        """Count an attempt.

        Raises:
            HTTPException: 429. It comes too early. It is then not counted.
        """
        now = self._clock()
        count, last = self._tries.pop(key, (0, now))
        wait = self._wait_after(count)
        if now < last + wait:
            self._tries[key] = (count, last)
            raise _too_many_attempts(last + wait - now)
        if now > last + max(wait, _MINUTE) + self._longest:
            count = 0
        # Removed and inserted again, so that the oldest entry is the one that was quiet for longest.
        self._tries[key] = (count + 1, now)
        if len(self._tries) > _REMEMBERED:
            del self._tries[next(iter(self._tries))]

    def forget(self, key: Hashable) -> None:
        """Clear the attempts of a key after a successful one."""
        self._tries.pop(key, None)

    def _wait_after(self, count: int) -> float:
        return 0.0 if count < self._free else min(self._longest, _FIRST_WAIT * 2.0 ** min(count - self._free, 20))


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits in force. A login is counted before it is checked, so that parallel attempts cannot bypass the limit.

    Logins are counted by account and address together: an attacker blocks neither other users behind the same address
    nor the account's owner elsewhere.
    """

    login: Backoff = field(default_factory=lambda: Backoff(10))
    registration: RateWindow = field(default_factory=lambda: RateWindow(100, _HOUR))


def _too_many_attempts(seconds: float) -> HTTPException:
    wait = max(1, math.ceil(seconds))
    return HTTPException(429, f"Too many attempts. Try again in {wait} s.", {"Retry-After": str(wait)})
