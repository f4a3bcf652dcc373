"""The orderly end of a server process: it takes no more work, and what is at work comes to the end of its step."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger(__name__)


class Drain:
    """One per server. Workers register how they finish, and start nothing once ``has_begun``."""

    def __init__(self) -> None:
        self.has_begun = False
        self._finishers: list[Callable[[], Awaitable[None]]] = []

    def add(self, finish: Callable[[], Awaitable[None]]) -> None:
        """Register a worker. ``finish`` returns once nothing of it is at work; cancelled, it releases the rest."""
        self._finishers.append(finish)

    async def run(self, seconds: float) -> None:
        """Let all workers finish, for at most this long. They release what is not finished then."""
        self.has_begun = True
        try:
            async with asyncio.timeout(seconds):
                ended = await asyncio.gather(*(finish() for finish in self._finishers), return_exceptions=True)
            for error in ended:
                if isinstance(error, Exception):
                    log.error("drain.failed", exc_info=error)
        except TimeoutError:
            log.warning("drain.limit_reached", seconds=seconds)
