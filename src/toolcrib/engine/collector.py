"""Lets go of old versions and of contents that nothing refers to, a little at a time, beside running writers."""

import asyncio
from datetime import timedelta

import structlog

from toolcrib.storage.growth import Collected, Growth

log = structlog.get_logger(__name__)

_BATCH = 1_000
# A content is committed with the version that needs it, so any that is old and unused is really unused.
GRACE = timedelta(minutes=10)


class Collector:
    """Collects by age. Without an age, versions are kept for ever and only unused contents go."""

    def __init__(self, growth: Growth, *, keep: timedelta | None) -> None:
        self._growth = growth
        self._keep = keep

    async def run(self, every_seconds: float) -> None:
        """Collects for ever. A failure is logged and tried again: nothing depends on it."""
        while True:
            try:
                collected = await self.collect()
                if collected.versions or collected.blobs:
                    log.info("collected", versions=collected.versions, blobs=collected.blobs, bytes=collected.bytes)
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
        return Collected(versions, blobs, size)
