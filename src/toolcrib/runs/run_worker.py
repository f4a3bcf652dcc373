"""Executes runs of this node's workspaces, many at once. When this process stops, another one continues them.

A run that becomes ready in this process starts at once, if there is room. Every run is also in the durable queue, which
starts it later, elsewhere, or again. Whoever comes first takes it; the other waits until it is let go.

While this process lives, no other one takes a run that the database says is this one's. So every exit from a claim ends
in a state that the database knows: the run ended, waits, or was released. ``ClaimPhase`` has the phases. What an exit
cannot reach, such as a run that was taken by a statement whose answer was lost, ``_release_unheld`` finds by comparing
the rows with the claims.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

import structlog

from toolcrib.core.errors import Overloaded
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
# How often per lease a process looks for runs that are its own and that it does not execute.
_LOOKS_PER_LEASE = 4


class ClaimPhase(StrEnum):
    """What this process does with a run.

    ``taking``: a statement that takes the run is under way. ``executing``: it is taken, and may be stopped.
    ``releasing``: it is stopped, and is let go of as soon as the database allows; nothing interrupts that.
    """

    TAKING = "taking"
    EXECUTING = "executing"
    RELEASING = "releasing"
    OVER = "over"


CLAIM_TRANSITIONS: Mapping[ClaimPhase, frozenset[ClaimPhase]] = {
    # To releasing: it was taken by a statement that was to be stopped. To over: it was not to be taken, or the
    # statement failed.
    ClaimPhase.TAKING: frozenset({ClaimPhase.EXECUTING, ClaimPhase.RELEASING, ClaimPhase.OVER}),
    # To over: the run ended, waits or is put aside, which is committed.
    ClaimPhase.EXECUTING: frozenset({ClaimPhase.RELEASING, ClaimPhase.OVER}),
    # To over: it was released, or this worker ends and the heartbeat with it.
    ClaimPhase.RELEASING: frozenset({ClaimPhase.OVER}),
    ClaimPhase.OVER: frozenset(),
}


@dataclass(eq=False)
class _Claim:
    """A run that this process takes, executes and lets go of, in one task."""

    run_id: RunId
    phase: ClaimPhase = ClaimPhase.TAKING
    # It is being stopped, or knows already that it was cancelled: it is not interrupted again.
    is_stopped: bool = False
    # It may have been the cause of a failure of this process, which then counts as an attempt.
    is_suspect: bool = False
    task: asyncio.Task[bool] = field(init=False)

    def enter(self, phase: ClaimPhase) -> None:
        """Go on to the next phase."""
        assert phase in CLAIM_TRANSITIONS[self.phase], f"{self.phase} to {phase}"
        self.phase = phase

    def stop(self) -> None:
        """Stop the run. It is then released."""
        if not self.is_stopped and self.phase in (ClaimPhase.TAKING, ClaimPhase.EXECUTING):
            self.is_stopped = True
            self.task.cancel()


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
        resumes: bool = True,
    ) -> None:
        """Create the worker.

        Args:
            resumes: Also start runs that nobody attends to, whoever started them.
        """
        self._resumes = resumes
        self._runs = runs
        self._advance = advance
        self._heartbeat = heartbeat
        self._node = node
        self._slots = slots
        self._claims: dict[RunId, _Claim] = {}
        # Runs that are to be taken by the next statement.
        self._asked: dict[RunId, tuple[WorkspaceId, asyncio.Future[Run | None]]] = {}
        self._taking: asyncio.Task[None] | None = None
        # Held while a statement takes runs that no claim names yet.
        self._taking_ready = asyncio.Lock()
        self._last_entry = self._last_burst = -_ROUND
        # Runs of other processes, for which the queue waits here.
        self._elsewhere: dict[RunId, tuple[WorkspaceId, asyncio.Event]] = {}
        # What ends with this worker: what the queue has started here and does not end when it stops.
        self._executing: set[asyncio.Task[Any]] = set()
        # The claims of this worker, also those of runs that another task has taken meanwhile.
        self._open: set[_Claim] = set()
        self._may_work = True
        self._has_ended = False
        self._drain = drain or Drain()

    def start(self, workspace_id: WorkspaceId, run_id: RunId) -> None:
        """Start a run that has become ready, if there is room. Otherwise the queue starts it."""
        if self._can_begin and len(self._claims) < self._slots and run_id not in self._claims:
            self._begin(workspace_id, run_id)

    async def start_due(self) -> None:
        """Start this node's runs that are ready, or that its dead processes left behind, while there is room."""
        room = max(0, self._slots - len(self._claims))
        for workspace_id, run_id in await self._runs.due(node=self._node, lease=self._heartbeat.lease, limit=room):
            self.start(workspace_id, run_id)

    async def start_queued(self, workspace_id: WorkspaceId) -> None:
        """Start queued runs of a workspace that has room for them. Returns once that is done."""
        if task := asyncio.current_task():
            self._keep(task)
        while True:
            try:
                await self._runs.start_queued(workspace_id)
            except OperationalError as error:
                log.warning("run_worker.database_error", workspace_id=str(workspace_id), error=str(error))
            except Exception:
                # The queue starts this once, and the runs would wait for the next message of their workspace.
                log.exception("run_worker.queued_not_started", workspace_id=str(workspace_id))
            else:
                return
            await asyncio.sleep(_ROUND)

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
        if not self._can_begin or len(self._claims) >= self._slots:
            return
        taking = asyncio.ensure_future(self._take_ready())
        try:
            await asyncio.shield(taking)
        except asyncio.CancelledError:
            # Its claims then end with this worker.
            await asyncio.wait([taking])
            raise
        except OperationalError as error:
            # The queue still starts them one by one.
            log.warning("run_worker.database_error", error=str(error))

    async def _take_ready(self) -> None:
        async with self._taking_ready:
            room = max(0, self._slots - len(self._claims))
            for run in await self._runs.take_ready(self._heartbeat.id, node=self._node, limit=room):
                if self._can_begin:
                    self._open_claim(run.id, partial(self._execute_taken, run=run))
                else:
                    await self._release(run, orderly=True)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._executing.add(task)
        task.add_done_callback(self._executing.discard)

    async def _is_over(self, workspace_id: WorkspaceId, run_id: RunId, epoch: int) -> bool:
        if not self._can_begin and run_id not in self._claims:
            return False
        task = (self._claims.get(run_id) or self._begin(workspace_id, run_id)).task
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
        if (claim := self._claims.get(run_id)) is not None:
            claim.stop()

    async def run(self) -> None:
        """Watch the runs until cancelled. They are then released for other processes."""
        # Apart, because a statement may wait long for a database that is silent. The heartbeat is checked meanwhile.
        loops = (
            asyncio.create_task(self._repeat(self._check_heartbeat, _ROUND)),
            asyncio.create_task(self._repeat(self._look, _ROUND)),
            asyncio.create_task(self._repeat(self._take_up_unheld, self._heartbeat.lease / _LOOKS_PER_LEASE)),
        )
        try:
            await asyncio.wait(loops)
        finally:
            for loop in loops:
                loop.cancel()
            self._may_work = False
            await self._release_all()

    async def _repeat(self, look: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            try:
                await look()
            except OperationalError as error:
                log.warning("run_worker.database_error", error=str(error))
            except Exception:
                # No other task here watches the runs, so no error may end this loop.
                log.exception("run_worker.loop_failed")
            await asyncio.sleep(seconds)

    async def drain(self) -> None:
        """Wait until no run is at work here; once the drain has begun, none starts. Cancelled, release the rest."""
        try:
            while self._claims:
                await asyncio.wait([claim.task for claim in self._claims.values()])
        finally:
            await self._release_all()

    async def _release_all(self) -> None:
        self._has_ended = True
        for task in self._executing:
            task.cancel()
        for claim in self._open:
            claim.stop()
        at_work = {*self._executing, *(claim.task for claim in self._open)}
        if self._taking is not None:
            at_work.add(self._taking)
        if at_work:
            # Runs that cannot be released within the lease are taken over after it.
            _, late = await asyncio.wait(at_work, timeout=self._heartbeat.lease)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _check_heartbeat(self) -> None:
        self._may_work = not (is_lost := self._heartbeat.is_lost()) and not self._has_ended
        if not is_lost:
            return
        # Other processes may have taken over by now; they would reject what this one still writes.
        log.warning("run_worker.heartbeat_lost", runs=len(self._claims))
        for claim in list(self._claims.values()):
            # If the process was suspended or its loop did not run, one of its runs may have been the cause.
            claim.is_suspect |= not self._heartbeat.has_failed
            claim.stop()

    async def _look(self) -> None:
        if self._claims:
            for run_id in await self._runs.list_cancelled(self._heartbeat.id):
                self.cancel(run_id)
        if self._elsewhere:
            asked = {run_id: workspace_id for run_id, (workspace_id, _) in self._elsewhere.items()}
            for run_id in await self._runs.let_go(asked, lease=self._heartbeat.lease):
                self._elsewhere.pop(run_id)[1].set()

    async def _take_up_unheld(self) -> None:
        """Release this process's runs that it does not execute, and start this node's runs that nobody executes.

        Neither is needed in the ordinary course: a claim ends with a commit, and the queue starts what is ready. But
        the answer of a statement may be lost, or an entry of the queue, and a run without either would wait for ever.
        """
        await self._release_unheld()
        if self._resumes and self._can_begin:
            await self.start_due()

    async def _release_unheld(self) -> None:
        # Without the lock, a run could be on its way here in the answer to ``take_ready``. All others have a claim
        # before they are taken. One whose claim ended meanwhile has another state or another epoch by then, which
        # ``release`` compares.
        async with self._taking_ready:
            taken = await self._runs.taken_by(self._heartbeat.id)
            held = {claim.run_id for claim in self._open}
        for run in taken:
            if run.id not in held and await self._runs.release(run):
                log.warning("run_worker.unheld_run_released", run_id=str(run.id), epoch=run.epoch)
                self.start(run.workspace_id, run.id)

    @property
    def _can_begin(self) -> bool:
        return self._may_work and not self._drain.has_begun

    def _begin(self, workspace_id: WorkspaceId, run_id: RunId) -> _Claim:
        return self._open_claim(run_id, partial(self._take_and_execute, workspace_id=workspace_id))

    def _open_claim(self, run_id: RunId, work: Callable[[_Claim], Coroutine[Any, Any, bool]]) -> _Claim:
        claim = _Claim(run_id)
        claim.task = asyncio.create_task(work(claim), name=f"run {run_id}")
        # Not by the task itself: one that is stopped before its first step executes nothing.
        claim.task.add_done_callback(lambda _: self._close(claim))
        self._open.add(claim)
        self._claims[run_id] = claim
        return claim

    def _close(self, claim: _Claim) -> None:
        self._open.discard(claim)
        if self._claims.get(claim.run_id) is claim:
            del self._claims[claim.run_id]

    async def _take_and_execute(self, claim: _Claim, workspace_id: WorkspaceId) -> bool:
        """Execute the run as far as possible. Returns False if it is not to be taken."""
        try:
            run = await self._take(claim, workspace_id)
        except OperationalError as error:
            # It may have been taken all the same; then ``_release_unheld`` finds it.
            log.warning("run_worker.database_error", run_id=str(claim.run_id), error=str(error))
            return False
        return run is not None and await self._execute_taken(claim, run)

    async def _execute_taken(self, claim: _Claim, run: Run) -> bool:
        if run.cancelled_by is not None:
            # It was taken only to be ended, which must not be interrupted again.
            claim.is_stopped = True
        claim.enter(ClaimPhase.EXECUTING)
        # Another claim may have been opened since this one asked for the run. This one has it.
        self._claims[run.id] = claim
        is_released = await self._execute(claim, run)
        claim.enter(ClaimPhase.OVER)
        self._close(claim)
        if is_released:
            # It is ready again: a cancelled one is now ended properly, others continue from what was committed.
            self.start(run.workspace_id, run.id)
        return True

    async def _take(self, claim: _Claim, workspace_id: WorkspaceId) -> Run | None:
        """Take a run together with others that start at the same time. None if it is not to be taken."""
        run_id = claim.run_id
        taken: asyncio.Future[Run | None] = asyncio.get_running_loop().create_future()
        self._asked[run_id] = (workspace_id, taken)
        if self._taking is None:
            self._taking = asyncio.create_task(self._take_asked())
        try:
            run = await asyncio.shield(taken)
        except asyncio.CancelledError:
            if run := await asyncio.shield(taken):
                await self._let_go(claim, run)
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

    async def _execute(self, claim: _Claim, run: Run) -> bool:
        """Execute the run until it ends or waits. Returns True if it was released instead."""
        try:
            await self._advance(run)
        except asyncio.CancelledError:
            # Only this worker stops its claims, and only to release them.
            return await self._let_go(claim, run)
        except OperationalError as error:
            log.warning("run_worker.database_error", run_id=str(run.id), error=str(error))
        except Overloaded as error:
            log.warning("run_worker.no_room", run_id=str(run.id), error=error.message)
        except Exception:
            log.exception("run_worker.run_failed", run_id=str(run.id))
            claim.is_suspect = True
        else:
            return False
        return await self._let_go(claim, run, pause=True)

    async def _let_go(self, claim: _Claim, run: Run, *, pause: bool = False) -> bool:
        """Release the run, however long the database is away. The lost connection does not count as a failed attempt.

        Returns:
            False if this worker ended before. Others take the run when the heartbeat has ended too.
        """
        claim.enter(ClaimPhase.RELEASING)
        while True:
            if pause and not self._has_ended:
                # Nothing tells when the database is back.
                await asyncio.sleep(_ROUND)
            if await self._release(run, orderly=not claim.is_suspect):
                return True
            if self._has_ended:
                return False
            pause = True

    async def _release(self, run: Run, *, orderly: bool) -> bool:
        """Release the run for the next process, which may be this one. Returns False if the database is not there."""
        try:
            await self._runs.release(run, orderly=orderly)
        except OperationalError as error:
            log.warning("run_worker.release_failed", run_id=str(run.id), error=str(error))
            return False
        except Exception:
            # Whatever the error is: a run that is not released is executed by nobody.
            log.exception("run_worker.release_failed", run_id=str(run.id))
            return False
        return True
