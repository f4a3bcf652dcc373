"""How often someone may try to log in or to register, as far as this process can tell.

The counts live in this process and are lost with it: with several nodes, each allows as much.
That slows guessing down enough beside a slow hash; a fair share across nodes is a proxy's work.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from fastapi import HTTPException

_MINUTE = 60
_HOUR = 60 * _MINUTE
# Beyond this many keys the oldest are forgotten: whoever has so many addresses is not stopped by counting.
_REMEMBERED = 50_000


class Window:
    """At most ``limit`` tries for one key within any ``seconds``."""

    def __init__(self, limit: int, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._tries: dict[Hashable, deque[float]] = {}

    def take(self, key: Hashable) -> None:
        """Counts a try; 429 if there were too many."""
        now = self._clock()
        tries = self._tries.setdefault(key, deque(maxlen=self._limit))
        while tries and tries[0] <= now - self._seconds:
            tries.popleft()
        if len(tries) == self._limit:
            raise _too_many(tries[0] + self._seconds - now)
        tries.append(now)
        if len(self._tries) > _REMEMBERED:
            del self._tries[next(iter(self._tries))]

    def forget(self, key: Hashable) -> None:
        """Clears a key's tries: it was the right person after all."""
        self._tries.pop(key, None)


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits in force. A login counts before it is checked, so that a volley cannot slip through."""

    login_by_account: Window = field(default_factory=lambda: Window(10, 15 * _MINUTE))
    login_by_address: Window = field(default_factory=lambda: Window(300, 15 * _MINUTE))
    registration: Window = field(default_factory=lambda: Window(100, _HOUR))


def _too_many(seconds: float) -> HTTPException:
    wait = max(1, math.ceil(seconds))
    return HTTPException(429, f"Too many attempts. Try again in {wait} s.", {"Retry-After": str(wait)})
