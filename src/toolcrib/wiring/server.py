"""Creates and connects everything that a server has: the gate, runs, background work, and what routes use."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import structlog

import toolcrib
from toolcrib.api.access_tokens import AccessTokens, LoginLinks, SetupLinks
from toolcrib.api.api_services import ApiServices
from toolcrib.api.auth.connection_auth import EndedLogins
from toolcrib.api.passwords import Passwords
from toolcrib.core.errors import Misconfigured, ToolcribError
from toolcrib.core.ids import ProcessId, new_id
from toolcrib.events import EventHub
from toolcrib.gate.audit_seals import AuditSealer
from toolcrib.gate.audit_verification import AuditVerifier, CheckpointExporter
from toolcrib.gate.workspace_deletion import WorkspaceDeletion
from toolcrib.providers.provider_registry import ProviderRegistry, open_providers
from toolcrib.runs.loaded_run import CredentialResolver
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runs.run_service import RunService
from toolcrib.runtime.disk_identity import DiskIdentity
from toolcrib.runtime.traces import open_tracing
from toolcrib.settings import Settings
from toolcrib.storage.api_keys import TicketStore
from toolcrib.storage.database import Database, OperationalError
from toolcrib.storage.events import ConversationCursorStore
from toolcrib.storage.idempotency_keys import IdempotencyKeyStore
from toolcrib.storage.inbox import InboxStore
from toolcrib.storage.invitations import InvitationStore
from toolcrib.storage.quotas import UsageStore
from toolcrib.storage.tool_calls import CallHistoryStore
from toolcrib.storage.user_admin import UserAdmin
from toolcrib.tools.python_tools import load_python_tools
from toolcrib.tools.tool import Tool
from toolcrib.wiring.runs import run_executor, run_service, schedule_service
from toolcrib.wiring.tool_runtime import Stores, ToolRuntime, assemble, lost_calls
from toolcrib.workspace.retention_worker import TrashCollector

log = structlog.get_logger(__name__)

if TYPE_CHECKING:
    from toolcrib.api.rate_limits import SharedRateLimiter
    from toolcrib.api.server_metrics import ServerMetrics
    from toolcrib.wiring.node_forwarder import Forwarding

_LOCAL_QUEUE_AFTER = 5.0


@asynccontextmanager
async def _at_work(*jobs: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run jobs while the context lasts."""
    tasks = [asyncio.create_task(job) for job in jobs]
    for task in tasks:
        task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _log_failure(job: asyncio.Task[object]) -> None:
    """Log a job that an error has ended, when it happens: otherwise it would be missed only at the end."""
    if not job.cancelled() and (error := job.exception()) is not None:
        log.error("server.job_failed", job=repr(job.get_coro()), exc_info=error)


def api_services(
    engine: ToolRuntime,
    live: EventHub,
    providers: ProviderRegistry,
    *,
    run_service: RunService | None = None,
    passwords: Passwords | None = None,
    forwarding: "Forwarding | None" = None,
    metrics: "ServerMetrics | None" = None,
) -> ApiServices:
    """Create what the routes use.

    Args:
        run_service: Without one, runs are stored for the workers of other processes.
        passwords: By default with the usual cost of a hash.
        forwarding: Without it, calls in workspaces of other nodes are refused.
        metrics: Without them, there is no ``/metrics``.
    """
    settings, stores = engine.settings, engine.stores
    secret = settings.jwt_secret.get_secret_value()

    async def this_node() -> str:
        return settings.node_name

    return ApiServices(
        settings=settings,
        database=engine.database,
        accounts=stores.accounts,
        keys=stores.keys,
        workspaces=stores.workspaces,
        choose_home=this_node if forwarding is None else forwarding.choose_home,
        agents=stores.agents,
        packages=engine.packages if forwarding is None else forwarding.packages,
        files=stores.files,
        audit=stores.audit,
        verifier=audit_verifier(settings, stores),
        usage=UsageStore(engine.database),
        model_usage=engine.stores.model_usage,
        past_calls=CallHistoryStore(engine.database),
        sandbox=engine.sandbox,
        calls=stores.calls,
        session_forks=stores.session_forks,
        sessions=stores.sessions,
        conversation_cursors=ConversationCursorStore(engine.database),
        tickets=TicketStore(engine.database),
        live=live,
        executor=engine.executor if forwarding is None else forwarding.gate,
        lost_calls=lost_calls(engine),
        idempotency_keys=IdempotencyKeyStore(
            engine.database, process_id=engine.process_id, lease=settings.heartbeat_lease_seconds
        ),
        registry=engine.registry,
        toolbox=engine.toolbox,
        mcp_servers=engine.toolbox if forwarding is None else forwarding.mcp_servers,
        paused_calls=engine.paused_calls,
        session_agents=engine.session_agents,
        grants=stores.grants,
        inbox=InboxStore(engine.database),
        invitations=InvitationStore(engine.database),
        user_admin=UserAdmin(engine.database),
        run_service=run_service or RunService(stores.runs, engine.wake_signal, live),
        schedules=schedule_service(engine),
        access=stores.access,
        model_access=CredentialResolver(stores.access),
        search_keys=engine.search_keys,
        providers=providers,
        passwords=passwords or Passwords(),
        tokens=AccessTokens.from_settings(settings),
        login_links=LoginLinks(secret, node=settings.node_name),
        setup_links=SetupLinks(secret),
        drain=engine.drain,
        recovery=engine.workspace_services.sync.trees.recovery,
        metrics=metrics,
        shared_limits=_shared_limits(settings),
    )


def _shared_limits(settings: Settings) -> "SharedRateLimiter | None":
    """Return the limits of all nodes together, if there is more than one node or a limit of requests."""
    if settings.redis_url is None and settings.max_requests_per_minute is None:
        return None
    try:
        from toolcrib.api.rate_limits import SharedRateLimiter
    except ModuleNotFoundError as error:
        if error.name != "limits":
            raise
        raise Misconfigured(
            "TOOLCRIB_REDIS_URL or TOOLCRIB_MAX_REQUESTS_PER_MINUTE is set, but the library that counts requests is "
            "not installed. Run `pip install 'toolcrib[redis]'`."
        ) from None
    return SharedRateLimiter(settings.redis_url)


@asynccontextmanager
async def services(
    settings: Settings, *, tools: Iterable[Tool] = (), binds_logins: bool = False, resumes: bool = True
) -> AsyncIterator[ApiServices]:
    """Open everything that the routes use: the database, and all background workers. Recovery is one of them.

    Args:
        resumes: Go on with the runs that an earlier process left, and work on the queue. Not for a command that only
            looks: a run that it wakes costs money, and ends with the command.
    """
    settings.reject_weak_secrets()
    tools = (*tools, *await asyncio.to_thread(load_python_tools, settings.tools_module))
    process_id = ProcessId(new_id())
    # A local server's name does not come from its host, and its directory is locked.
    disk_id = None if binds_logins else DiskIdentity.ensure(settings.data_dir, settings.node_name).disk_id
    async with AsyncExitStack() as opened:
        await opened.enter_async_context(
            open_tracing(settings.otlp_endpoint, node=settings.node_name, version=toolcrib.__version__)
        )
        database = await opened.enter_async_context(
            Database.open(
                settings.database_url,
                settings.system_url,
                pool_size=settings.pool_size,
                process_id=process_id,
                answer_seconds=settings.database_answer_seconds,
            )
        )
        live = await opened.enter_async_context(
            EventHub.open(database, redis_url=settings.redis_url, node=settings.node_name)
        )
        metrics = None if settings.metrics_token is None else server_metrics(database)
        providers = await opened.enter_async_context(
            open_providers(
                private_hosts=settings.allowed_private_model_hosts,
                proxy=settings.model_proxy,
                on_ended=metrics.turn_ended if metrics else None,
            )
        )
        heartbeat = opened.enter_context(
            ProcessHeartbeat.start(
                settings.system_url,
                node=settings.node_name,
                lease=settings.heartbeat_lease_seconds,
                process_id=process_id,
                address=settings.internal_address,
                disk_id=disk_id,
            )
        )
        engine = assemble(
            settings,
            database,
            tools=tools,
            live=live,
            process_id=process_id,
            binds_logins=binds_logins,
            on_call_ended=metrics.call_ended if metrics else None,
        )
        if metrics is not None:
            metrics.watch_queues(lambda: engine.executor.waiting_calls)
            await opened.enter_async_context(_at_work(metrics.measure_loop_lag()))
        stores, mounts = engine.stores, engine.workspace_services.mounts
        opened.callback(mounts.close)
        sync = engine.workspace_services.sync
        # Only a look: the recovery itself is a job below, or happens when a call needs the workspace.
        await sync.trees.recovery.find()
        # It ends after everything that writes to the audit log, with a last seal.
        await opened.enter_async_context(
            _at_work(audit_sealer(settings, stores).run(settings.audit_seal_interval_seconds))
        )
        # They close after the runs: a call that is at work is to be stopped, not to fail because its tools are gone.
        opened.callback(engine.shell.close)
        opened.push_async_callback(engine.background.close)
        opened.push_async_callback(engine.toolbox.close)
        # A program that serves only its own user shows the first word sooner if it imports the queue's library later.
        queue_after = _LOCAL_QUEUE_AFTER if binds_logins else 0.0
        runs = await opened.enter_async_context(
            run_service(
                engine,
                run_executor(engine, providers, on_ended=metrics.run_ended if metrics else None),
                heartbeat,
                queue_after=queue_after,
                resumes=resumes,
            )
        )
        forwarding = None
        if settings.internal_address is not None:
            # Imported here: a single server does not need the library.
            from toolcrib.wiring.node_forwarder import forwarding_between_nodes

            forwarding = await opened.enter_async_context(
                forwarding_between_nodes(engine, heartbeat, settings.internal_address)
            )
        api = api_services(engine, live, providers, run_service=runs, forwarding=forwarding, metrics=metrics)
        if api.shared_limits is not None:
            opened.push_async_callback(api.shared_limits.close)
        exporter = CheckpointExporter(
            api.verifier, file=settings.audit_checkpoint_file, url=settings.audit_checkpoint_url
        )
        bin_ = TrashCollector(stores.trash, mounts, node=settings.node_name)
        deletion = WorkspaceDeletion(
            stores.deleted_workspaces,
            mounts,
            engine.background.end_all_of,
            data_dir=settings.data_dir,
            node=settings.node_name,
            process_id=heartbeat.id,
            lease=settings.heartbeat_lease_seconds,
            deleted=stores.workspace_deleted,
        )
        jobs = (
            _end_interrupted_calls(engine),
            EndedLogins(api.accounts, api.connection_limits).run(),
            engine.shell.probe(),
            exporter.run(settings.audit_checkpoint_seconds),
            bin_.run(settings.retention_interval_seconds),
            deletion.run(),
            engine.model_slots.run(),
            engine.background.run(),
            sync.recover_found(),
            sync.trees.run(),
        )
        async with _at_work(*jobs):
            yield api


def server_metrics(database: Database) -> "ServerMetrics":
    """Return the metrics of this process.

    Raises:
        Misconfigured: Their library is not installed.
    """
    try:
        from toolcrib.api.server_metrics import ServerMetrics
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise Misconfigured(
            "TOOLCRIB_METRICS_TOKEN is set, but metrics need a package: pip install 'toolcrib[server]'"
        ) from None
    return ServerMetrics(database)


async def _end_interrupted_calls(engine: ToolRuntime) -> None:
    """End the calls of dead processes soon after the start. A periodic job does it again."""
    try:
        await engine.resume_worker.recover()
    except (ToolcribError, OperationalError) as error:
        log.warning("server.calls_not_ended", error=str(error))


def audit_sealer(settings: Settings, stores: Stores) -> AuditSealer:
    """Return the sealer of the audit log."""
    return AuditSealer(stores.audit_seals, audit_seal_key(settings), anchor=settings.audit_anchor)


def audit_verifier(settings: Settings, stores: Stores) -> AuditVerifier:
    """Return the verifier of the audit log's seals."""
    return AuditVerifier(
        stores.audit_seals, audit_seal_key(settings), anchor=settings.audit_anchor, mark=settings.audit_mark
    )


def audit_seal_key(settings: Settings) -> bytes:
    """Return the key of the audit seals."""
    return settings.audit_seal_key.get_secret_value().encode()
