"""Creates and connects the gate and its services on one database."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import toolcrib.tools
from toolcrib.core.errors import ToolFailed
from toolcrib.core.ids import ProcessId, new_id
from toolcrib.core.paths import Mount
from toolcrib.core.provider_credentials import RequestLimits
from toolcrib.events.event_bus import EventPublisher, NullPublisher, WakeSignal
from toolcrib.gate.call_observer import OnCallEnded
from toolcrib.gate.call_pipeline import Gate
from toolcrib.gate.call_recorder import AuditWriter, CallRecorder
from toolcrib.gate.execution_log import ExecutionLog
from toolcrib.gate.lost_calls import LostCalls
from toolcrib.gate.paused_calls import PausedCalls
from toolcrib.gate.resume_worker import ResumeWorker
from toolcrib.gate.session_agents import SessionAgents
from toolcrib.gate.workflow_guard import WorkflowGuard
from toolcrib.mcp.mcp_toolsets import McpToolsets
from toolcrib.network.network_policy import NetworkPolicy
from toolcrib.runs.model_slots import ModelSlots
from toolcrib.runtime.disk_identity import DiskIdentity
from toolcrib.runtime.drain import Drain
from toolcrib.runtime.process_setup import freeze_gc, keep_private
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.command import SandboxCommand
from toolcrib.sandbox.egress_proxy import EgressNetwork
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.sandbox.transaction import StagingDirectory
from toolcrib.settings import Settings
from toolcrib.storage.agents import AgentStore, GrantStore
from toolcrib.storage.api_keys import ApiKeyStore
from toolcrib.storage.audit import AuditSealStore, AuditStore
from toolcrib.storage.background_processes import BackgroundProcessStore
from toolcrib.storage.blobs import BlobStore, RetentionStore
from toolcrib.storage.change_sets import ChangeSetStore
from toolcrib.storage.child_runs import ChildRunLimits, ChildRunStore
from toolcrib.storage.database import Database
from toolcrib.storage.file_history import SnapshotStore, UndoStore
from toolcrib.storage.files import FileStore
from toolcrib.storage.mcp_servers import McpServerStore
from toolcrib.storage.model_slots import ModelSlotStore
from toolcrib.storage.model_usage import ModelUsageStore
from toolcrib.storage.packages import PackageStore
from toolcrib.storage.paused_call_claims import PausedCallClaims
from toolcrib.storage.paused_calls import PausedCallStore
from toolcrib.storage.provider_credentials import Encryptor, ProviderCredentialStore
from toolcrib.storage.quotas import WorkspaceQuota
from toolcrib.storage.regex_search import PostgresRegex
from toolcrib.storage.run_steps import RunStepStore
from toolcrib.storage.schedules import ScheduleStore
from toolcrib.storage.session_forks import SessionForkStore
from toolcrib.storage.sessions import PlanModeStore, SessionStore
from toolcrib.storage.tool_calls import ToolCallStore
from toolcrib.storage.trash import TrashLimits, TrashStore
from toolcrib.storage.users import UserStore
from toolcrib.storage.virtual_files import VirtualFileStore
from toolcrib.storage.workspaces import DeletedWorkspaceStore, WorkspaceStore
from toolcrib.tools.shell.background_shell import BackgroundShell
from toolcrib.tools.shell.bash import PRIVATE_HOSTS_SETTING
from toolcrib.tools.shell.git_view import PersonalGitSettings
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
from toolcrib.workspace.fs.aside import AsideDirectory
from toolcrib.workspace.fs.mounts import VIEWED, MountTable
from toolcrib.workspace.fs.ripgrep import Ripgrep
from toolcrib.workspace.packages.installer import PackageInstaller
from toolcrib.workspace.sync.rebuild import TreeRebuilder
from toolcrib.workspace.sync.reconcile import Reconciler
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
        self.session_forks = SessionForkStore(database, self.sessions, self.runs)
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
    on_call_ended: OnCallEnded | None = None,
) -> ToolRuntime:
    """Create the gate and its services.

    Args:
        tools: Added to the built-in tools.
        live: Publishes events to subscribers.
        binds_logins: See ``Stores``.
        on_call_ended: Called after each call, however it ended.
    """
    live = live or NullPublisher()
    stores = Stores(settings, database, binds_logins=binds_logins)
    keep_private(settings.data_dir)
    aside = AsideDirectory(settings.data_dir, keep=timedelta(days=settings.trash_retention_days))
    mounts = MountTable(settings.data_dir, aside=aside)
    search_keys = SearchKeys(stores.access, url=settings.brave_url)
    search = FallbackSearch(search_engines(settings), seconds=settings.web_search_timeout_seconds)
    sandbox = sandbox or command_sandbox(settings)
    shell = Shell(
        sandbox,
        settings.data_dir / "staging",
        environment=git_author(settings),
        toolchain=Toolchain(settings.tool_dirs, settings.command_path),
        git_settings=PersonalGitSettings(settings.git_config_files),
        cache_bytes=settings.command_cache_bytes,
    )
    trees = TreeRebuilder(
        stores.files,
        stores.changes,
        mounts,
        node=settings.node_name,
        trash=trash_limits(settings),
        disk_id=None if (disk := DiskIdentity.load(settings.data_dir)) is None else disk.disk_id,
        checks_repository=partial(check_repository, sandbox, shell),
        # Half of the connections of the system role.
        recoveries=max(1, settings.pool_size // 8),
    )
    workspace_services = WorkspaceServices(
        files=stores.files,
        blobs=stores.blobs,
        changes=stores.changes,
        mounts=mounts,
        sync=Reconciler(stores.changes, mounts, trees, node=settings.node_name),
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
    committer = Committer(stores.changes, mounts, trees, node=settings.node_name, trash=trash_limits(settings))
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
        on_ended=on_call_ended,
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
        recovered=trees.recovery.recovered,
    )
    drain.add(trees.recovery.stop)
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
        packages=PackageInstaller(PackageStore(database), stores.files, mounts, trees, node=settings.node_name),
    )


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
    return Sandbox(staging=settings.data_dir / "staging", network=EgressNetwork(permits=private.permits))


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


def trash_limits(settings: Settings) -> TrashLimits:
    """Return the limits of the trash."""
    return TrashLimits(most_bytes=settings.trash_max_bytes, keep=timedelta(days=settings.trash_retention_days))


def lost_calls(engine: ToolRuntime) -> LostCalls:
    """Return what settles calls whose answer was lost."""
    return LostCalls(
        engine.registry, engine.stores.calls, engine.paused_calls, engine.live, process=str(engine.process_id)
    )
