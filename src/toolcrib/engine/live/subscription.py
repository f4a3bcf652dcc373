"""One watcher of one session: what it missed, then what is being said, then what happens. Knows no protocol."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from toolcrib.domain.errors import ToolcribError
from toolcrib.domain.events import Delta, Event
from toolcrib.engine.live.ledger import Ledger
from toolcrib.storage.database import Tenant
from toolcrib.storage.sessions import Session, Sessions

# What may wait for one watcher. One that falls further behind reads on from the database, at its own pace.
MAX_WAITING: Final = 1_000
PAGE: Final = 200


class Subscription:
    """An endless series of events, each once and in order, with the deltas between them.

    It holds at most ``MAX_WAITING`` items. A reader that is slower than the session loses none of it: it is brought
    back to the database, and then to the text so far. Ends by raising what ended it.
    """

    def __init__(
        self,
        tenant: Tenant,
        session: Session,
        *,
        after: int,
        sessions: Sessions,
        so_far: Callable[[], Sequence[Delta]],
    ) -> None:
        self.tenant = tenant
        # As it was when this began.
        self.session = session
        self._last = after
        self._sessions = sessions
        self._so_far = so_far
        self._ledger = Ledger()
        self._waiting: deque[Event | Delta] = deque()
        self._arrived = asyncio.Event()
        self._behind = True
        self._ending: ToolcribError | None = None

    @property
    def last(self) -> int:
        """The number of the last event that was given out."""
        return self._last

    async def __aiter__(self) -> AsyncIterator[Event | Delta]:
        while True:
            if self._behind:
                async for missed in self._catch_up():
                    yield missed
            item = await self._next()
            if item is None:
                continue
            if isinstance(item, Delta):
                if (news := self._ledger.news(item)) is not None:
                    yield news
                continue
            assert item.seq is not None
            if item.seq > self._last + 1:
                self._behind = True
            elif item.seq == self._last + 1:
                yield self._given(item)

    def offer(self, item: Event | Delta) -> None:
        """Something happened. Never waits for the reader."""
        if self._behind:
            # Whatever it is, catching up will find it in the database or in the text so far.
            return
        if len(self._waiting) >= MAX_WAITING:
            self._behind = True
            self._waiting.clear()
        else:
            self._waiting.append(item)
        self._arrived.set()

    def end(self, error: ToolcribError) -> None:
        """Nothing more is given out, not even what waits."""
        self._ending = error
        self._waiting.clear()
        self._arrived.set()

    async def _catch_up(self) -> AsyncIterator[Event | Delta]:
        """From the database, page by page; the last page is read when news is being kept already.

        The text so far is taken before that page is read, so that it never runs ahead of the events.
        """
        while True:
            self._behind = False
            growing = self._so_far()
            page = await self._sessions.events_after(self.tenant, self.session.id, self._last, limit=PAGE)
            is_last = len(page) < PAGE
            if not is_last:
                self._behind = True
                self._waiting.clear()
            for event in page:
                self._raise_if_ended()
                yield self._given(event)
            if is_last:
                break
        for delta in await self._not_ended(growing):
            if (news := self._ledger.news(delta)) is not None:
                yield news

    async def _not_ended(self, growing: Sequence[Delta]) -> list[Delta]:
        """Without sources whose end this watcher knew before it came."""
        if not growing:
            return []
        sources = [delta.source for delta in growing]
        ended = await self._sessions.ended_sources(self.tenant, self.session.id, sources)
        return [delta for delta in growing if delta.source not in ended]

    def _given(self, event: Event) -> Event:
        assert event.seq is not None
        self._last = event.seq
        self._ledger.note(event)
        return event

    async def _next(self) -> Event | Delta | None:
        """The next item that waits; none if there are too many to wait here."""
        while not self._waiting and not self._behind:
            self._raise_if_ended()
            self._arrived.clear()
            await self._arrived.wait()
        self._raise_if_ended()
        return None if self._behind else self._waiting.popleft()

    def _raise_if_ended(self) -> None:
        if self._ending is not None:
            raise self._ending
