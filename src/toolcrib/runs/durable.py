"""The durable queue of a node, on DBOS: what the database queued is started once, and again if its process dies.

No other module imports DBOS. It records no steps: the rows of a run are its log, and its epoch is the fence. A run
enters the queue in the transaction that makes it ready (``enqueue_ready_run`` in SQL). DBOS takes most of a second to
import, and is imported only when the queue opens.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import structlog

from toolcrib.core.errors import Misconfigured
from toolcrib.core.ids import PauseId, ProcessId, RunId, ScheduleId, WorkspaceId
from toolcrib.runs.periodic_jobs import PeriodicJobs
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runtime.logged_errors import error_kind
from toolcrib.storage import migrate
from toolcrib.storage.database import session_name
from toolcrib.storage.database_connections import ANSWER_SECONDS
from toolcrib.storage.homes import HomeStore
from toolcrib.storage.server_processes import ServerProcessStore

if TYPE_CHECKING:
    from dbos import DBOSConfig, WorkflowStatus

    from toolcrib.storage.queue_connections import QueueConnections

log = structlog.get_logger(__name__)

# Runs that become ready in this process start at once; the queue finds the others at this interval.
_POLL_SECONDS: Final = 0.6
# The queue of what one process does for all nodes. Also in storage/periodic_jobs.py.
_INSTALLATION: Final = "installation"
_INSTALLATION_POLL_SECONDS: Final = 5.0
_JOBS_AT_ONCE: Final = 4
# Of the workflow, not of Toolcrib: processes of different releases share the queue during an upgrade. Also in SQL.
_VERSION: Final = "runs-1"
_KEEP_FINISHED: Final = timedelta(minutes=2)
_TIDY_SECONDS: Final = 60.0
_FORGET_AFTER_LEASES: Final = 100
_DELETED_AT_ONCE: Final = 1_000
_MOVED_AT_ONCE: Final = 1_000
# Entries that a line of the log names.
_NAMED: Final = 10
# They start workflows and end them; a workflow that runs holds none.
_THREADS: Final = 2
_CONNECTIONS: Final = 4


def upgrade(owner_dsn: str, *, app_dsn: str | None = None, system_dsn: str | None = None) -> str:
    """Create or migrate the database, the queue's tables included. Returns the revision."""
    return migrate.upgrade(owner_dsn, app_dsn=app_dsn, system_dsn=system_dsn, migrate_queue=_migrate_queue)


def _migrate_queue(owner_dsn: str) -> None:
    _quiet_logger()
    from dbos import DBOS

    DBOS.migrate(owner_dsn)


class DurableQueue:
    """The queue of one node, worked by this process."""

    def __init__(
        self,
        dsn: str,
        *,
        node: str,
        process_id: ProcessId,
        slots: int,
        advance: Callable[[WorkspaceId, RunId, int], Coroutine[Any, Any, None]],
        start_queued: Callable[[WorkspaceId], Coroutine[Any, Any, object]],
        resume: Callable[[WorkspaceId, PauseId], Coroutine[Any, Any, None]],
        fire: Callable[[WorkspaceId, ScheduleId, int], Coroutine[Any, Any, None]],
        periodic: PeriodicJobs,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """Create the queue.

        Args:
            slots: How many runs it starts at a time.
            advance: Executes a run that was queued for an epoch. Returns when it ended, waits, or is in the queue
                again.
            start_queued: Starts queued runs of a workspace that has room for them. Returns once that is done.
            resume: Executes an approved call. Returns when it has ended, or is in the queue again.
            fire: Fires a schedule that is due at this time, in seconds since 1970, and enters its next firing.
            periodic: The jobs that one process does for the whole installation.
            answer_seconds: How long a statement may have no answer of the database.
        """
        self.dsn = dsn
        self.answer_seconds = answer_seconds
        self.name = f"runs@{node}"
        self.node = node
        self.process_id = process_id
        self.slots = slots
        self.loop = asyncio.get_running_loop()
        self.advance = advance
        self.start_queued = start_queued
        self.resume = resume
        self.fire = fire
        self.periodic = periodic
        self.is_closed = False
        # Since when an entry that this process has begun is not at work.
        self._idle_since: dict[str, float] = {}
        # DBOS's calls block. One thread for them, however long the server runs.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="toolcrib-queue")
        self._opened = self.loop.create_future()

    async def opened(self) -> None:
        """Wait until the queue is open.

        Raises:
            Misconfigured: It cannot be opened in this program.
        """
        await asyncio.shield(self._opened)

    async def run(self, processes: ServerProcessStore, heartbeat: ProcessHeartbeat, *, after: float = 0.0) -> None:
        """Work the queue until cancelled, put back into it what nobody works on, and end dead processes' sessions."""
        lease = heartbeat.lease
        await asyncio.sleep(after)
        try:
            await self._open()
            tidied = time.monotonic() - _TIDY_SECONDS
            while True:
                if heartbeat.is_steady:
                    await _end_sessions_of_dead(processes, lease)
                try:
                    alive = {str(id_) for id_ in await processes.alive(seconds=lease)}
                    await self._in_thread(_engine.launch_if_failed)
                    await self._in_thread(self._requeue_abandoned, alive, lease)
                    await processes.delete_dead(seconds=lease * _FORGET_AFTER_LEASES)
                    if time.monotonic() >= tidied + _TIDY_SECONDS:
                        await self.periodic.enter()
                        await self._in_thread(_delete_finished, self.name)
                        tidied = time.monotonic()
                except Exception as error:  # noqa: BLE001 - no error may end this loop; most are the database's
                    log.warning("durable.round_failed", error=error_kind(error))
                await asyncio.sleep(lease / 4)
        finally:
            # DBOS takes a second to stop. Nothing comes from it any more, so its server need not wait.
            self.is_closed = True
            self._thread.shutdown(wait=False)
            threading.Thread(target=_engine.detach, args=(self,), name="toolcrib-queue-stop", daemon=True).start()

    async def move_here(self, nodes: Sequence[str], homes: HomeStore) -> int:
        """Move what waits in the queues of other nodes here, if this node has become its workspace's home.

        What is delayed there comes into the queue at its time, and is moved then. Returns how many were moved.
        """
        await self.opened()
        entries = await self._listed([f"runs@{node}" for node in nodes])
        at_home = await homes.at(self.node, set(entries.values()))
        ours = [workflow_id for workflow_id, workspace_id in entries.items() if workspace_id in at_home]
        await self.loop.run_in_executor(self._thread, _resume, ours, self.name)
        return len(ours)

    def _requeue_abandoned(self, alive: set[str], lease: float) -> None:
        """Put entries back that were begun by a dead process, or by this one, which does not work on them.

        DBOS gives an entry to a process in one transaction and reads it in another. If the database is lost between
        them, DBOS forgets the entry, which would stay begun as long as the process lives.
        """
        from dbos import DBOS

        begun = DBOS.list_workflows(
            queue_name=[self.name, _INSTALLATION], status="PENDING", load_input=False, load_output=False
        )
        now = time.monotonic()
        self._idle_since = {
            one.workflow_id: self._idle_since.get(one.workflow_id, now)
            for one in begun
            if one.executor_id == _engine.launched_as and one.workflow_id not in _engine.at_work
        }
        dead = [one for one in begun if alive.isdisjoint((one.executor_id or "").split("+"))]
        # Between the two transactions, and after the work, an entry is begun and not at work for a moment.
        lost = [one for one in begun if now - self._idle_since.get(one.workflow_id, now) > lease]
        if lost:
            log.warning("durable.entries_lost", entries=[one.workflow_id for one in lost[:_NAMED]], count=len(lost))
        _requeue([*dead, *lost])

    async def _listed(self, names: Sequence[str]) -> dict[str, WorkspaceId]:
        return await self.loop.run_in_executor(self._thread, _entries, names)

    async def _in_thread(self, function: Callable[..., object], *given: object) -> None:
        await self.loop.run_in_executor(self._thread, function, *given)

    async def _open(self) -> None:
        while True:
            try:
                await self._in_thread(_engine.attach, self)
            except Misconfigured as error:
                log.error("durable.not_opened", error=str(error))
                self._opened.set_exception(error)
                # Marks it as retrieved: not every server waits for the queue.
                self._opened.exception()
                raise
            except Exception as error:  # noqa: BLE001 - of DBOS or its database driver; most pass
                log.warning("durable.open_failed", error=error_kind(error))
                await asyncio.sleep(_POLL_SECONDS)
            else:
                self._opened.set_result(None)
                return


async def _end_sessions_of_dead(processes: ServerProcessStore, lease: float) -> None:
    try:
        if ended := await processes.end_sessions_of_dead(seconds=lease):
            log.warning("durable.sessions_ended", sessions=ended)
    except Exception as error:  # noqa: BLE001 - a database that does not allow it; its own timeouts end them later
        log.warning("durable.sessions_not_ended", error=error_kind(error))


class _Engine:
    """DBOS in this process. It exists once in a process, so all servers in a program share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[ProcessId, DurableQueue] = {}
        # The entries that this process works on.
        self.at_work: set[str] = set()
        # The id under which DBOS has begun them.
        self.launched_as = ""
        self._is_launched = False
        self._connections: QueueConnections | None = None

    def attach(self, queue: DurableQueue) -> None:
        with self._lock:
            if queue.is_closed:
                return
            if any(other.dsn != queue.dsn for other in self._queues.values()):
                raise Misconfigured(
                    "Another Toolcrib in this program uses another database. Use one database in a program, or run "
                    "`toolcrib serve` for each."
                )
            self._stop()
            self._queues[queue.process_id] = queue
            try:
                self._launch()
            except Misconfigured:
                # The engine belongs to someone else: it is not ours to stop.
                del self._queues[queue.process_id]
                raise

    def detach(self, queue: DurableQueue) -> None:
        with self._lock:
            if queue.process_id not in self._queues:
                return
            try:
                self._stop()
                del self._queues[queue.process_id]
                if self._queues:
                    self._launch()
            except Exception as error:  # noqa: BLE001 - most are the database's; the others try again
                _warn("durable.stop_failed", error=error_kind(error))

    def launch_if_failed(self) -> None:
        """Launch again after a failure, such as an end of another server here while the database was away."""
        with self._lock:
            if self._queues and not self._is_launched:
                self._stop()
                self._launch()

    @property
    def is_in_use(self) -> bool:
        return any(not queue.is_closed for queue in self._queues.values())

    def queue_of(self, name: str) -> DurableQueue | None:
        found = [queue for queue in self._queues.values() if not queue.is_closed]
        return next((queue for queue in reversed(found) if queue.name == name), found[-1] if found else None)

    def _stop(self) -> None:
        self._is_launched = False
        if not self._queues:
            return
        from dbos import DBOS

        # The wait lets its threads end what they have begun.
        DBOS.destroy(workflow_completion_timeout_sec=1)
        if self._connections is not None:
            self._connections.close()
            self._connections = None

    def _launch(self) -> None:
        _quiet_logger()
        from dbos import DBOS

        from toolcrib.storage.queue_connections import QueueConnections

        queues = list(self._queues.values())
        # A process that shares the engine with others is alive as long as one of them is.
        executor_id = "+".join(str(queue.process_id) for queue in queues)
        self._connections = self._connections or QueueConnections(
            queues[0].dsn,
            size=_CONNECTIONS,
            name=session_name("toolcrib-queue", queues[0].process_id),
            answer_seconds=queues[0].answer_seconds,
        )
        config: DBOSConfig = {
            "name": "toolcrib",
            "system_database_url": queues[0].dsn,
            "system_database_engine": self._connections.engine,
            "application_version": _VERSION,
            "executor_id": executor_id,
            "run_migrations": False,
            "max_executor_threads": _THREADS,
            # It looks this often for notifications of workflows to each other, which there are none of.
            "notification_coalesce_sec": 1.0,
        }
        DBOS(config=config)
        if DBOS.executor_id != executor_id:
            raise Misconfigured("This program uses DBOS itself. Run Toolcrib as a server of its own: `toolcrib serve`.")
        _register_workflow()
        DBOS.listen_queues(sorted({_INSTALLATION, *(queue.name for queue in queues)}))
        DBOS.launch()
        for queue in queues:
            DBOS.register_queue(queue.name, worker_concurrency=queue.slots, polling_interval_sec=_POLL_SECONDS)
        DBOS.register_queue(
            _INSTALLATION, worker_concurrency=_JOBS_AT_ONCE, polling_interval_sec=_INSTALLATION_POLL_SECONDS
        )
        if self.launched_as not in ("", executor_id):
            # Its runs go on in this process. Their entries come here again, and wait for them.
            begun = DBOS.list_workflows(
                executor_id=self.launched_as, status="PENDING", load_input=False, load_output=False
            )
            _requeue(begun)
        self.launched_as = executor_id
        self._is_launched = True


_engine: Final = _Engine()
_is_registered = threading.Event()


def _register_workflow() -> None:
    if _is_registered.is_set():
        return
    from dbos import DBOS

    @DBOS.workflow(name="advance")
    async def advance(workspace_id: str, run_id: str, queue_name: str) -> None:
        queue = await _required_queue(queue_name)
        # The entry's id is that of the run and its next epoch.
        epoch = int((DBOS.workflow_id or "").rpartition("/")[2] or 0)
        await _in_loop_of(queue, queue.advance(WorkspaceId(UUID(workspace_id)), RunId(UUID(run_id)), epoch))

    @DBOS.workflow(name="start_queued")
    async def start_queued(workspace_id: str, _: None, queue_name: str) -> None:
        queue = await _required_queue(queue_name)
        await _in_loop_of(queue, queue.start_queued(WorkspaceId(UUID(workspace_id))))

    @DBOS.workflow(name="resume_call")
    async def resume_call(workspace_id: str, pause_id: str, queue_name: str) -> None:
        queue = await _required_queue(queue_name)
        await _in_loop_of(queue, queue.resume(WorkspaceId(UUID(workspace_id)), PauseId(UUID(pause_id))))

    @DBOS.workflow(name="schedule")
    async def schedule(workspace_id: str, schedule_id: str, queue_name: str) -> None:
        queue = await _required_queue(queue_name)
        # The id of the entry ends with the time: one entry for each firing.
        due = int((DBOS.workflow_id or "").rpartition("/")[2])
        await _in_loop_of(queue, queue.fire(WorkspaceId(UUID(workspace_id)), ScheduleId(UUID(schedule_id)), due))

    @DBOS.workflow(name="periodic")
    async def periodic(job: str) -> None:
        queue = await _required_queue(_INSTALLATION)
        # The id of the entry ends with the time, as that of a schedule.
        due = int((DBOS.workflow_id or "").rpartition("/")[2])
        await _in_loop_of(queue, queue.periodic.do(job, due))

    _is_registered.set()


async def _required_queue(name: str) -> DurableQueue:
    queue = _engine.queue_of(name)
    if queue is None:
        # This process is stopping. The entry stays begun, and another process takes it.
        await asyncio.Future()
    assert queue is not None
    return queue


async def _in_loop_of(queue: DurableQueue, work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine on the loop of the queue's server. When DBOS stops, it goes on: its server ends it."""
    from dbos import DBOS

    entry = DBOS.workflow_id or ""
    _engine.at_work.add(entry)
    try:
        await asyncio.shield(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, queue.loop)))
    finally:
        _engine.at_work.discard(entry)


def _requeue(begun: "Sequence[WorkflowStatus]") -> None:
    for name in {one.queue_name for one in begun if one.queue_name}:
        _resume([one.workflow_id for one in begun if one.queue_name == name], name)


def _entries(names: Sequence[str]) -> dict[str, WorkspaceId]:
    """Return the entries of queues that wait, or have been begun, with their workspaces."""
    from dbos import DBOS

    listed = partial(DBOS.list_workflows, queue_name=list(names), status=["ENQUEUED", "PENDING"], load_output=False)
    # Most looks find nothing.
    if not listed(limit=1, load_input=False):
        return {}
    found = listed()
    return {one.workflow_id: WorkspaceId(UUID(one.input["args"][0])) for one in found if one.input}


def _resume(workflow_ids: list[str], name: str) -> None:
    from dbos import DBOS, error

    for start in range(0, len(workflow_ids), _MOVED_AT_ONCE):
        some = workflow_ids[start : start + _MOVED_AT_ONCE]
        try:
            DBOS.resume_workflows(some, queue_name=name)
        except error.DBOSNonExistentWorkflowError:
            # One of them has ended meanwhile, and is in no queue any more.
            if len(some) > 1:
                for workflow_id in some:
                    _resume([workflow_id], name)


def _delete_finished(name: str) -> None:
    from dbos import DBOS

    before = (datetime.now(UTC) - _KEEP_FINISHED).isoformat()
    while True:
        finished = DBOS.list_workflows(
            status=["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"],
            queue_name=[name, _INSTALLATION],
            completed_before=before,
            limit=_DELETED_AT_ONCE,
            load_input=False,
            load_output=False,
        )
        if finished:
            DBOS.delete_workflows([found.workflow_id for found in finished])
        if len(finished) < _DELETED_AT_ONCE:
            return


def _warn(event: str, **facts: str) -> None:
    """Log what DBOS has to say. Nothing while it stops: the program that had a log may be writing its results."""
    if _engine.is_in_use:
        log.warning(event, **facts)


class _ToStructlog(logging.Handler):
    """Passes on what DBOS logs. Without a handler it would write to the terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        _warn("durable.engine", message=record.getMessage(), **({} if error is None else {"error": error_kind(error)}))


def _quiet_logger() -> None:
    engine_log = logging.getLogger("dbos")
    if not any(isinstance(handler, _ToStructlog) for handler in engine_log.handlers):
        engine_log.addHandler(_ToStructlog(logging.WARNING))
        engine_log.propagate = False
        engine_log.setLevel(logging.WARNING)
