"""Deletes old versions, unreferenced blobs, idempotency keys and expired trash, in batches."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import structlog

from toolcrib.runtime.disk_threads import in_thread
from toolcrib.storage.blobs import CollectedGarbage, RetentionStore
from toolcrib.storage.trash import ExpiredTrashEntry, TrashStore
from toolcrib.workspace.fs.mounts import MountTable

log = structlog.get_logger(__name__)

_BATCH = 1_000
_AT_ONCE = 20
# A blob is committed with the version that needs it, so an old and unreferenced one is really unused.
GRACE = timedelta(minutes=10)
_IDEMPOTENCY_KEYS = timedelta(hours=24)


class RetentionWorker:
    """Collects garbage by age. Without ``keep``, versions stay for ever and only unreferenced blobs are deleted."""

    def __init__(self, growth: RetentionStore, *, keep: timedelta | None, bin: "TrashCollector | None" = None) -> None:
        self._growth = growth
        self._keep = keep
        self._bin = bin

    async def run_once(self) -> None:
        """Collect, and log what was collected."""
        collected = await self.collect()
        if collected.versions or collected.blobs:
            log.info("retention.completed", versions=collected.versions, blobs=collected.blobs, bytes=collected.bytes)

    async def collect(self, *, grace: timedelta = GRACE) -> CollectedGarbage:
        """Run one full collection, in batches, so that no lock is held for long."""
        versions = blobs = size = 0
        while self._keep is not None and (
            gone := await self._growth.delete_old_versions(older_than=self._keep, limit=_BATCH)
        ):
            versions += gone
        while found := await self._growth.delete_unreferenced_blobs(older_than=grace, limit=_BATCH):
            blobs, size = blobs + found[0], size + found[1]
            if found[0] < _BATCH:
                break
        while await self._growth.delete_old_idempotency_keys(older_than=_IDEMPOTENCY_KEYS, limit=_BATCH) == _BATCH:
            pass
        trashed = await self._bin.empty() if self._bin else 0
        return CollectedGarbage(versions, blobs, size, trashed)


class TrashCollector:
    """Deletes expired trash of this node's workspaces."""

    def __init__(self, entries: TrashStore, mounts: MountTable, *, node: str) -> None:
        self._entries = entries
        self._mounts = mounts
        self._node = node

    async def run(self, every_seconds: float) -> None:
        """Delete expired entries repeatedly. A failure is logged and retried, because nothing depends on it."""
        while True:
            try:
                if removed := await self.empty():
                    log.info("trash.emptied", entries=removed)
            except Exception:
                log.exception("trash.failed", remedy="Nothing is lost; it will be retried.")
            await asyncio.sleep(every_seconds)

    async def empty(self) -> int:
        """Delete expired entries.

        Marks them in the database first, so that nothing restores them during the deletion.
        """
        removed = 0
        while expired := await self._entries.expire(self._node, limit=_AT_ONCE):
            await in_thread(self._remove, expired)
            await self._entries.mark_deleted(expired)
            removed += len(expired)
        return removed

    def _remove(self, expired: Sequence[ExpiredTrashEntry]) -> None:
        for one in expired:
            self._mounts.trash(one.workspace_id).delete(one.trash_id)
