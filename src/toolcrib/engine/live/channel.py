"""One session that is watched on this node: reads what happens once, and tells every watcher."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from toolcrib.domain.errors import Forbidden, ToolcribError
from toolcrib.domain.events import Delta, Event
from toolcrib.engine.live.keys import Key
from toolcrib.engine.live.ledger import source_ended_by
from toolcrib.engine.live.subscription import Subscription
from toolcrib.storage.database import NOT_A_MEMBER
from toolcrib.storage.health import OperationalError
from toolcrib.storage.watching import Watching

_PAGE: Final = 200
# Deltas that wait for a database which does not answer; who misses one is given the text so far.
_MOST_HELD: Final = 1_000

log = structlog.get_logger(__name__)


class Channel:
    """The watchers of one session, and the number up to which they were told."""

    def __init__(self, key: Key, *, known: int, watching: Watching, ended: Callable[[Key, str], None]) -> None:
        self.key = key
        self.known = known
        self.watchers: list[Subscription] = []
        self.joined: asyncio.Task[None] | None = None
        self._watching = watching
        self._ended = ended
        self._poked = asyncio.Event()
        # How often it was poked, and which of these pokes were followed by a look.
        self._pokes = 0
        self._read_pokes = 0
        self._held: deque[tuple[int, Delta]] = deque(maxlen=_MOST_HELD)
        self._reading = asyncio.create_task(self._read())

    def poke(self) -> None:
        """There may be news."""
        self._pokes += 1
        self._poked.set()

    def tell(self, delta: Delta) -> None:
        """What is said after an event is told after it: until that was read, deltas wait."""
        if self._pokes > self._read_pokes:
            self._held.append((self._pokes, delta))
        else:
            self._offer(delta)

    def end_all(self, error: ToolcribError) -> None:
        for watcher in self.watchers:
            watcher.end(error)

    async def close(self) -> None:
        tasks = [task for task in (self._reading, self.joined) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        while True:
            await self._poked.wait()
            self._poked.clear()
            pokes = self._pokes
            try:
                await self._read_news()
            except OperationalError as error:
                # The poll sees that we lag behind, and pokes again.
                log.warning("events_not_read", session_id=str(self.key[1]), error=str(error))
            self._read_pokes = pokes
            while self._held and self._held[0][0] <= pokes:
                self._offer(self._held.popleft()[1])

    async def _read_news(self) -> None:
        while True:
            watchers = list(self.watchers)
            news = await self._watching.news(
                *self.key, self.known, [watcher.tenant for watcher in watchers], limit=_PAGE
            )
            for position in news.outsiders:
                watchers[position].end(Forbidden(NOT_A_MEMBER))
            for event in news.events:
                self._tell_event(event)
            if len(news.events) < _PAGE:
                return

    def _offer(self, item: Event | Delta) -> None:
        for watcher in self.watchers:
            watcher.offer(item)

    def _tell_event(self, event: Event) -> None:
        assert event.seq is not None
        self.known = event.seq
        if (source := source_ended_by(event)) is not None:
            self._ended(self.key, source)
            # What waits of the source was said before its end.
            for _, delta in self._held:
                if delta.source == source:
                    self._offer(delta)
        self._offer(event)
