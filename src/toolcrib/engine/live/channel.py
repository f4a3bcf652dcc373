"""One session that is watched on this node: reads what happens once, and tells every watcher."""

import asyncio
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
        self._reading = asyncio.create_task(self._read())

    def poke(self) -> None:
        """There may be news."""
        self._poked.set()

    def tell(self, item: Event | Delta) -> None:
        for watcher in self.watchers:
            watcher.offer(item)

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
            try:
                await self._read_news()
            except OperationalError as error:
                # The poll sees that we lag behind, and pokes again.
                log.warning("events_not_read", session_id=str(self.key[1]), error=str(error))

    async def _read_news(self) -> None:
        while True:
            watchers = list(self.watchers)
            news = await self._watching.news(
                *self.key, self.known, [watcher.tenant for watcher in watchers], limit=_PAGE
            )
            for position in news.outsiders:
                watchers[position].end(Forbidden(NOT_A_MEMBER))
            for event in news.events:
                self._note(event)
                self.tell(event)
            if len(news.events) < _PAGE:
                return

    def _note(self, event: Event) -> None:
        assert event.seq is not None
        self.known = event.seq
        if (source := source_ended_by(event)) is not None:
            self._ended(self.key, source)
