"""The event hub of one node: receives events and deltas and delivers them to this node's subscribers.

Durable events are rows. A notification, from this node or another, is a hint to read them. Hints can get lost (a node
without Redis, a decision made by a command directly in the database), so the hub also polls. Nothing depends on a hint.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Final, Self

import structlog

from toolcrib.core.errors import BadArguments, Forbidden, NotFound
from toolcrib.core.events import Delta
from toolcrib.core.ids import SessionId, WorkspaceId
from toolcrib.events.deltas import DeltaCoalescer, PartialTexts
from toolcrib.events.event_bus import Key, LocalBus, NodeBus, key_of
from toolcrib.events.subscriptions import SessionChannel, Subscription
from toolcrib.storage.database import NOT_A_MEMBER, Database, Tenant
from toolcrib.storage.events import EventStore
from toolcrib.storage.sessions import SessionStore

# The polling interval when notifications of other nodes arrive, and when they do not.
_POLL_SECONDS: Final = {True: 2.0, False: 1.0}
# How often the membership of subscribers is checked, in addition to every time something happens.
_MEMBERS_SECONDS: Final = 10.0

log = structlog.get_logger(__name__)


class EventHub:
    """Delivers events to subscribers. One per node; its methods are called on its event loop."""

    def __init__(self, sessions: SessionStore, event_store: EventStore) -> None:
        self._sessions = sessions
        self._event_store = event_store
        self._wire: NodeBus = LocalBus()
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
        live = cls(SessionStore(database), EventStore(database))
        looking = asyncio.create_task(live._poll())
        try:
            if redis_url is None:
                yield live
            else:
                # Imported here: a single node needs no Redis, and starts faster without its client.
                from toolcrib.events.redis_bus import RedisBus

                async with RedisBus.open(redis_url, node=node, ears=live) as wire:
                    live._wire = wire
                    yield live
                    live._coalescer.close()
        finally:
            live._wire = LocalBus()
            live._coalescer.close()
            looking.cancel()
            await asyncio.gather(looking, *live._tasks, return_exceptions=True)

    def subscribers_of(self, workspace_id: WorkspaceId, session_id: SessionId) -> Sequence[Subscription]:
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
        if not delta.text:
            return
        text = _encodable(delta.text)
        self._coalescer.add(delta if text is delta.text else replace(delta, text=text))

    def subscribe(
        self, tenant: Tenant, session_id: SessionId, *, after: int
    ) -> AbstractAsyncContextManager[Subscription]:
        """Subscribe to a session, starting after its event number ``after``.

        Raises:
            Forbidden: The user is not a member of the workspace.
            NotFound: The session does not exist.
        """
        return self._subscribed(tenant, session_id, after)

    @asynccontextmanager
    async def _subscribed(self, tenant: Tenant, session_id: SessionId, after: int) -> AsyncIterator[Subscription]:
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

    async def _join(self, channel: SessionChannel) -> None:
        for delta in self._own_texts.of(channel.key):
            self._partial_texts.add(delta)
        for delta in await self._wire.join(channel.key):
            self.on_delta(delta)

    async def _close(self, channel: SessionChannel) -> None:
        if self._channels.get(channel.key) is channel:
            del self._channels[channel.key]
            self._wire.leave(channel.key)
            self._partial_texts.drop(channel.key)
        await channel.close()

    # Messages from this node and others

    def on_notify(self, key: Key) -> None:
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
                if time.monotonic() >= members_at:
                    members_at = time.monotonic() + _MEMBERS_SECONDS
                    await self._poll_members()
            except Exception as error:  # noqa: BLE001 - the outermost loop: whatever the error is, the next poll may succeed
                log.warning("event_hub.poll_failed", error=repr(error))

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


def _encodable(text: str) -> str:
    """Replace unpaired surrogates, which cannot be encoded. Keeps the length, because offsets count characters."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text
