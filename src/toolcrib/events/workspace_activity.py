"""Says what changed in whole workspaces, so that lists of a page need no polling.

The activity of a workspace is a set of topics without contents: a client reads again what it shows. Fingerprints in the
database are compared at every poll of the hub, and at once after an event of one of the workspace's sessions.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import structlog

from toolcrib.core.events import Activity, ActivityTopic
from toolcrib.core.ids import UserId, WorkspaceId
from toolcrib.storage.activity import ActivityStore
from toolcrib.storage.database import OperationalError, Tenant

# A run commits many events; one reading serves all of a moment.
_DEBOUNCE_SECONDS = 0.25

log = structlog.get_logger(__name__)


class WorkspaceActivity:
    """Compares fingerprints for the subscribers of this node."""

    def __init__(self, store: ActivityStore) -> None:
        self._store = store
        self._subscriptions: list[ActivitySubscription] = []
        self._hinted: set[WorkspaceId] = set()
        self._reading: asyncio.Task[None] | None = None
        # One at a time, so that an older reading never follows a newer one.
        self._comparing = asyncio.Lock()

    @asynccontextmanager
    async def subscribe(self, tenant: Tenant) -> AsyncIterator["ActivitySubscription"]:
        """Subscribe to one workspace in detail, and to what waits in the person's other workspaces."""
        assert tenant.user_id is not None
        subscription = ActivitySubscription(tenant.workspace_id, tenant.user_id)
        await self._compare([subscription])
        self._subscriptions.append(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.remove(subscription)

    def notify(self, workspace_id: WorkspaceId) -> None:
        """Read a workspace soon. Never blocks, never raises."""
        if not any(subscription.workspace_id == workspace_id for subscription in self._subscriptions):
            return
        self._hinted.add(workspace_id)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_hinted())

    async def poll(self) -> None:
        """Compare everything."""
        if self._subscriptions:
            await self._compare(list(self._subscriptions))

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read_hinted(self) -> None:
        while self._hinted:
            await asyncio.sleep(_DEBOUNCE_SECONDS)
            hinted, self._hinted = self._hinted, set()
            try:
                await self._compare([one for one in self._subscriptions if one.workspace_id in hinted])
            except OperationalError as error:
                # The next poll compares again.
                log.warning("workspace_activity.read_failed", error=str(error))
            except Exception:
                log.exception("workspace_activity.read_failed")

    async def _compare(self, subscriptions: list["ActivitySubscription"]) -> None:
        async with self._comparing:
            workspaces = await self._store.of_workspaces({one.workspace_id for one in subscriptions})
            waiting = await self._store.waiting_for({one.user_id for one in subscriptions})
            for subscription in subscriptions:
                subscription.compare(workspaces.get(subscription.workspace_id, {}), waiting[subscription.user_id])


class ActivitySubscription:
    """An endless sequence of activity. What was not read yet is merged, so that a slow reader misses nothing."""

    def __init__(self, workspace_id: WorkspaceId, user_id: UserId) -> None:
        self.workspace_id = workspace_id
        self.user_id = user_id
        self._seen: Mapping[ActivityTopic, str] | None = None
        self._waiting: Mapping[WorkspaceId, str] = {}
        self._news: dict[WorkspaceId, frozenset[ActivityTopic]] = {}
        self._arrived = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[Activity]:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            news, self._news = self._news, {}
            for workspace_id, topics in news.items():
                yield Activity(workspace_id, topics)

    def compare(self, now: Mapping[ActivityTopic, str], waiting: Mapping[WorkspaceId, str]) -> None:
        """Note what differs from the last time. The first time is the start."""
        if self._seen is not None:
            before = self._seen
            self._note(self.workspace_id, frozenset(topic for topic in now if now[topic] != before.get(topic)))
            for workspace_id in self._waiting.keys() | waiting.keys():
                if workspace_id != self.workspace_id and self._waiting.get(workspace_id) != waiting.get(workspace_id):
                    self._note(workspace_id, frozenset({ActivityTopic.INBOX}))
        self._seen, self._waiting = now, waiting

    def _note(self, workspace_id: WorkspaceId, topics: frozenset[ActivityTopic]) -> None:
        if topics:
            self._news[workspace_id] = self._news.get(workspace_id, frozenset()) | topics
            self._arrived.set()
