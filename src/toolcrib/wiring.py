"""Creates and connects all parts. The only module that knows every concrete class."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import toolcrib.tools
from toolcrib.api.access_tokens import AccessTokens, LoginLinks, SetupLinks
from toolcrib.api.api_services import ApiServices
from toolcrib.api.connection_limits import ConnectionLimits
from toolcrib.api.ended_logins import EndedLogins
from toolcrib.api.passwords import Passwords
from toolcrib.core.ids import ProcessId, new_id
from toolcrib.events import EventHub
from toolcrib.events.event_bus import EventPublisher, NullPublisher, WakeSignal
from toolcrib.gate.approvals import Approvals
from toolcrib.gate.audit_seals import AuditSealer
from toolcrib.gate.audit_verification import AuditVerifier
from toolcrib.gate.call_pipeline import Gate
from toolcrib.gate.call_recorder import AuditWriter, CallRecorder
from toolcrib.gate.checkpoint_export import CheckpointExporter
from toolcrib.gate.execution_log import ExecutionLog
from toolcrib.gate.questions import Questions
from toolcrib.gate.resume_worker import ResumeWorker
from toolcrib.gate.search_keys import SearchKeys
from toolcrib.gate.workflow_guard import WorkflowGuard
from toolcrib.gate.workspace_deletion import WorkspaceDeletion
from toolcrib.mcp.mcp_toolsets import McpToolsets
from toolcrib.providers.provider_registry import ProviderRegistry, open_providers
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runs.run_executor import RunExecutor
from toolcrib.runs.run_loader import CredentialResolver
from toolcrib.runs.run_service import RunService
from toolcrib.runs.run_worker import RunWorker
from toolcrib.runtime.private_directory import keep_private
from toolcrib.runtime.process_setup import freeze_gc
from toolcrib.sandbox.background_process import BackgroundSandbox
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.sandbox.staging_directory import StagingDirectory
from toolcrib.settings import Settings
from toolcrib.storage.agents import AgentStore, GrantStore
from toolcrib.storage.api_keys import ApiKeyStore
from toolcrib.storage.approvals import ApprovalStore as ApprovalRows
from toolcrib.storage.audit import AuditSealStore, AuditStore
from toolcrib.storage.background_processes import BackgroundProcessStore
from toolcrib.storage.blobs import BlobStore, RetentionStore
from toolcrib.storage.change_sets import ChangeSetStore
from toolcrib.storage.database import Database
from toolcrib.storage.deleted_workspaces import DeletedWorkspaceStore
from toolcrib.storage.file_history import SnapshotStore, UndoStore
from toolcrib.storage.files import FileStore
from toolcrib.storage.invitations import InvitationStore
from toolcrib.storage.mcp_servers import McpServerStore
from toolcrib.storage.packages import PackageStore
from toolcrib.storage.provider_credentials import Encryptor, ProviderCredentialStore
from toolcrib.storage.questions import QuestionStore as QuestionRows
from toolcrib.storage.regex_search import PostgresRegex
from toolcrib.storage.runs import RunStore
from toolcrib.storage.server_processes import ServerProcessStore
from toolcrib.storage.sessions import ConversationCursorStore, PlanModeStore, SessionStore
from toolcrib.storage.tool_calls import CallHistoryStore, ToolCallStore
from toolcrib.storage.trash import TrashLimits, TrashStore
from toolcrib.storage.users import TicketStore, UserStore
from toolcrib.storage.virtual_files import VirtualFileStore
from toolcrib.storage.workspace_quota import WorkspaceQuota
from toolcrib.storage.workspaces import UsageStore, WorkspaceStore
from toolcrib.tools.people.exit_plan_mode import exit_plan_mode_with
from toolcrib.tools.read_result import read_result_with
from toolcrib.tools.shell.background_shell import BackgroundShell
from toolcrib.tools.shell.bash import bash_with
from toolcrib.tools.shell.bash_input import bash_input_with
from toolcrib.tools.shell.bash_list import bash_list_with
from toolcrib.tools.shell.bash_output import bash_output_with
from toolcrib.tools.shell.bash_start import bash_start_with
from toolcrib.tools.shell.bash_stop import bash_stop_with
from toolcrib.tools.shell.shell import Shell
from toolcrib.tools.tool import Tool
from toolcrib.tools.tool_registry import ToolRegistry, discover_tools
from toolcrib.tools.web.web_search import web_search_with
from toolcrib.websearch.brave import Brave
from toolcrib.websearch.search_engine import FallbackSearch, SearchEngine
from toolcrib.websearch.searxng import SearXNG
from toolcrib.workspace.changes.commit import Committer
from toolcrib.workspace.fs.mounts import MountTable
from toolcrib.workspace.fs.ripgrep import Ripgrep
from toolcrib.workspace.packages.installer import PackageInstaller
from toolcrib.workspace.retention_worker import RetentionWorker, TrashCollector
from toolcrib.workspace.sync.node_recovery import recover
from toolcrib.workspace.sync.reconcile import Reconciler
from toolcrib.workspace.tree import WorkspaceServices

if TYPE_CHECKING:
    from toolcrib.mcp.mcp_connections import McpConnectionPool


@dataclass(frozen=True, slots=True)
class ToolRuntime:
    """The gate and its services on one database, without an API."""

    registry: ToolRegistry
    workspace_services: WorkspaceServices
    executor: Gate
    approvals: Approvals
    questions: Questions
    waiting: ResumeWorker
    wake_signal: WakeSignal
    shell: Shell
    background: BackgroundShell
    toolbox: McpToolsets
    search_keys: SearchKeys


def assemble(
    settings: Settings,
    database: Database,
    *,
    tools: Iterable[Tool] = (),
    live: EventPublisher | None = None,
    process_id: ProcessId | None = None,
    sandbox: Sandbox | None = None,
) -> ToolRuntime:
    """Create the gate and its services.

    Args:
        tools: Added to the built-in tools.
        live: Publishes events to subscribers.
    """
    live = live or NullPublisher()
    files, changes, blobs = FileStore(database), ChangeSetStore(database), BlobStore(database)
    keep_private(settings.data_dir)
    mounts = MountTable(settings.data_dir)
    search_keys = SearchKeys(ProviderCredentialStore(database, credentials_lock(settings)), url=settings.brave_url)
    search = web_search_with(
        FallbackSearch(search_engines(settings), seconds=settings.web_search_timeout_seconds), search_keys
    )
    plan_exit = exit_plan_mode_with(PlanModeStore(database))
    sandbox = sandbox or Sandbox()
    shell = Shell(sandbox, settings.data_dir / "staging")
    toolbox = McpToolsets(
        McpServerStore(database, credentials_lock(settings)), partial(mcp_connections, settings, sandbox)
    )
    workspace_services = WorkspaceServices(
        files=files,
        blobs=blobs,
        changes=changes,
        mounts=mounts,
        sync=Reconciler(changes, mounts, node=settings.node_name, trash=trash_limits(settings)),
        undoing=UndoStore(database),
        regexes=PostgresRegex(database),
        virtual=VirtualFileStore(database),
        ripgrep=Ripgrep.found(),
        trash=TrashStore(database),
        since=SnapshotStore(database),
        node=settings.node_name,
        max_file_bytes=settings.max_file_bytes,
        trash_bytes=settings.trash_max_bytes,
    )
    # A call belongs to a process, not to a node: a node may have several processes.
    process_id = process_id or ProcessId(new_id())
    committer = Committer(changes, mounts, node=settings.node_name, trash=trash_limits(settings))
    background = BackgroundShell(
        sandbox,
        shell,
        workspace_services,
        committer,
        BackgroundProcessStore(database),
        AuditStore(database),
        process=process_id,
        lease=settings.heartbeat_lease_seconds,
    )
    commands = [bash_with(shell), *background_tools(background)]
    calls = ToolCallStore(database)
    ours = [*discover_tools(toolcrib.tools), search, *commands, plan_exit, read_result_with(calls)]
    registry = ToolRegistry([*ours, *tools], added=toolbox, own=search_keys)
    process, patience, wake_signal = str(process_id), timedelta(seconds=settings.approval_timeout_seconds), WakeSignal()
    approval_rows = ApprovalRows(database, most_open=settings.max_open_approvals)
    approvals = Approvals(
        approval_rows, blobs, registry, live, process=process, patience=patience, decided=wake_signal.notify
    )
    questions = Questions(QuestionRows(database), live, process=process, patience=patience, decided=wake_signal.notify)
    executor = Gate(
        registry=registry,
        workspace_services=workspace_services,
        recorder=CallRecorder(
            committer,
            WorkspaceQuota(database, files=settings.max_workspace_files, bytes=settings.max_workspace_bytes),
            AuditWriter(AuditStore(database)),
            calls,
            live,
        ),
        journal=ExecutionLog(files, mounts),
        approvals=approvals,
        questions=questions,
        workflows=WorkflowGuard(SessionStore(database), blobs),
        process=process,
    )
    agents = AgentStore(database)
    waiting = ResumeWorker(
        executor,
        approvals,
        questions,
        approval_rows,
        agents,
        calls,
        node=settings.node_name,
        process=process,
        decided=wake_signal.subscribe(),
        lease=settings.heartbeat_lease_seconds,
        max_attempts=settings.max_attempts,
    )
    return ToolRuntime(
        registry,
        workspace_services,
        executor,
        approvals,
        questions,
        waiting,
        wake_signal,
        shell,
        background,
        toolbox,
        search_keys,
    )


def background_tools(shell: BackgroundShell) -> list[Tool]:
    """Return the tools that start and control background processes."""
    makers = (bash_start_with, bash_output_with, bash_input_with, bash_stop_with, bash_list_with)
    return [make(shell) for make in makers]


def advancing(
    settings: Settings,
    database: Database,
    engine: ToolRuntime,
    providers: ProviderRegistry,
    live: EventPublisher | None = None,
) -> RunExecutor:
    """Return the executor of runs, with the models for which people have credentials."""
    return RunExecutor(
        runs=RunStore(database),
        sessions=SessionStore(database, most=settings.max_sessions),
        agents=AgentStore(database),
        access=CredentialResolver(ProviderCredentialStore(database, credentials_lock(settings))),
        providers=providers,
        registry=engine.registry,
        executor=engine.executor,
        approvals=engine.approvals,
        approval_rows=ApprovalRows(database),
        questions=engine.questions,
        live=live or NullPublisher(),
        max_attempts=settings.max_attempts,
    )


@asynccontextmanager
async def run_service(
    settings: Settings,
    database: Database,
    engine: ToolRuntime,
    providers: ProviderRegistry,
    heartbeat: ProcessHeartbeat,
    live: EventPublisher | None = None,
) -> AsyncIterator[RunService]:
    """Start a run worker and provide the run service in front of it."""
    runs = RunStore(database)
    advance = advancing(settings, database, engine, providers, live)
    runner = RunWorker(
        runs,
        ServerProcessStore(database),
        advance,
        heartbeat,
        node=settings.node_name,
        decided=engine.wake_signal.subscribe(),
    )
    running = asyncio.create_task(runner.run())
    try:
        yield RunService(runs, engine.wake_signal, live or NullPublisher(), runner=runner)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def mcp_connections(settings: Settings, sandbox: Sandbox) -> "McpConnectionPool":
    """Return the connections to MCP servers; created on first use, because the MCP library takes a second to load."""
    from toolcrib.mcp.mcp_transports import StdioPrograms, open_connections

    freeze_gc()
    staging = StagingDirectory(settings.data_dir / "staging")
    background = BackgroundSandbox(sandbox, staging.folder)
    programs = StdioPrograms(background, settings.data_dir / "mcp", programs=settings.mcp_program_dirs)
    return open_connections(programs, private_hosts=settings.allowed_private_mcp_hosts, at_end=staging.close)


def credentials_lock(settings: Settings) -> Encryptor:
    """Return the encryptor of people's keys: with its own key or, if none is set, one derived from the token secret."""
    key = settings.credentials_encryption_key or settings.jwt_secret
    previous = settings.credentials_previous_encryption_key
    return Encryptor(key.get_secret_value(), previous=previous.get_secret_value() if previous else None)


def search_engines(settings: Settings) -> tuple[SearchEngine, ...]:
    """Return the configured engines, in the order of their use. A new engine is added here."""
    engines: list[SearchEngine] = []
    if settings.searxng_url:
        engines.append(SearXNG(settings.searxng_url))
    if settings.brave_api_key:
        engines.append(Brave(settings.brave_api_key, url=settings.brave_url))
    return tuple(engines)


@asynccontextmanager
async def services(
    settings: Settings, *, tools: Iterable[Tool] = (), binds_logins: bool = False
) -> AsyncIterator[ApiServices]:
    """Open everything that the routes use: the database, after recovery, and all background workers.

    With ``binds_logins`` browser logins depend on the token secret: no other server on this database can continue them.
    """
    settings.reject_weak_secrets()
    async with AsyncExitStack() as opened:
        database = await opened.enter_async_context(
            Database.open(settings.database_url, settings.system_url, pool_size=settings.pool_size)
        )
        live = await opened.enter_async_context(
            EventHub.open(database, redis_url=settings.redis_url, node=settings.node_name)
        )
        providers = await opened.enter_async_context(
            open_providers(private_hosts=settings.allowed_private_model_hosts, proxy=settings.model_proxy)
        )
        heartbeat = opened.enter_context(
            ProcessHeartbeat.start(settings.system_url, node=settings.node_name, lease=settings.heartbeat_lease_seconds)
        )
        sandbox = Sandbox()
        engine = assemble(settings, database, tools=tools, live=live, process_id=heartbeat.id, sandbox=sandbox)
        await recover(engine.workspace_services.files, engine.workspace_services.sync, node=settings.node_name)
        await engine.waiting.recover()
        sealing = AuditSealStore(database)
        sealer = AuditSealer(sealing, audit_seal_key(settings), anchor=settings.audit_anchor)
        verifier = AuditVerifier(
            sealing, audit_seal_key(settings), anchor=settings.audit_anchor, mark=settings.audit_mark
        )
        exporter = CheckpointExporter(verifier, file=settings.audit_checkpoint_file, url=settings.audit_checkpoint_url)
        bin_ = TrashCollector(
            engine.workspace_services.trash, engine.workspace_services.mounts, node=settings.node_name
        )
        collector = RetentionWorker(RetentionStore(database), keep=keeping(settings), bin=bin_)
        deleted = asyncio.Event()
        deletion = WorkspaceDeletion(
            DeletedWorkspaceStore(database),
            engine.workspace_services.mounts,
            engine.background.end_all_of,
            data_dir=settings.data_dir,
            node=settings.node_name,
            process=str(heartbeat.id),
            lease=settings.heartbeat_lease_seconds,
            deleted=deleted,
        )
        front = await opened.enter_async_context(run_service(settings, database, engine, providers, heartbeat, live))
        access = ProviderCredentialStore(database, credentials_lock(settings))
        accounts = UserStore(database, bound_to=settings.jwt_secret.get_secret_value() if binds_logins else "")
        connection_limits = ConnectionLimits()
        at_work = [
            asyncio.create_task(EndedLogins(accounts, connection_limits).run()),
            asyncio.create_task(engine.shell.probe()),
            asyncio.create_task(sealer.run(settings.audit_seal_interval_seconds)),
            asyncio.create_task(exporter.run(settings.audit_checkpoint_seconds)),
            asyncio.create_task(collector.run(settings.retention_interval_seconds)),
            asyncio.create_task(deletion.run()),
            asyncio.create_task(engine.waiting.run()),
            asyncio.create_task(engine.background.run()),
        ]
        try:
            yield ApiServices(
                settings=settings,
                database=database,
                accounts=accounts,
                keys=ApiKeyStore(database, most=settings.max_api_keys),
                workspaces=WorkspaceStore(database, most=settings.max_workspaces, on_deleted=deleted.set),
                agents=AgentStore(database),
                packages=PackageInstaller(
                    PackageStore(database),
                    engine.workspace_services.files,
                    engine.workspace_services.mounts,
                    node=settings.node_name,
                ),
                files=engine.workspace_services.files,
                audit=AuditStore(database),
                verifier=verifier,
                usage=UsageStore(database),
                past_calls=CallHistoryStore(database),
                sandbox=sandbox,
                calls=ToolCallStore(database),
                sessions=SessionStore(database, most=settings.max_sessions),
                conversation_cursors=ConversationCursorStore(database),
                tickets=TicketStore(database),
                live=live,
                executor=engine.executor,
                registry=engine.registry,
                toolbox=engine.toolbox,
                approvals=engine.approvals,
                questions=engine.questions,
                grants=GrantStore(database),
                invitations=InvitationStore(database),
                run_service=front,
                access=access,
                model_access=CredentialResolver(access),
                search_keys=engine.search_keys,
                providers=providers,
                passwords=Passwords(),
                tokens=AccessTokens.from_settings(settings),
                login_links=LoginLinks(settings.jwt_secret.get_secret_value(), node=settings.node_name),
                setup_links=SetupLinks(settings.jwt_secret.get_secret_value()),
                connection_limits=connection_limits,
            )
        finally:
            for task in at_work:
                task.cancel()
            await asyncio.gather(*at_work, return_exceptions=True)
            await engine.toolbox.close()
            await engine.background.close()
            engine.shell.close()


def audit_seal_key(settings: Settings) -> bytes:
    """Return the key of the audit seals."""
    return settings.audit_seal_key.get_secret_value().encode()


def keeping(settings: Settings) -> timedelta | None:
    """Return how long versions are kept; None means forever."""
    return None if settings.version_retention_days is None else timedelta(days=settings.version_retention_days)


def trash_limits(settings: Settings) -> TrashLimits:
    """Return the limits of the trash."""
    return TrashLimits(most_bytes=settings.trash_max_bytes, keep=timedelta(days=settings.trash_retention_days))
