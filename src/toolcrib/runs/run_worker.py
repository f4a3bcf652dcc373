"""Executes runs of this node's workspaces, many at once. When this process stops, another one continues them.

A run that becomes ready in this process starts at once, if there is room. Every run is also in the durable queue, which
starts it later, elsewhere, or again. Whoever comes first takes it; the other waits until it is let go.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from toolcrib.core.ids import RunId, WorkspaceId
from toolcrib.core.runs import Run
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runtime.drain import Drain
from toolcrib.storage.database import OperationalError
from toolcrib.storage.run_steps import RunStepStore

log = structlog.get_logger(__name__)

# If entries of the queue come as close together as this, more of them are on their way.
_BURST_SECONDS = 0.1
# So many runs are taken in one statement.
_TAKEN_AT_ONCE = 50
# How often a process looks for cancelled runs, for runs that others let go, and at its own heartbeat.
_ROUND = 0.5


class RunWorker:
    """One per server. ``start`` is for runs that became ready here, ``execute`` for the durable queue."""

    def __init__(
        self,
        runs: RunStepStore,
        advance: Callable[[Run], Awaitable[None]],
        heartbeat: ProcessHeartbeat,
        *,
        node: str,
        slots: int,
        drain: Drain | None = None,
    ) -> None:
        self._runs = runs
        self._advance = advance
        self._heartbeat = heartbeat
        self._node = node
        self._slots = slots
        self._running: dict[RunId, asyncio.Task[bool]] = {}
        # Runs that are to be taken by the next statement.
        self._asked: dict[RunId, tuple[WorkspaceId, asyncio.Future[Run | None]]] = {}
        self._taking: asyncio.Task[None] | None = None
        self._last_entry = self._last_burst = -_ROUND
        # Runs that are being stopped, or that already know that they were cancelled.
        self._stopping: set[RunId] = set()
        # Runs stopped because this process missed its heartbeats: one of them may have been the cause.
        self._suspect_runs: set[RunId] = set()
        # Runs of other processes, for which the queue waits here.
        self._elsewhere: dict[RunId, tuple[WorkspaceId, asyncio.Event]] = {}
        # What ends with this worker: what the queue has started here and does not end when it stops, and the tasks of
        # runs, also of those that another task has taken meanwhile.
        self._executing: set[asyncio.Task[Any]] = set()
        self._may_work = True
        self._drain = drain or Drain()

    def start(self, workspace_id: WorkspaceId, run_id: RunId) -> None:
        """Start a run that has become ready, if there is room. Otherwise the queue starts it."""
        if self._can_begin and len(self._running) < self._slots and run_id not in self._running:
            self._begin(workspace_id, run_id)

    async def start_due(self) -> None:
        """Start the runs that this node's processes left behind."""
        for workspace_id, run_id in await self._runs.due(
            node=self._node, lease=self._heartbeat.lease, limit=self._slots
        ):
            self.start(workspace_id, run_id)

    async def execute(self, workspace_id: WorkspaceId, run_id: RunId, epoch: int) -> None:
        """Take and execute a run that the queue has started. Returns once it ended, waits, or is in the queue again."""
        if task := asyncio.current_task():
            self._keep(task)
        self._start_burst()
        while True:
            try:
                if await self._is_over(workspace_id, run_id, epoch):
                    return
            except OperationalError as error:
                log.warning("run_worker.database_error", run_id=str(run_id), error=str(error))
            except Exception:
                # Whoever returns from here gives the run up, so no error may.
                log.exception("run_worker.run_failed", run_id=str(run_id))
            await asyncio.sleep(_ROUND)

    def _start_burst(self) -> None:
        """If many entries come, start as many of the node's ready runs as there is room for.

        The queue passes its entries on one by one, each through several threads. They then find their run started.
        """
        now = time.monotonic()
        is_burst, self._last_entry = now - self._last_entry < _BURST_SECONDS, now
        # Those of one look of the queue are started together, so this is done once for each.
        if is_burst and now - self._last_burst > _ROUND / 2:
            self._last_burst = now
            self._keep(asyncio.create_task(self._start_ready()))

    async def _start_ready(self) -> None:
        if not self._can_begin or len(self._running) >= self._slots:
            return
        room = self._slots - len(self._running)
        taking = asyncio.ensure_future(self._runs.take_ready(self._heartbeat.id, node=self._node, limit=room))
        try:
            for run in await asyncio.shield(taking):
                task = asyncio.create_task(self._execute_taken(run), name=f"run {run.id}")
                self._running[run.id] = task
        except asyncio.CancelledError:
            for run in await asyncio.shield(taking):
                await self._release(run)
            raise
        except OperationalError as error:
            # The queue still starts them one by one.
            log.warning("run_worker.database_error", error=str(error))

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._executing.add(task)
        task.add_done_callback(self._executing.discard)

    async def _is_over(self, workspace_id: WorkspaceId, run_id: RunId, epoch: int) -> bool:
        if not self._can_begin and run_id not in self._running:
            return False
        task = self._running.get(run_id) or self._begin(workspace_id, run_id)
        await asyncio.wait([task])
        if not task.cancelled() and task.result():
            return True
        is_running, is_moved = await self._runs.where_is(workspace_id, run_id, node=self._node)
        if is_moved:
            return await self._runs.requeue_moved(workspace_id, run_id, node=self._node)
        if not is_running:
            # The queue goes by the clock of a process. If it is ahead of the database's, this entry has come too early.
            # An earlier entry of a run that is put aside is over: another one comes when its time has come.
            return not await self._runs.is_put_aside(workspace_id, run_id, epoch=epoch)
        # Another process executes it. If that one dies, this one continues.
        _, let_go = self._elsewhere.setdefault(run_id, (workspace_id, asyncio.Event()))
        await let_go.wait()
        return False

    def cancel(self, run_id: RunId) -> None:
        """Stop a run that this process executes. Its row already says that it was cancelled."""
        task = self._running.get(run_id)
        if task is not None and run_id not in self._stopping:
            self._stopping.add(run_id)
            task.cancel()

    async def run(self) -> None:
        """Watch the runs until cancelled. They are then released for other processes."""
        try:
            while True:
                try:
                    await self._look()
                except OperationalError as error:
                    log.warning("run_worker.database_error", error=str(error))
                except Exception:
                    # No other task here watches the runs, so no error may end this loop.
                    log.exception("run_worker.loop_failed")
                await asyncio.sleep(_ROUND)
        finally:
            self._may_work = False
            await self._release_all()

    async def drain(self) -> None:
        """Wait until no run is at work here; once the drain has begun, none starts. Cancelled, release the rest."""
        try:
            while self._running:
                await asyncio.wait(self._running.values())
        finally:
            await self._release_all()

    async def _release_all(self) -> None:
        for task in (at_work := {*self._running.values(), *self._executing}):
            task.cancel()
        await asyncio.gather(*at_work, return_exceptions=True)
        if self._taking is not None:
            await self._taking

    async def _look(self) -> None:
        if self._heartbeat.is_lost():
            # Other processes may have taken over by now; they would reject what this one still writes.
            log.warning("run_worker.heartbeat_lost", runs=len(self._running))
            self._may_work = False
            if not self._heartbeat.has_failed:
                self._suspect_runs |= self._running.keys()
            for run_id in list(self._running):
                self.cancel(run_id)
            return
        self._may_work = True
        if self._running:
            for run_id in await self._runs.list_cancelled(self._heartbeat.id):
                self.cancel(run_id)
        if self._elsewhere:
            asked = {run_id: workspace_id for run_id, (workspace_id, _) in self._elsewhere.items()}
            for run_id in await self._runs.let_go(asked, lease=self._heartbeat.lease):
                self._elsewhere.pop(run_id)[1].set()

    @property
    def _can_begin(self) -> bool:
        return self._may_work and not self._drain.has_begun

    def _begin(self, workspace_id: WorkspaceId, run_id: RunId) -> asyncio.Task[bool]:
        task = asyncio.create_task(self._take_and_execute(workspace_id, run_id), name=f"run {run_id}")
        self._keep(task)
        self._running[run_id] = task
        return task

    async def _take_and_execute(self, workspace_id: WorkspaceId, run_id: RunId) -> bool:
        """Execute the run as far as possible. Returns False if it is not to be taken."""
        try:
            run = await self._take(workspace_id, run_id)
            return run is not None and await self._execute_taken(run)
        finally:
            self._forget(run_id)

    async def _execute_taken(self, run: Run) -> bool:
        if run.cancelled_by is not None:
            # It was taken only to be ended, which must not be interrupted again.
            self._stopping.add(run.id)
        try:
            is_released = await self._execute(run)
        finally:
            self._forget(run.id)
        if is_released:
            # It is ready again: a cancelled one is now ended properly, others continue from what was committed.
            self.start(run.workspace_id, run.id)
        return True

    def _forget(self, run_id: RunId) -> None:
        """Remove the run of this task from those that are executed here."""
        if self._running.get(run_id) is asyncio.current_task():
            del self._running[run_id]
            self._stopping.discard(run_id)
            self._suspect_runs.discard(run_id)

    async def _take(self, workspace_id: WorkspaceId, run_id: RunId) -> Run | None:
        """Take a run together with others that start at the same time. None if it is not to be taken."""
        taken: asyncio.Future[Run | None] = asyncio.get_running_loop().create_future()
        self._asked[run_id] = (workspace_id, taken)
        if self._taking is None:
            self._taking = asyncio.create_task(self._take_asked())
        try:
            run = await asyncio.shield(taken)
        except asyncio.CancelledError:
            if run := await asyncio.shield(taken):
                await self._release(run)
            raise
        if run is not None:
            return run
        # Nor is one that another transaction has locked for a moment. Only this one waits for that.
        return await self._runs.take(
            self._heartbeat.id, workspace_id, run_id, node=self._node, lease=self._heartbeat.lease
        )

    async def _take_asked(self) -> None:
        """Take what was asked for, and what is asked for meanwhile."""
        while asked := dict(list(self._asked.items())[:_TAKEN_AT_ONCE]):
            for run_id in asked:
                del self._asked[run_id]
            try:
                found = await self._runs.take_free(
                    self._heartbeat.id,
                    {run_id: workspace_id for run_id, (workspace_id, _) in asked.items()},
                    node=self._node,
                    lease=self._heartbeat.lease,
                )
            except Exception as error:  # noqa: BLE001 - each of them handles it
                for _, taken in asked.values():
                    taken.set_exception(error)
                continue
            runs = {run.id: run for run in found}
            for run_id, (_, taken) in asked.items():
                taken.set_result(runs.get(run_id))
        self._taking = None

    async def _execute(self, run: Run) -> bool:
        """Execute the run until it ends or waits. Returns True if it was released instead."""
        try:
            await self._advance(run)
        except asyncio.CancelledError:
            return await asyncio.shield(self._release(run))
        except OperationalError as error:
            log.warning("run_worker.database_error", run_id=str(run.id), error=str(error))
        except Exception:
            log.exception("run_worker.run_failed", run_id=str(run.id))
            self._suspect_runs.add(run.id)
        else:
            return False
        await self._release_when_back(run)
        return True

    async def _release_when_back(self, run: Run) -> None:
        """Release the run once the database is back. The lost connection does not count as a failed attempt of it."""
        while True:
            # Nothing tells when the database is back.
            await asyncio.sleep(_ROUND)
            if await self._release(run):
                return

    async def _release(self, run: Run) -> bool:
        """Release the run for the next process, which may be this one. Returns False if the database is not there."""
        try:
            await self._runs.release(run, orderly=run.id not in self._suspect_runs)
        except OperationalError as error:
            log.warning("run_worker.release_failed", run_id=str(run.id), error=str(error))
            return False
        return True
