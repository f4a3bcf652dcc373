"""Claims runs that are ready and executes many of them concurrently. When a process stops, another one continues."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from toolcrib.core.ids import RunId
from toolcrib.core.runs import Run
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.storage.database import OperationalError, is_unreachable
from toolcrib.storage.run_steps import RunStepStore
from toolcrib.storage.server_processes import ServerProcessStore

log = structlog.get_logger(__name__)

# Runs submitted or resumed on this node start at once; a poll at this interval finds the others.
_ROUND = 0.5
# How many runs one process executes at a time. Most of them wait for their model.
_AT_ONCE = 200
_BATCH = 20
_FORGET_AFTER_LEASES = 100


class RunWorker:
    """One per server. Call ``notify`` when a run has become ready here, ``cancel`` when one is to stop."""

    def __init__(
        self,
        runs: RunStepStore,
        processes: ServerProcessStore,
        advance: Callable[[Run], Awaitable[None]],
        heartbeat: ProcessHeartbeat,
        *,
        node: str,
        decided: asyncio.Event,
    ) -> None:
        self._runs = runs
        self._processes = processes
        self._advance = advance
        self._heartbeat = heartbeat
        self._node = node
        self._wake_signal = decided
        self._running: dict[RunId, asyncio.Task[None]] = {}
        # Runs that are being stopped, or that already know that they were cancelled.
        self._stopping: set[RunId] = set()
        # Runs stopped because this process missed its heartbeats: one of them may have been the cause.
        self._suspect_runs: set[RunId] = set()

    def notify(self) -> None:
        """Wake the worker: a run has become ready."""
        self._wake_signal.set()

    def cancel(self, run_id: RunId) -> None:
        """Stop a run that this process executes. Its row already says that it was cancelled."""
        task = self._running.get(run_id)
        if task is not None and run_id not in self._stopping:
            self._stopping.add(run_id)
            task.cancel()

    async def run(self) -> None:
        """Run until cancelled. Claimed runs are then released for another process."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    try:
                        await self._claim_round(tasks)
                    except OperationalError as error:
                        log.warning("run_worker.database_error", error=str(error))
                    except Exception:
                        # No other task here claims runs, so no error may end this loop.
                        log.exception("run_worker.loop_failed")
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_ROUND):
                            await self._wake_signal.wait()
                    self._wake_signal.clear()
        finally:
            await self._processes.remove(self._heartbeat.id)

    async def _claim_round(self, tasks: asyncio.TaskGroup) -> None:
        if self._heartbeat.is_lost():
            # Other processes may have taken over by now; they would reject what this one still writes.
            log.warning("run_worker.heartbeat_lost", runs=len(self._running))
            if not self._heartbeat.has_failed:
                self._suspect_runs |= self._running.keys()
            for run_id in list(self._running):
                self.cancel(run_id)
            return
        while room := min(_BATCH, _AT_ONCE - len(self._running)):
            taken = await self._runs.claim(
                self._heartbeat.id,
                node=self._node,
                lease=self._heartbeat.lease,
                limit=room,
                in_hand=list(self._running),
            )
            for run in taken:
                self._running[run.id] = tasks.create_task(self._execute(run), name=f"run {run.id}")
                self._stopping.discard(run.id)
                if run.cancelled_by is not None:
                    # It was claimed only to be ended, which must not be interrupted again.
                    self._stopping.add(run.id)
            if len(taken) < room:
                break
        for run_id in await self._runs.list_cancelled(self._heartbeat.id):
            self.cancel(run_id)
        await self._processes.delete_dead(seconds=self._heartbeat.lease * _FORGET_AFTER_LEASES)

    async def _execute(self, run: Run) -> None:
        try:
            await self._advance(run)
            self.notify()
        except asyncio.CancelledError:
            await asyncio.shield(self._release(run))
            self.notify()
        except OperationalError as error:
            # No notification: the next round claims it again, from what was committed.
            log.warning("run_worker.database_error", run_id=str(run.id), error=str(error))
            if is_unreachable(error):
                await self._release_when_back(run)
        except Exception:
            log.exception("run_worker.run_failed", run_id=str(run.id))
        finally:
            # The run may be claimed again by now: after its release any process, this one too, can take it at once.
            if self._running.get(run.id) is asyncio.current_task():
                del self._running[run.id]
                self._stopping.discard(run.id)
                self._suspect_runs.discard(run.id)

    async def _release_when_back(self, run: Run) -> None:
        """Release the run once the database is back. The lost connection does not count as a failed attempt of it."""
        # Nothing can tell when the database is back.
        while not await self._release(run):  # noqa: ASYNC110
            await asyncio.sleep(_ROUND)

    async def _release(self, run: Run) -> bool:
        """Release the run: a cancelled one is then ended properly by its next process; others are continued."""
        try:
            await self._runs.release(run, orderly=run.id not in self._suspect_runs)
        except OperationalError as error:
            log.warning("run_worker.release_failed", run_id=str(run.id), error=str(error))
            return False
        return True
