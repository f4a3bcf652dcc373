"""Limits of requests by time: per token or address, shared by the nodes over Redis, in this process without it.

While Redis is unavailable, each process counts by itself: an outage of Redis neither stops the API nor removes a limit.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog
from limits import RateLimitItem, parse
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter
from limits.errors import StorageError
from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from limits.aio.storage import RedisStorage
    from redis.asyncio import ConnectionPool

log = structlog.get_logger(__name__)

T = TypeVar("T")

_REDIS_SECONDS: Final = 0.5
# After a failure, Redis is not asked for so long: a request must not wait for it every time.
_AWAY_SECONDS: Final = 5.0
# Of one account at one address. A process alone allows 10, and then ever fewer: see ``passwords.Backoff``.
_LOGINS: Final = parse("20 per 10 minute")
_REGISTRATIONS: Final = parse("100 per hour")


class SharedRateLimiter:
    """Counts hits of keys within moving windows."""

    def __init__(self, redis_url: str | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._here = MovingWindowRateLimiter(MemoryStorage())
        self._pool: ConnectionPool | None = None
        self._shared: MovingWindowRateLimiter | None = None
        if redis_url is not None:
            self._pool, storage = _redis(redis_url)
            self._shared = MovingWindowRateLimiter(storage)
        self._clock = clock
        self._away_until = -math.inf

    async def close(self) -> None:
        """Close the connections to Redis."""
        if self._pool is not None:
            await self._pool.aclose()

    async def hit(self, item: RateLimitItem, *key: str) -> tuple[bool, int, float]:
        """Count a hit. Returns whether it is within the limit, how many are left, and seconds until there is more."""
        return await self._ask(lambda limiter: _hit(limiter, item, key))

    async def require_login(self, address: str, email: str) -> None:
        """Count an attempt to log in."""
        await self.require_of_all_nodes(_LOGINS, address, email)

    async def forget_login(self, address: str, email: str) -> None:
        """Clear the attempts to log in after a successful one."""
        if self._shared is not None:
            await self.clear(_LOGINS, *_hashed((address, email)))

    async def require_registration(self, address: str) -> None:
        """Count an attempt to create an account."""
        await self.require_of_all_nodes(_REGISTRATIONS, address)

    async def require_of_all_nodes(self, item: RateLimitItem, *key: str) -> None:
        """Count an attempt for all nodes together, besides the limits of each. Without Redis there is one node.

        Raises:
            HTTPException: 429. There were too many.
        """
        if self._shared is None:
            return
        is_within, _, seconds = await self.hit(item, *_hashed(key))
        if not is_within:
            raise too_many("Too many attempts.", seconds)

    async def clear(self, item: RateLimitItem, *key: str) -> None:
        """Forget the hits of a key."""
        await self._ask(lambda limiter: limiter.clear(item, *key))

    async def _ask(self, ask: Callable[[MovingWindowRateLimiter], Awaitable[T]]) -> T:
        if self._shared is not None and self._clock() >= self._away_until:
            try:
                async with asyncio.timeout(_REDIS_SECONDS):
                    return await ask(self._shared)
            except (StorageError, OSError, TimeoutError) as error:
                self._away_until = self._clock() + _AWAY_SECONDS
                log.warning("rate_limits.redis_unavailable", error=str(error) or type(error).__name__)
        return await ask(self._here)


def _hashed(key: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sha256(part.encode()).hexdigest() for part in key)


def _redis(url: str) -> "tuple[ConnectionPool, RedisStorage]":
    # Imported here: a server without Redis does not need the library.
    from limits.aio.storage import RedisStorage
    from redis.asyncio import ConnectionPool
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    pool = ConnectionPool.from_url(
        url,
        socket_connect_timeout=_REDIS_SECONDS,
        socket_timeout=_REDIS_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    options: dict[str, Any] = {"connection_pool": pool}
    storage = RedisStorage(
        f"async+{url}", wrap_exceptions=True, implementation="redispy", key_prefix="toolcrib:limits", **options
    )
    return pool, storage


async def _hit(limiter: MovingWindowRateLimiter, item: RateLimitItem, key: tuple[str, ...]) -> tuple[bool, int, float]:
    is_within = await limiter.hit(item, *key)
    window = await limiter.get_window_stats(item, *key)
    return is_within, window.remaining, max(0.0, window.reset_time - time.time())


def too_many(what: str, seconds: float) -> HTTPException:
    """Return the error that says how long to wait."""
    wait = max(1, math.ceil(seconds))
    return HTTPException(429, f"{what} Try again in {wait} s.", {"Retry-After": str(wait)})
