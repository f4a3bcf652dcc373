"""Passwords: hashed and verified with argon2id outside the event loop, and limits on how often someone may try.

Attempts are counted in this process only.
"""

import asyncio
import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from starlette.exceptions import HTTPException

from toolcrib.runtime.fair_queue import FairQueue

# Each hash takes 64 MB and a core for about 0.2 s: many logins at once must not take all of either. And OpenSSL (4.0.3)
# never ends two at once that have several lanes each: each holds threads that the other waits for.
_one_at_a_time = threading.Lock()
_MINUTE = 60
_HOUR = 60 * _MINUTE
# Beyond this many keys the oldest are dropped: counting does not stop a client with so many addresses.
_REMEMBERED = 50_000
_FIRST_WAIT = 5.0
# Hashes that may wait: of all, and of one address.
_MOST_WAITING = 256
_MOST_WAITING_OF_ONE = 128
_SALT_BYTES = 16
_HASH_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordHasher:
    """Argon2id with the cost that RFC 9106 recommends where memory is limited. A hash is a PHC string with its cost."""

    iterations: int = 3
    lanes: int = 4
    memory_kib: int = 64 * 1024

    def hash(self, password: str) -> str:
        """Hash a password with a new salt."""
        function = Argon2id(
            salt=secrets.token_bytes(_SALT_BYTES),
            length=_HASH_BYTES,
            iterations=self.iterations,
            lanes=self.lanes,
            memory_cost=self.memory_kib,
        )
        with _one_at_a_time:
            return function.derive_phc_encoded(password.encode())

    def verify(self, password: str, stored_hash: str) -> bool:
        """Return whether a password has this hash. A damaged hash matches nothing."""
        try:
            with _one_at_a_time:
                Argon2id.verify_phc_encoded(password.encode(), stored_hash)
        except (InvalidKey, ValueError):
            return False
        return True


class Passwords:
    """Creates and verifies hashes. Tests pass a cheaper hasher."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._nobodys_hash: str | None = None
        # Those that wait must not occupy threads. Addresses take turns, so that one cannot keep others from logging in.
        self._turns = FairQueue(1, what="logins", waiting=_MOST_WAITING, waiting_of_one=_MOST_WAITING_OF_ONE)

    async def hash(self, password: str, *, address: str = "") -> str:
        """Hash a password, for a client at this address."""
        async with self._turns.turn(address):
            return await asyncio.to_thread(self._hasher.hash, password)

    async def matches(self, password: str, stored_hash: str | None, *, address: str = "") -> bool:
        """Return whether a password is correct. Without a stored hash it is not, but the check takes equally long."""
        async with self._turns.turn(address):
            # Created at the first check, for any user: the server starts faster without it.
            if self._nobodys_hash is None:
                self._nobodys_hash = await asyncio.to_thread(self._hasher.hash, secrets.token_urlsafe())
            right = await asyncio.to_thread(self._hasher.verify, password, stored_hash or self._nobodys_hash)
        return right and stored_hash is not None


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
