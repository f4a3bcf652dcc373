"""Lets go of old versions, of contents that nothing refers to and of expired trash, a little at a time."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import structlog

from toolcrib.storage.growth import Collected, Growth
from toolcrib.storage.trash import Expired, TrashEntries
from toolcrib.workspace.mounts import Mounts
from toolcrib.workspace.threads import in_thread

log = structlog.get_logger(__name__)

_BATCH = 1_000
_AT_ONCE = 20
# A content is committed with the version that needs it, so any that is old and unused is really unused.
GRACE = timedelta(minutes=10)


class Collector:
    """Collects by age. Without an age, versions are kept for ever and only unused contents go."""

    def __init__(self, growth: Growth, *, keep: timedelta | None, bin: "Bin | None" = None) -> None:
        self._growth = growth
        self._keep = keep
        self._bin = bin

    async def run(self, every_seconds: float) -> None:
        """Collects for ever. A failure is logged and tried again: nothing depends on it."""
        while True:
            try:
                collected = await self.collect()
                if collected.versions or collected.blobs or collected.trashed:
                    log.info(
                        "collected",
                        versions=collected.versions,
                        blobs=collected.blobs,
                        bytes=collected.bytes,
                        trashed=collected.trashed,
                    )
            except Exception:
                log.exception("collecting_failed", remedy="Nothing is lost; it is tried again.")
            await asyncio.sleep(every_seconds)

    async def collect(self, *, grace: timedelta = GRACE) -> Collected:
        """One whole round, in batches, so that no lock is held for long."""
        versions = blobs = size = 0
        while self._keep is not None and (
            gone := await self._growth.forget_versions(older_than=self._keep, limit=_BATCH)
        ):
            versions += gone
        while found := await self._growth.collect_blobs(older_than=grace, limit=_BATCH):
            blobs, size = blobs + found[0], size + found[1]
            if found[0] < _BATCH:
                break
        trashed = await self._bin.empty() if self._bin else 0
        return Collected(versions, blobs, size, trashed)


class Bin:
    """The expired part of the trash of this node's workspaces."""

    def __init__(self, entries: TrashEntries, mounts: Mounts, *, node: str) -> None:
        self._entries = entries
        self._mounts = mounts
        self._node = node

    async def empty(self) -> int:
        """Removes what has expired. Let go of in the database first: what is being removed cannot be brought back."""
        removed = 0
        while expired := await self._entries.expire(self._node, limit=_AT_ONCE):
            await in_thread(self._remove, expired)
            await self._entries.removed(expired)
            removed += len(expired)
        return removed

    def _remove(self, expired: Sequence[Expired]) -> None:
        for one in expired:
            self._mounts.trash(one.workspace_id).drop(one.token)
