"""Creates and connects what executes runs: the worker, the durable queue, and the keeper of homes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import timedelta
from functools import partial

import structlog

from toolcrib.core.errors import Superseded
from toolcrib.core.runs import Run
from toolcrib.nodes.home_keeper import HomeKeeper
from toolcrib.providers.provider_registry import ProviderRegistry
from toolcrib.runs.durable import DurableQueue
from toolcrib.runs.loaded_run import CredentialResolver
from toolcrib.runs.model_turn import ProviderPatience
from toolcrib.runs.periodic_jobs import PeriodicJob, PeriodicJobs
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runs.prompt_context_loader import PromptContextLoader
from toolcrib.runs.run_executor import OnRunEnded, RunExecutor
from toolcrib.runs.run_service import RunService
from toolcrib.runs.run_worker import RunWorker
from toolcrib.runs.schedules import ScheduleService
from toolcrib.storage.homes import HomeStore
from toolcrib.storage.periodic_jobs import PeriodicJobStore
from toolcrib.storage.runs import UNATTENDED_SECONDS
from toolcrib.storage.server_processes import ServerProcessStore
from toolcrib.storage.unattended import UnattendedStore
from toolcrib.wiring.tool_runtime import ToolRuntime
from toolcrib.workspace.effects.live_tree import record_tree
from toolcrib.workspace.retention_worker import RetentionWorker

log = structlog.get_logger(__name__)


def run_executor(
    engine: ToolRuntime, providers: ProviderRegistry, *, on_ended: OnRunEnded | None = None
) -> RunExecutor:
    """Return the executor of runs, with the models for which people have credentials."""
    return RunExecutor(
        runs=engine.stores.runs,
        sessions=engine.stores.sessions,
        agents=engine.stores.agents,
        access=CredentialResolver(engine.stores.access),
        providers=providers,
        slots=engine.model_slots,
        registry=engine.registry,
        executor=engine.executor,
        pauses=engine.paused_calls,
        session_agents=engine.session_agents,
        contexts=PromptContextLoader(engine.stores.runs, engine.workspace_services, engine.executor, engine.shell),
        live=engine.live,
        wake_signal=engine.wake_signal,
        max_attempts=engine.settings.max_attempts,
        drain=engine.drain,
        patience=ProviderPatience(
            most_waits=engine.settings.max_provider_waits, most_seconds=engine.settings.max_provider_wait_seconds
        ),
        on_ended=on_ended,
    )


# How many runs one process executes at a time. Most of them wait for their model.
_RUNS_AT_ONCE = 500


@asynccontextmanager
async def run_service(
    engine: ToolRuntime,
    execute: Callable[[Run], Awaitable[None]],
    heartbeat: ProcessHeartbeat,
    *,
    queue_after: float = 0.0,
    resumes: bool = True,
) -> AsyncIterator[RunService]:
    """Start a worker that gives each run to ``execute``, and provide the run service in front of it.

    Approved calls are resumed as well.

    Args:
        queue_after: Open the durable queue only after this many seconds. Until then, what becomes ready or is decided
            in this process starts, and what a process of this node left behind.
        resumes: Also work on what this process did not start: the queue, and what other processes left behind.
    """
    settings, recovery = engine.settings, engine.workspace_services.sync.trees.recovery

    async def execute_recovered(run: Run) -> None:
        seconds = await recovery.settled(run.workspace_id) if run.cancelled_by is None else None
        try:
            if seconds is not None and await engine.stores.runs.put_aside(run, seconds):
                # Its workspace is quarantined. Meanwhile others have its room here.
                engine.live.notify(run.workspace_id, run.session_id)
                return
        except Superseded:
            # Another process has taken it over.
            return
        await execute(run)

    runner = RunWorker(
        engine.stores.runs,
        execute_recovered,
        heartbeat,
        node=settings.node_name,
        slots=_RUNS_AT_ONCE,
        drain=engine.drain,
        resumes=resumes,
    )
    periodic = periodic_jobs(engine)
    queue = DurableQueue(
        settings.system_url,
        node=settings.node_name,
        process_id=heartbeat.id,
        slots=_RUNS_AT_ONCE,
        advance=runner.execute,
        start_queued=runner.start_queued,
        resume=engine.resume_worker.execute,
        fire=schedule_service(engine).fire,
        periodic=periodic,
        answer_seconds=settings.database_answer_seconds,
    )
    processes = ServerProcessStore(engine.database)
    queueing = asyncio.create_task(queue.run(processes, heartbeat, after=queue_after)) if resumes else None
    working = asyncio.create_task(runner.run())

    async def start_taken() -> None:
        await recovery.find()
        await runner.start_due()
        await engine.resume_worker.start_due()

    keeper = HomeKeeper(
        HomeStore(engine.database),
        processes,
        heartbeat,
        queue,
        engine.workspace_services.mounts,
        engine.workspace_services.sync.trees,
        node=settings.node_name,
        taken=start_taken,
        leaving=partial(record_tree, engine.workspace_services),
    )
    keeping = asyncio.create_task(keeper.run()) if settings.take_over_homes else None

    async def finish() -> None:
        # The queue first, so that what the worker releases does not come back to this process.
        await _stop(queueing)
        await runner.drain()

    engine.drain.add(finish)
    engine.wake_signal.start_with(runner.start, engine.resume_worker.start)
    try:
        if resumes:
            if not queue_after:
                await queue.opened()
            await runner.start_due()
            await engine.resume_worker.start_due()
        yield RunService(engine.stores.runs, engine.wake_signal, engine.live, runner=runner)
    finally:
        await _stop(keeping)
        await _stop(queueing)
        await periodic.stop()
        await engine.resume_worker.stop()
        await _stop(working)


async def _stop(job: asyncio.Task[None] | None) -> None:
    if job is None:
        return
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)


# Sub-minute, because a call whose session was deleted, or whose server died, ends with this job.
_OVERDUE_CALLS_SECONDS = 10.0
_UNATTENDED_SECONDS = 60.0


def periodic_jobs(engine: ToolRuntime) -> PeriodicJobs:
    """Return what one process does for the whole installation."""
    settings, days = engine.settings, engine.settings.version_retention_days
    collector = RetentionWorker(engine.stores.retention, keep=None if days is None else timedelta(days=days))

    async def end_overdue_calls() -> None:
        await engine.paused_calls.expire_all()
        await engine.resume_worker.recover()

    async def requeue_unattended() -> None:
        requeued = await unattended.requeue(seconds=UNATTENDED_SECONDS)
        queues = await unattended.workspaces_with_queued_runs(
            seconds=UNATTENDED_SECONDS, most=settings.max_workspace_runs
        )
        for workspace_id in queues:
            try:
                await engine.stores.runs.start_queued(workspace_id)
            except Exception:
                # One workspace must not stop the others.
                log.exception("unattended.queue_not_started", workspace_id=str(workspace_id))
        if queues or requeued.approved_calls or requeued.schedules:
            log.warning("unattended.requeued", queues_of_runs=len(queues), **asdict(requeued))

    unattended = UnattendedStore(engine.database)
    jobs = (
        PeriodicJob("end_overdue_calls", _OVERDUE_CALLS_SECONDS, end_overdue_calls),
        PeriodicJob("requeue_unattended", _UNATTENDED_SECONDS, requeue_unattended),
        PeriodicJob("collect_garbage", settings.retention_interval_seconds, collector.run_once),
    )
    return PeriodicJobs(PeriodicJobStore(engine.database), jobs)


def schedule_service(engine: ToolRuntime) -> ScheduleService:
    """Return the service that fires schedules."""
    return ScheduleService(engine.stores.schedules, engine.wake_signal, engine.live)
