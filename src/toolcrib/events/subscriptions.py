"""Subscriptions to a session: past events first, then the text so far, then live events.

Independent of the protocol.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from toolcrib.core.errors import Forbidden, ToolcribError
from toolcrib.core.events import Delta, DeltaType, Event, EventType
from toolcrib.events.event_bus import Key
from toolcrib.storage.database import NOT_A_MEMBER, OperationalError, Tenant
from toolcrib.storage.events import EventStore
from toolcrib.storage.sessions import Session, SessionStore

# The field of an event that names the source that it ends.
_ENDS: Final[Mapping[str, str]] = {EventType.TOOL_RESULT: "toolId", EventType.STREAM_END: "messageId"}
# How many ended sources are remembered, to drop their late deltas.
_REMEMBERED: Final = 256


def source_ended_by(event: Event) -> str | None:
    """Return the source that this event ends, or None."""
    field = _ENDS.get(event.type)
    return None if field is None else event.payload.get(field)


@dataclass(slots=True)
class _SourceOffset:
    attempt: int
    start: int
    end: int


class DeliveredOffsets:
    """Tracks what one subscriber received of each source, so that nothing is sent twice or after its end."""

    def __init__(self) -> None:
        # A message's text and its reasoning are counted separately.
        self._received: dict[tuple[str, DeltaType], _SourceOffset] = {}
        self._ended: dict[str, None] = {}

    def record(self, event: Event) -> None:
        """Record an event: marks the source that it ends."""
        source = source_ended_by(event)
        if source is None:
            return
        for kind in DeltaType:
            self._received.pop((source, kind), None)
        self._ended[source] = None
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def undelivered(self, delta: Delta) -> Delta | None:
        """Return the part of the delta that was not delivered yet, or None if there is none or its source has ended."""
        if delta.source in self._ended:
            return None
        key = (delta.source, delta.type)
        received = self._received.get(key)
        if received is not None and delta.attempt < received.attempt:
            return None
        end = delta.offset + len(delta.text)
        if received is None or delta.attempt > received.attempt:
            self._received[key] = _SourceOffset(delta.attempt, delta.offset, end)
            return delta
        if delta.offset < received.start:
            # Text from before the first received offset: sent whole, its offset puts it in order.
            received.start, received.end = delta.offset, max(received.end, end)
            return delta
        if end <= received.end:
            return None
        known = max(0, received.end - delta.offset)
        received.end = end
        return replace(delta, text=delta.text[known:], offset=delta.offset + known) if known else delta


# Limit of one subscriber's queue. One that falls further behind continues from the database, at its own pace.
MAX_WAITING: Final = 1_000
PAGE: Final = 200


class Subscription:
    """An endless sequence of events, each once and in order, with the deltas between them.

    The queue holds at most ``MAX_WAITING`` items. A slow reader loses nothing: it continues from the database, then
    with the text so far. The sequence ends by raising the error that ended it.
    """

    def __init__(
        self,
        tenant: Tenant,
        session: Session,
        *,
        after: int,
        sessions: SessionStore,
        so_far: Callable[[], Sequence[Delta]],
    ) -> None:
        self.tenant = tenant
        # As it was when the subscription started.
        self.session = session
        self._last = after
        self._sessions = sessions
        self._so_far = so_far
        self._ledger = DeliveredOffsets()
        self._waiting: deque[Event | Delta] = deque()
        self._arrived = asyncio.Event()
        self._behind = True
        self._ending: ToolcribError | None = None

    @property
    def last(self) -> int:
        """The number of the last event that was delivered."""
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
                if (news := self._ledger.undelivered(item)) is not None:
                    yield news
                continue
            assert item.seq is not None
            if item.seq > self._last + 1:
                self._behind = True
            elif item.seq == self._last + 1:
                yield self._given(item)

    def offer(self, item: Event | Delta) -> None:
        """Queue an item. Never waits for the reader."""
        if self._behind:
            # Catching up will find it in the database or in the text so far.
            return
        if len(self._waiting) >= MAX_WAITING:
            self._behind = True
            self._waiting.clear()
        else:
            self._waiting.append(item)
        self._arrived.set()

    def end(self, error: ToolcribError) -> None:
        """End the subscription with an error. Queued items are discarded."""
        self._ending = error
        self._waiting.clear()
        self._arrived.set()

    async def _catch_up(self) -> AsyncIterator[Event | Delta]:
        """Read from the database page by page. While the last page is read, new items are already queued.

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
            if (news := self._ledger.undelivered(delta)) is not None:
                yield news

    async def _not_ended(self, growing: Sequence[Delta]) -> list[Delta]:
        """Remove sources that ended before this subscriber joined."""
        if not growing:
            return []
        sources = [delta.source for delta in growing]
        ended = await self._sessions.ended_sources(self.tenant, self.session.id, sources)
        return [delta for delta in growing if delta.source not in ended]

    def _given(self, event: Event) -> Event:
        assert event.seq is not None
        self._last = event.seq
        self._ledger.record(event)
        return event

    async def _next(self) -> Event | Delta | None:
        """Return the next queued item, or None if the queue overflowed."""
        while not self._waiting and not self._behind:
            self._raise_if_ended()
            self._arrived.clear()
            await self._arrived.wait()
        self._raise_if_ended()
        return None if self._behind else self._waiting.popleft()

    def _raise_if_ended(self) -> None:
        if self._ending is not None:
            raise self._ending


_PAGE: Final = 200
# Deltas buffered while the database does not answer; a subscriber that misses one gets the text so far.
_MOST_HELD: Final = 1_000

log = structlog.get_logger(__name__)


class SessionChannel:
    """One session with subscribers on this node: reads new events once and delivers them to every subscriber."""

    def __init__(self, key: Key, *, known: int, event_store: EventStore, ended: Callable[[Key, str], None]) -> None:
        self.key = key
        self.known = known
        self.subscribers: list[Subscription] = []
        self.joined: asyncio.Task[None] | None = None
        self._event_store = event_store
        self._ended = ended
        self._notified = asyncio.Event()
        # How many notifications arrived, and how many of them were followed by a read.
        self._notifications = 0
        self._read_notifications = 0
        self._held: deque[tuple[int, Delta]] = deque(maxlen=_MOST_HELD)
        self._reading = asyncio.create_task(self._read())

    def notify(self) -> None:
        """Read new events soon."""
        self._notifications += 1
        self._notified.set()

    def publish(self, delta: Delta) -> None:
        """Deliver a delta after the events before it: deltas wait until those were read."""
        if self._notifications > self._read_notifications:
            self._held.append((self._notifications, delta))
        else:
            self._offer(delta)

    def end_all(self, error: ToolcribError) -> None:
        """End all subscriptions with an error."""
        for subscriber in self.subscribers:
            subscriber.end(error)

    async def close(self) -> None:
        """Stop reading."""
        tasks = [task for task in (self._reading, self.joined) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        while True:
            await self._notified.wait()
            self._notified.clear()
            pokes = self._notifications
            try:
                await self._read_news()
            except OperationalError as error:
                # The poll notices the delay and notifies again.
                log.warning("event_hub.read_failed", session_id=str(self.key[1]), error=str(error))
            self._read_notifications = pokes
            while self._held and self._held[0][0] <= pokes:
                self._offer(self._held.popleft()[1])

    async def _read_news(self) -> None:
        while True:
            subscribers = list(self.subscribers)
            news = await self._event_store.events_since(
                *self.key, self.known, [subscriber.tenant for subscriber in subscribers], limit=_PAGE
            )
            for position in news.non_members:
                subscribers[position].end(Forbidden(NOT_A_MEMBER))
            for event in news.events:
                self._publish_event(event)
            if len(news.events) < _PAGE:
                return

    def _offer(self, item: Event | Delta) -> None:
        for subscriber in self.subscribers:
            subscriber.offer(item)

    def _publish_event(self, event: Event) -> None:
        assert event.seq is not None
        self.known = event.seq
        if (source := source_ended_by(event)) is not None:
            self._ended(self.key, source)
            # The source's buffered deltas came before its end.
            for _, delta in self._held:
                if delta.source == source:
                    self._offer(delta)
        self._offer(event)
