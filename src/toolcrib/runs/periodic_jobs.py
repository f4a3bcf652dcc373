"""Jobs of the whole installation: one process does each when it is due, and another one if that process dies.

The next due time of a job is an entry of the durable queue, as that of a schedule.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import structlog

from toolcrib.storage.database import OperationalError
from toolcrib.storage.periodic_jobs import PeriodicJobStore

log = structlog.get_logger(__name__)

_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """What to do at every multiple of so many seconds. It must do no harm if it is done twice."""

    name: str
    seconds: float
    work: Callable[[], Awaitable[object]]


class PeriodicJobs:
    """The jobs, as each process knows them."""

    def __init__(self, entries: PeriodicJobStore, jobs: Iterable[PeriodicJob]) -> None:
        self._entries = entries
        self._jobs = {job.name: job for job in jobs}
        self._at_work: set[asyncio.Task[Any]] = set()

    async def enter(self) -> None:
        """Enter the next due time of each job, unless it is in the queue."""
        for job in self._jobs.values():
            await self._entries.enter(job.name, job.seconds)

    async def do(self, name: str, due_ms: int) -> None:
        """Do a job that is due, and enter its next due time."""
        if task := asyncio.current_task():
            self._at_work.add(task)
            task.add_done_callback(self._at_work.discard)
        job = self._jobs.get(name)
        if job is None:
            # Of a newer release. The entry stays begun until this process ends, and another one takes it.
            await asyncio.Future()
        assert job is not None
        try:
            await job.work()
        except OperationalError as error:
            log.warning("periodic_jobs.database_error", job=name, error=str(error))
        except Exception:
            # It is done again at its next due time, which comes whatever the error is.
            log.exception("periodic_jobs.failed", job=name)
        await self._enter_next(job, due_ms)

    async def stop(self) -> None:
        """Stop what is at work. Another process does it."""
        for task in (at_work := list(self._at_work)):
            task.cancel()
        await asyncio.gather(*at_work, return_exceptions=True)

    async def _enter_next(self, job: PeriodicJob, due_ms: int) -> None:
        while True:
            try:
                return await self._entries.enter(job.name, job.seconds, after_ms=due_ms)
            except OperationalError as error:
                log.warning("periodic_jobs.database_error", job=job.name, error=str(error))
            await asyncio.sleep(_RETRY_SECONDS)
