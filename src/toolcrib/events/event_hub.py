"""The event hub of one node: receives events and deltas and delivers them to this node's subscribers.

A subscription delivers past events first, then the text so far, then live events; independent of the protocol.

Durable events are rows. A notification, from this node or another, is a hint to read them. Hints can get lost (a node
without Redis, a decision made by a command directly in the database), so the hub also polls. Nothing depends on a hint.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final, Self

import structlog

from toolcrib.core.errors import BadArguments, Forbidden, Misconfigured, NotFound, ToolcribError
from toolcrib.core.events import Delta, Event
from toolcrib.core.ids import SessionId, WorkspaceId
from toolcrib.events.deltas import DeliveredOffsets, DeltaCoalescer, PartialTexts, source_ended_by
from toolcrib.events.event_bus import Key, NodeBus, key_of
from toolcrib.events.workspace_activity import ActivitySubscription, WorkspaceActivity
from toolcrib.runtime.logged_errors import error_kind
from toolcrib.storage.activity import ActivityStore
from toolcrib.storage.database import NOT_A_MEMBER, Database, OperationalError, Tenant
from toolcrib.storage.events import EventStore
from toolcrib.storage.sessions import Session, SessionStore

if TYPE_CHECKING:
    from toolcrib.events.redis_bus import RedisBus

# The polling interval when notifications of other nodes arrive, and when they do not.
_POLL_SECONDS: Final = {True: 2.0, False: 1.0}
# How often the membership of subscribers is checked, in addition to every time something happens.
_MEMBERS_SECONDS: Final = 10.0
# Limit of one subscriber's queue. One that falls further behind continues from the database, at its own pace.
MAX_WAITING: Final = 1_000
# Deltas buffered while the database does not answer; a subscriber that misses one gets the text so far.
_MOST_HELD: Final = 1_000
_PAGE: Final = 200

log = structlog.get_logger(__name__)


class EventHub:
    """Delivers events to subscribers. One per node; its methods are called on its event loop."""

    def __init__(self, sessions: SessionStore, event_store: EventStore, activity: WorkspaceActivity) -> None:
        self._sessions = sessions
        self._event_store = event_store
        self._activity = activity
        self._wire = NodeBus()
        self._channels: dict[Key, SessionChannel] = {}
        self._own_texts = PartialTexts()
        self._partial_texts = PartialTexts()
        self._coalescer = DeltaCoalescer(self._publish)
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard_others = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, database: Database, *, redis_url: str | None = None, node: str = "") -> AsyncIterator[Self]:
        """Open a hub and run it. Without Redis it finds other nodes' events by polling."""
        live = cls(SessionStore(database), EventStore(database), WorkspaceActivity(ActivityStore(database)))
        looking = asyncio.create_task(live._poll())
        try:
            if redis_url is None:
                yield live
            else:
                async with _redis_bus().open(redis_url, node=node, ears=live) as wire:
                    live._wire = wire
                    yield live
                    live._coalescer.close()
        finally:
            live._wire = NodeBus()
            live._coalescer.close()
            looking.cancel()
            await asyncio.gather(looking, *live._tasks, return_exceptions=True)
            await live._activity.close()

    def subscribers_of(self, workspace_id: WorkspaceId, session_id: SessionId) -> Sequence["Subscription"]:
        """Return the subscribers of a session on this node."""
        channel = self._channels.get((workspace_id, session_id))
        return () if channel is None else tuple(channel.subscribers)

    async def connected(self) -> None:
        """Wait until the bus is connected; forever if there is none."""
        await self._heard_others.wait()

    # Publishing and subscribing

    def notify(self, workspace_id: WorkspaceId, session_id: SessionId) -> None:
        """Announce that events of this session were committed. Never blocks, never raises."""
        key = (workspace_id, session_id)
        # Text that came before the event is sent before it.
        self._coalescer.flush(key)
        self.on_notify(key)
        self._wire.notify(key)

    def publish_delta(self, delta: Delta) -> None:
        """Publish text of a source. Never blocks, never raises."""
        if delta.text:
            self._coalescer.add(delta)

    @asynccontextmanager
    async def subscribe(self, tenant: Tenant, session_id: SessionId, *, after: int) -> AsyncIterator["Subscription"]:
        """Subscribe to a session, starting after its event number ``after``.

        Raises:
            Forbidden: The user is not a member of the workspace.
            NotFound: The session does not exist.
        """
        session = await self._sessions.get(tenant, session_id)
        if not 0 <= after <= session.last_seq:
            raise BadArguments({"after": f"Expected a number from 0 to {session.last_seq}, the session's last event"})
        key = (tenant.workspace_id, session_id)
        subscription = Subscription(
            tenant, session, after=after, sessions=self._sessions, so_far=lambda: self._partial_texts.of(key)
        )
        channel = self._channels.get(key)
        if channel is None:
            channel = SessionChannel(key, known=session.last_seq, event_store=self._event_store, ended=self._ended)
            self._channels[key] = channel
            channel.joined = asyncio.create_task(self._join(channel))
        channel.subscribers.append(subscription)
        try:
            if channel.joined is not None:
                await asyncio.shield(channel.joined)
            yield subscription
        finally:
            channel.subscribers.remove(subscription)
            if not channel.subscribers:
                await self._close(channel)

    def subscribe_to_activity(self, tenant: Tenant) -> AbstractAsyncContextManager[ActivitySubscription]:
        """Subscribe to what changes in a workspace. The caller has checked that the tenant is a member."""
        return self._activity.subscribe(tenant)

    async def _join(self, channel: "SessionChannel") -> None:
        for delta in self._own_texts.of(channel.key):
            self._partial_texts.add(delta)
        for delta in await self._wire.join(channel.key):
            self.on_delta(delta)

    async def _close(self, channel: "SessionChannel") -> None:
        if self._channels.get(channel.key) is channel:
            del self._channels[channel.key]
            self._wire.leave(channel.key)
            self._partial_texts.drop(channel.key)
        await channel.close()

    # Messages from this node and others

    def on_notify(self, key: Key) -> None:
        self._activity.notify(key[0])
        if channel := self._channels.get(key):
            channel.notify()

    def on_delta(self, delta: Delta) -> None:
        """Deliver a delta from this node or another. Sessions without subscribers here are ignored."""
        if channel := self._channels.get(key_of(delta)):
            self._partial_texts.add(delta)
            channel.publish(delta)

    def partial_texts(self, key: Key) -> Sequence[Delta]:
        self._coalescer.flush(key)
        return self._own_texts.of(key)

    def reconnected(self) -> None:
        """Handle a new connection: messages were lost in both directions, so read, join and publish again."""
        self._heard_others.set()
        for delta in self._own_texts.all():
            self._wire.publish_delta(delta)
        for channel in list(self._channels.values()):
            channel.notify()
            task = asyncio.create_task(self._join(channel))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _publish(self, delta: Delta) -> None:
        self._own_texts.add(delta)
        self.on_delta(delta)
        self._wire.publish_delta(delta)

    def _ended(self, key: Key, source: str) -> None:
        self._own_texts.end(key, source)
        self._partial_texts.end(key, source)

    # Polling

    async def _poll(self) -> None:
        members_at = time.monotonic() + _MEMBERS_SECONDS
        while True:
            await asyncio.sleep(_POLL_SECONDS[self._wire.is_up])
            try:
                await self._poll_events()
                await self._activity.poll()
                if time.monotonic() >= members_at:
                    members_at = time.monotonic() + _MEMBERS_SECONDS
                    await self._poll_members()
            except Exception as error:  # noqa: BLE001 - the outermost loop: whatever the error is, the next poll may succeed
                log.warning("event_hub.poll_failed", error=error_kind(error))

    async def _poll_events(self) -> None:
        self._own_texts.forget_silent()
        self._partial_texts.forget_silent()
        channels = list(self._channels.values())
        if not channels:
            return
        newest = await self._event_store.last_seqs([channel.key for channel in channels])
        for channel in channels:
            seq = newest.get(channel.key)
            if seq is None:
                channel.end_all(NotFound(f"Session {channel.key[1]} was deleted."))
            elif seq > channel.known:
                channel.notify()

    async def _poll_members(self) -> None:
        subscribers = [subscriber for channel in self._channels.values() for subscriber in channel.subscribers]
        for position in await self._event_store.non_members([subscriber.tenant for subscriber in subscribers]):
            subscribers[position].end(Forbidden(NOT_A_MEMBER))


def _redis_bus() -> "type[RedisBus]":
    try:
        # Imported here: a single node needs no Redis, and starts faster without its client.
        from toolcrib.events.redis_bus import RedisBus
    except ModuleNotFoundError as error:
        if not error.name or error.name.partition(".")[0] != "redis":
            raise
        raise Misconfigured(
            "TOOLCRIB_REDIS_URL is set, but the client for Redis is not installed. Run `pip install 'toolcrib[redis]'`."
        ) from None
    return RedisBus


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
            page = await self._sessions.events_after(self.tenant, self.session.id, self._last, limit=_PAGE)
            is_last = len(page) < _PAGE
            if not is_last:
                self._behind = True
                self._waiting.clear()
            for event in page:
                self._raise_if_ended()
                yield self._given(event)
            if is_last:
                break
        if not growing:
            return
        # Some sources may have ended before this subscriber joined.
        sources = [delta.source for delta in growing]
        ended = await self._sessions.ended_sources(self.tenant, self.session.id, sources)
        for delta in growing:
            if delta.source not in ended and (news := self._ledger.undelivered(delta)) is not None:
                yield news

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
            except Exception:
                # No other task reads for these subscribers, so no error may end this loop.
                log.exception("event_hub.read_failed", session_id=str(self.key[1]))
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
