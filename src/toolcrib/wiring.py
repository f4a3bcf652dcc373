"""Creates and connects all parts. The only module that knows every concrete class."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import toolcrib.tools
from toolcrib.api.access_tokens import AccessTokens, LoginLinks, SetupLinks
from toolcrib.api.api_services import ApiServices
from toolcrib.api.auth.connection_auth import EndedLogins
from toolcrib.api.passwords import Passwords
from toolcrib.core.errors import ToolFailed
from toolcrib.core.ids import ProcessId, new_id
from toolcrib.core.paths import Mount
from toolcrib.core.provider_credentials import RequestLimits
from toolcrib.core.runs import Run
from toolcrib.events import EventHub
from toolcrib.events.event_bus import EventPublisher, NullPublisher, WakeSignal
from toolcrib.gate.audit_seals import AuditSealer
from toolcrib.gate.audit_verification import AuditVerifier, CheckpointExporter
from toolcrib.gate.call_pipeline import Gate
from toolcrib.gate.call_recorder import AuditWriter, CallRecorder
from toolcrib.gate.execution_log import ExecutionLog
from toolcrib.gate.paused_calls import PausedCalls
from toolcrib.gate.resume_worker import ResumeWorker
from toolcrib.gate.session_agents import SessionAgents
from toolcrib.gate.workflow_guard import WorkflowGuard
from toolcrib.gate.workspace_deletion import WorkspaceDeletion
from toolcrib.mcp.mcp_toolsets import McpToolsets
from toolcrib.network.network_policy import NetworkPolicy
from toolcrib.nodes.home_keeper import HomeKeeper
from toolcrib.providers.provider_registry import ProviderRegistry, open_providers
from toolcrib.runs.durable import DurableQueue
from toolcrib.runs.loaded_run import CredentialResolver
from toolcrib.runs.model_slots import ModelSlots
from toolcrib.runs.model_turn import ProviderPatience
from toolcrib.runs.periodic_jobs import PeriodicJob, PeriodicJobs
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runs.prompt_context_loader import PromptContextLoader
from toolcrib.runs.run_executor import RunExecutor
from toolcrib.runs.run_service import RunService
from toolcrib.runs.run_worker import RunWorker
from toolcrib.runs.schedules import ScheduleService
from toolcrib.runtime.drain import Drain
from toolcrib.runtime.process_setup import freeze_gc, keep_private
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.command import SandboxCommand
from toolcrib.sandbox.egress_proxy import EgressNetwork
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.sandbox.transaction import StagingDirectory
from toolcrib.settings import Settings
from toolcrib.storage.agents import AgentStore, GrantStore
from toolcrib.storage.api_keys import ApiKeyStore, TicketStore
from toolcrib.storage.audit import AuditSealStore, AuditStore
from toolcrib.storage.background_processes import BackgroundProcessStore
from toolcrib.storage.blobs import BlobStore, RetentionStore
from toolcrib.storage.change_sets import ChangeSetStore
from toolcrib.storage.child_runs import ChildRunLimits, ChildRunStore
from toolcrib.storage.database import Database
from toolcrib.storage.events import ConversationCursorStore
from toolcrib.storage.file_history import SnapshotStore, UndoStore
from toolcrib.storage.files import FileStore
from toolcrib.storage.homes import HomeStore
from toolcrib.storage.invitations import InvitationStore
from toolcrib.storage.mcp_servers import McpServerStore
from toolcrib.storage.model_slots import ModelSlotStore
from toolcrib.storage.model_usage import ModelUsageStore
from toolcrib.storage.packages import PackageStore
from toolcrib.storage.paused_call_claims import PausedCallClaims
from toolcrib.storage.paused_calls import PausedCallStore
from toolcrib.storage.periodic_jobs import PeriodicJobStore
from toolcrib.storage.provider_credentials import Encryptor, ProviderCredentialStore
from toolcrib.storage.quotas import UsageStore, WorkspaceQuota
from toolcrib.storage.regex_search import PostgresRegex
from toolcrib.storage.run_steps import RunStepStore
from toolcrib.storage.schedules import ScheduleStore
from toolcrib.storage.server_processes import ServerProcessStore
from toolcrib.storage.sessions import PlanModeStore, SessionStore
from toolcrib.storage.tool_calls import CallHistoryStore, ToolCallStore
from toolcrib.storage.trash import TrashLimits, TrashStore
from toolcrib.storage.users import UserStore
from toolcrib.storage.virtual_files import VirtualFileStore
from toolcrib.storage.workspaces import DeletedWorkspaceStore, WorkspaceStore
from toolcrib.tools.python_tools import load_python_tools
from toolcrib.tools.shell.background_shell import BackgroundShell
from toolcrib.tools.shell.bash import PRIVATE_HOSTS_SETTING
from toolcrib.tools.shell.shell import Shell
from toolcrib.tools.shell.toolchain import Toolchain
from toolcrib.tools.tool import Tool
from toolcrib.tools.tool_registry import ToolRegistry, discover_tools
from toolcrib.tools.web.web_search import WebSearch
from toolcrib.websearch.brave import Brave, SearchKeys
from toolcrib.websearch.page_fetch import PageFetcher
from toolcrib.websearch.search_engine import FallbackSearch, SearchEngine
from toolcrib.websearch.searxng import SearXNG
from toolcrib.workspace.changes.commit import Committer
from toolcrib.workspace.effects.live_tree import record_tree
from toolcrib.workspace.fs.mounts import VIEWED, MountTable
from toolcrib.workspace.fs.ripgrep import Ripgrep
from toolcrib.workspace.packages.installer import PackageInstaller
from toolcrib.workspace.retention_worker import RetentionWorker, TrashCollector
from toolcrib.workspace.sync.rebuild import TreeRebuilder
from toolcrib.workspace.sync.reconcile import Reconciler, recover_node
from toolcrib.workspace.workspace_services import WorkspaceServices

if TYPE_CHECKING:
    from toolcrib.mcp.mcp_connections import McpConnectionPool


class Stores:
    """The stores that several parts share.

    With ``binds_logins`` browser logins depend on the token secret: no other server on this database can continue them.
    """

    def __init__(self, settings: Settings, database: Database, *, binds_logins: bool = False) -> None:
        self.workspace_deleted = asyncio.Event()
        self.access = ProviderCredentialStore(
            database,
            credentials_lock(settings),
            limits=RequestLimits(settings.model_requests_at_once, settings.model_requests_per_minute),
        )
        self.accounts = UserStore(database, bound_to=settings.jwt_secret.get_secret_value() if binds_logins else "")
        self.agents = AgentStore(database)
        self.audit = AuditStore(database)
        self.audit_seals = AuditSealStore(database)
        self.blobs = BlobStore(database)
        self.calls = ToolCallStore(database)
        self.changes = ChangeSetStore(database)
        self.deleted_workspaces = DeletedWorkspaceStore(database)
        self.files = FileStore(database)
        self.grants = GrantStore(database)
        self.keys = ApiKeyStore(database, most=settings.max_api_keys)
        self.model_usage = ModelUsageStore(database)
        self.paused_call_claims = PausedCallClaims(database)
        self.paused_calls = PausedCallStore(database, most_open=settings.max_open_approvals)
        self.retention = RetentionStore(database)
        self.runs = RunStepStore(database, max_at_work=settings.max_workspace_runs)
        self.sessions = SessionStore(database, most=settings.max_sessions)
        self.schedules = ScheduleStore(database, self.sessions, self.runs, most=settings.max_schedules)
        self.trash = TrashStore(database)
        self.workspaces = WorkspaceStore(database, most=settings.max_workspaces, on_deleted=self.workspace_deleted.set)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRuntime:
    """The gate and its services on one database, without an API."""

    settings: Settings
    process_id: ProcessId
    database: Database
    stores: Stores
    live: EventPublisher
    sandbox: Sandbox
    registry: ToolRegistry
    workspace_services: WorkspaceServices
    executor: Gate
    paused_calls: PausedCalls
    session_agents: SessionAgents
    resume_worker: ResumeWorker
    wake_signal: WakeSignal
    drain: Drain
    model_slots: ModelSlots
    shell: Shell
    background: BackgroundShell
    toolbox: McpToolsets
    search_keys: SearchKeys
    packages: PackageInstaller


def assemble(
    settings: Settings,
    database: Database,
    *,
    tools: Iterable[Tool] = (),
    live: EventPublisher | None = None,
    process_id: ProcessId | None = None,
    sandbox: Sandbox | None = None,
    binds_logins: bool = False,
) -> ToolRuntime:
    """Create the gate and its services.

    Args:
        tools: Added to the built-in tools.
        live: Publishes events to subscribers.
        binds_logins: See ``Stores``.
    """
    live = live or NullPublisher()
    stores = Stores(settings, database, binds_logins=binds_logins)
    keep_private(settings.data_dir)
    mounts = MountTable(settings.data_dir)
    search_keys = SearchKeys(stores.access, url=settings.brave_url)
    search = FallbackSearch(search_engines(settings), seconds=settings.web_search_timeout_seconds)
    sandbox = sandbox or command_sandbox(settings)
    shell = Shell(
        sandbox,
        settings.data_dir / "staging",
        environment=git_author(settings),
        toolchain=Toolchain(settings.tool_dirs, settings.command_path),
        cache_bytes=settings.command_cache_bytes,
    )
    trees = TreeRebuilder(
        stores.files,
        stores.changes,
        mounts,
        node=settings.node_name,
        trash=trash_limits(settings),
        checks_repository=partial(check_repository, sandbox, shell),
    )
    workspace_services = WorkspaceServices(
        files=stores.files,
        blobs=stores.blobs,
        changes=stores.changes,
        mounts=mounts,
        sync=Reconciler(stores.changes, mounts, trees, node=settings.node_name, trash=trash_limits(settings)),
        undoing=UndoStore(database),
        regexes=PostgresRegex(database),
        virtual=VirtualFileStore(database),
        ripgrep=Ripgrep.found(),
        trash=stores.trash,
        since=SnapshotStore(database),
        node=settings.node_name,
        max_file_bytes=settings.max_file_bytes,
        trash_bytes=settings.trash_max_bytes,
    )
    toolbox = McpToolsets(
        McpServerStore(database, credentials_lock(settings)),
        partial(mcp_connections, settings, sandbox, shell),
        shell,
        workspace_services,
    )
    # A call belongs to a process, not to a node: a node may have several processes.
    process_id = process_id or ProcessId(new_id())
    committer = Committer(stores.changes, mounts, node=settings.node_name, trash=trash_limits(settings))
    background = BackgroundShell(
        sandbox,
        shell,
        workspace_services,
        committer,
        BackgroundProcessStore(database),
        stores.audit,
        process=process_id,
        lease=settings.heartbeat_lease_seconds,
    )
    web_search, wake_signal = WebSearch(search, search_keys), WakeSignal()
    child_runs = ChildRunStore(
        database,
        limits=ChildRunLimits(
            depth=settings.max_child_run_depth,
            at_once=settings.max_child_runs_at_once,
            total=settings.max_child_runs,
        ),
        max_at_work=settings.max_workspace_runs,
        on_started=wake_signal.notify,
        most_sessions=settings.max_sessions,
    )
    quota = WorkspaceQuota(database, files=settings.max_workspace_files, bytes=settings.max_workspace_bytes)
    # What tools get with `context.resource`.
    resources = {
        WorkspaceQuota: quota,
        Shell: shell,
        BackgroundShell: background,
        WebSearch: web_search,
        PageFetcher: PageFetcher(settings.allowed_private_web_hosts),
        PlanModeStore: PlanModeStore(database),
        ToolCallStore: stores.calls,
        ChildRunStore: child_runs,
    }
    registry = ToolRegistry(
        [*discover_tools(toolcrib.tools), *tools], resources=resources, added=toolbox, own=web_search
    )
    process, drain = str(process_id), Drain()
    paused_calls = PausedCalls(
        stores.paused_calls,
        stores.blobs,
        registry,
        live,
        process=process,
        timeout=timedelta(seconds=settings.approval_timeout_seconds),
        on_ended=wake_signal.notify_ended,
    )
    executor = Gate(
        registry=registry,
        workspace_services=workspace_services,
        recorder=CallRecorder(
            committer,
            quota,
            AuditWriter(stores.audit),
            stores.calls,
            live,
            process=process,
        ),
        execution_log=ExecutionLog(stores.files, mounts),
        paused_calls=paused_calls,
        workflows=WorkflowGuard(stores.sessions, stores.blobs),
    )
    session_agents = SessionAgents(stores.agents, stores.sessions, stores.runs, registry)
    resume_worker = ResumeWorker(
        executor,
        paused_calls,
        stores.paused_call_claims,
        stores.agents,
        stores.sessions,
        session_agents,
        stores.calls,
        node=settings.node_name,
        process_id=process_id,
        lease=settings.heartbeat_lease_seconds,
        max_attempts=settings.max_attempts,
        drain=drain,
    )
    return ToolRuntime(
        settings=settings,
        process_id=process_id,
        database=database,
        stores=stores,
        live=live,
        sandbox=sandbox,
        registry=registry,
        workspace_services=workspace_services,
        executor=executor,
        paused_calls=paused_calls,
        session_agents=session_agents,
        resume_worker=resume_worker,
        wake_signal=wake_signal,
        drain=drain,
        model_slots=ModelSlots(
            ModelSlotStore(database), wake_signal, process_id, lease=settings.heartbeat_lease_seconds
        ),
        shell=shell,
        background=background,
        toolbox=toolbox,
        search_keys=search_keys,
        packages=PackageInstaller(PackageStore(database), stores.files, mounts, node=settings.node_name),
    )


def run_executor(engine: ToolRuntime, providers: ProviderRegistry) -> RunExecutor:
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
    )


# How many runs one process executes at a time. Most of them wait for their model.
_RUNS_AT_ONCE = 500
_LOCAL_QUEUE_AFTER = 5.0


@asynccontextmanager
async def run_service(
    engine: ToolRuntime,
    execute: Callable[[Run], Awaitable[None]],
    heartbeat: ProcessHeartbeat,
    *,
    queue_after: float = 0.0,
) -> AsyncIterator[RunService]:
    """Start a worker that gives each run to ``execute``, and provide the run service in front of it.

    Approved calls are resumed as well.

    Args:
        queue_after: Open the durable queue only after this many seconds. Until then, what becomes ready or is decided
            in this process starts, and what a process of this node left behind.
    """
    settings = engine.settings
    runner = RunWorker(
        engine.stores.runs, execute, heartbeat, node=settings.node_name, slots=_RUNS_AT_ONCE, drain=engine.drain
    )
    periodic = periodic_jobs(engine)
    queue = DurableQueue(
        settings.system_url,
        node=settings.node_name,
        process_id=heartbeat.id,
        slots=_RUNS_AT_ONCE,
        advance=runner.execute,
        start_queued=engine.stores.runs.start_queued,
        resume=engine.resume_worker.execute,
        fire=schedule_service(engine).fire,
        periodic=periodic,
    )
    processes = ServerProcessStore(engine.database)
    queueing = asyncio.create_task(queue.run(processes, heartbeat, after=queue_after))
    working = asyncio.create_task(runner.run())

    async def start_taken() -> None:
        await recover_node(engine.stores.files, engine.workspace_services.sync, node=settings.node_name)
        await runner.start_due()
        await engine.resume_worker.start_due()

    keeper = HomeKeeper(
        HomeStore(engine.database),
        processes,
        heartbeat,
        queue,
        node=settings.node_name,
        taken=start_taken,
        leaving=partial(record_tree, engine.workspace_services),
        stored=engine.workspace_services.mounts.stored,
        discard=engine.workspace_services.sync.trees.discard,
    )
    keeping = asyncio.create_task(keeper.run()) if settings.take_over_homes and not queue_after else None

    async def finish() -> None:
        # The queue first, so that what the worker releases does not come back to this process.
        await _stop(queueing)
        await runner.drain()

    engine.drain.add(finish)
    engine.wake_signal.start_with(runner.start, engine.resume_worker.start)
    try:
        if not queue_after:
            await queue.opened()
        await runner.start_due()
        await engine.resume_worker.start_due()
        yield RunService(engine.stores.runs, engine.wake_signal, engine.live, runner=runner)
    finally:
        if keeping is not None:
            await _stop(keeping)
        await _stop(queueing)
        await periodic.stop()
        await engine.resume_worker.stop()
        await _stop(working)


async def _stop(job: asyncio.Task[None]) -> None:
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)


@asynccontextmanager
async def _at_work(*jobs: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run jobs while the context lasts."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# Sub-minute, because a call whose session was deleted, or whose server died, ends with this job.
_OVERDUE_CALLS_SECONDS = 10.0


def periodic_jobs(engine: ToolRuntime) -> PeriodicJobs:
    """Return what one process does for the whole installation."""
    settings, days = engine.settings, engine.settings.version_retention_days
    collector = RetentionWorker(engine.stores.retention, keep=None if days is None else timedelta(days=days))

    async def end_overdue_calls() -> None:
        await engine.paused_calls.expire_all()
        await engine.resume_worker.recover()

    jobs = (
        PeriodicJob("end_overdue_calls", _OVERDUE_CALLS_SECONDS, end_overdue_calls),
        PeriodicJob("collect_garbage", settings.retention_interval_seconds, collector.run_once),
    )
    return PeriodicJobs(PeriodicJobStore(engine.database), jobs)


def schedule_service(engine: ToolRuntime) -> ScheduleService:
    """Return the service that fires schedules."""
    return ScheduleService(engine.stores.schedules, engine.wake_signal, engine.live)


def mcp_connections(settings: Settings, sandbox: Sandbox, shell: Shell) -> "McpConnectionPool":
    """Return the connections to MCP servers; created on first use, because the MCP library takes a second to load."""
    from toolcrib.mcp.mcp_transports import StdioPrograms, open_connections

    freeze_gc()
    private_hosts = settings.allowed_private_mcp_hosts
    staging = StagingDirectory(settings.data_dir / "staging")
    programs = StdioPrograms(
        sandbox,
        staging,
        settings.data_dir / "mcp",
        programs=settings.mcp_program_dirs,
        private_hosts=private_hosts,
        shell=shell,
    )
    return open_connections(programs, private_hosts=private_hosts, at_end=staging.close)


_FSCK_SECONDS = 120.0


async def check_repository(sandbox: Sandbox, shell: Shell, root: Path, folder: str) -> str | None:
    """Check a git repository in the sandbox, because its configuration can start programs. Returns what is wrong."""
    view_of_tree = ViewMount(Mount.PROJECT, root, VIEWED[Mount.PROJECT])
    git = "git -c safe.directory=* fsck --no-dangling --no-progress 2>&1"
    command = SandboxCommand(git, cwd=f"{VIEWED[Mount.PROJECT]}/{folder}", env=shell.environment, seconds=_FSCK_SECONDS)
    try:
        async with sandbox.transaction([view_of_tree], shell.staging) as view:
            result = await view.run(command)
    except ToolFailed as error:
        return f"not checked with `git fsck`: {error.message}"
    if result.exit_code == 0:
        return None
    return f"`git fsck` reports: {' '.join(result.output.text.split())[:500] or 'nothing, but failed'}"


def credentials_lock(settings: Settings) -> Encryptor:
    """Return the encryptor of people's keys: with its own key or, if none is set, one derived from the token secret."""
    key = settings.credentials_encryption_key or settings.jwt_secret
    previous = settings.credentials_previous_encryption_key
    return Encryptor(key.get_secret_value(), previous=previous.get_secret_value() if previous else None)


def command_sandbox(settings: Settings) -> Sandbox:
    """Return the sandbox of commands. Granted hosts have public addresses, or are listed by the operator."""
    private = NetworkPolicy(settings.allowed_private_command_hosts, setting=PRIVATE_HOSTS_SETTING)
    return Sandbox(network=EgressNetwork(permits=private.permits))


def git_author(settings: Settings) -> dict[str, str]:
    """Return the variables that name the author of the commits that commands make."""
    author = {"NAME": settings.git_author_name, "EMAIL": settings.git_author_email}
    return {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in author.items() if value}


def search_engines(settings: Settings) -> tuple[SearchEngine, ...]:
    """Return the configured engines, in the order of their use. A new engine is added here."""
    engines: list[SearchEngine] = []
    if settings.searxng_url:
        engines.append(SearXNG(settings.searxng_url))
    if settings.brave_api_key:
        engines.append(Brave(settings.brave_api_key, url=settings.brave_url))
    return tuple(engines)


def api_services(
    engine: ToolRuntime,
    live: EventHub,
    providers: ProviderRegistry,
    *,
    run_service: RunService | None = None,
    passwords: Passwords | None = None,
) -> ApiServices:
    """Create what the routes use.

    Args:
        run_service: Without one, runs are stored for the workers of other processes.
        passwords: By default with the usual cost of a hash.
    """
    settings, stores = engine.settings, engine.stores
    secret = settings.jwt_secret.get_secret_value()
    return ApiServices(
        settings=settings,
        database=engine.database,
        accounts=stores.accounts,
        keys=stores.keys,
        workspaces=stores.workspaces,
        agents=stores.agents,
        packages=engine.packages,
        files=stores.files,
        audit=stores.audit,
        verifier=audit_verifier(settings, stores),
        usage=UsageStore(engine.database),
        model_usage=engine.stores.model_usage,
        past_calls=CallHistoryStore(engine.database),
        sandbox=engine.sandbox,
        calls=stores.calls,
        sessions=stores.sessions,
        conversation_cursors=ConversationCursorStore(engine.database),
        tickets=TicketStore(engine.database),
        live=live,
        executor=engine.executor,
        registry=engine.registry,
        toolbox=engine.toolbox,
        paused_calls=engine.paused_calls,
        session_agents=engine.session_agents,
        grants=stores.grants,
        invitations=InvitationStore(engine.database),
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
    )


@asynccontextmanager
async def services(
    settings: Settings, *, tools: Iterable[Tool] = (), binds_logins: bool = False
) -> AsyncIterator[ApiServices]:
    """Open everything that the routes use: the database, after recovery, and all background workers."""
    settings.reject_weak_secrets()
    tools = (*tools, *await asyncio.to_thread(load_python_tools, settings.tools_module))
    process_id = ProcessId(new_id())
    async with AsyncExitStack() as opened:
        database = await opened.enter_async_context(
            Database.open(
                settings.database_url, settings.system_url, pool_size=settings.pool_size, process_id=process_id
            )
        )
        live = await opened.enter_async_context(
            EventHub.open(database, redis_url=settings.redis_url, node=settings.node_name)
        )
        providers = await opened.enter_async_context(
            open_providers(private_hosts=settings.allowed_private_model_hosts, proxy=settings.model_proxy)
        )
        heartbeat = opened.enter_context(
            ProcessHeartbeat.start(
                settings.system_url,
                node=settings.node_name,
                lease=settings.heartbeat_lease_seconds,
                process_id=process_id,
            )
        )
        engine = assemble(settings, database, tools=tools, live=live, process_id=process_id, binds_logins=binds_logins)
        stores, mounts = engine.stores, engine.workspace_services.mounts
        await recover_node(stores.files, engine.workspace_services.sync, node=settings.node_name)
        await engine.resume_worker.recover()
        # It ends after everything that writes to the audit log, with a last seal.
        await opened.enter_async_context(
            _at_work(audit_sealer(settings, stores).run(settings.audit_seal_interval_seconds))
        )
        # A program that serves only its own user shows the first word sooner if it imports the queue's library later.
        queue_after = _LOCAL_QUEUE_AFTER if binds_logins else 0.0
        runs = await opened.enter_async_context(
            run_service(engine, run_executor(engine, providers), heartbeat, queue_after=queue_after)
        )
        api = api_services(engine, live, providers, run_service=runs)
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
            EndedLogins(api.accounts, api.connection_limits).run(),
            engine.shell.probe(),
            exporter.run(settings.audit_checkpoint_seconds),
            bin_.run(settings.retention_interval_seconds),
            deletion.run(),
            engine.model_slots.run(),
            engine.background.run(),
            engine.workspace_services.sync.trees.run(),
        )
        try:
            async with _at_work(*jobs):
                yield api
        finally:
            await engine.toolbox.close()
            await engine.background.close()
            engine.shell.close()


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


def trash_limits(settings: Settings) -> TrashLimits:
    """Return the limits of the trash."""
    return TrashLimits(most_bytes=settings.trash_max_bytes, keep=timedelta(days=settings.trash_retention_days))
