"""The book's pen: records of concurrent calls share a commit. Nothing is answered before it is written down."""

import asyncio

from toolcrib.domain.book import AuditRecord
from toolcrib.storage.audit import Audit

# What one statement takes.
_BATCH = 500


class Book:
    """Writes records in batches: while one batch is on its way, the next gathers. An idle server adds no delay."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._waiting: list[tuple[AuditRecord, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, record: AuditRecord) -> None:
        """Returns when the record is committed."""
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((record, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        # One caller's cancellation must not cancel what others wait for too.
        await asyncio.shield(written)

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
                await self._write_batch(batch)
        finally:
            self._writing = None

    async def _write_batch(self, batch: list[tuple[AuditRecord, asyncio.Future[None]]]) -> None:
        try:
            await self._audit.add([record for record, _ in batch])
        except Exception as error:  # noqa: BLE001 - each waiter gets it, and decides
            for _, written in batch:
                if not written.done():
                    written.set_exception(error)
            return
        for _, written in batch:
            if not written.done():
                written.set_result(None)
