"""Puts the parts together. The only place that knows every concrete class."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import toolcrib.tools
from toolcrib.domain.ids import ProcessId, new_id
from toolcrib.domain.memory import spare_what_is_loaded
from toolcrib.engine.approvals import Approvals
from toolcrib.engine.bell import Bell
from toolcrib.engine.book import Book
from toolcrib.engine.collector import Bin, Collector
from toolcrib.engine.executor import Executor
from toolcrib.engine.journal import Journal
from toolcrib.engine.live import Live
from toolcrib.engine.questions import Questions
from toolcrib.engine.recorder import Recorder
from toolcrib.engine.recovery import recover
from toolcrib.engine.runs.access import ModelAccess
from toolcrib.engine.runs.advance import Advance
from toolcrib.engine.runs.desk import Desk
from toolcrib.engine.runs.presence import Presence
from toolcrib.engine.runs.runner import Runner
from toolcrib.engine.seals import Sealer, Verifier
from toolcrib.engine.waiting import Waiting
from toolcrib.engine.watchers import Nobody, Watchers
from toolcrib.mcp.toolbox import Toolbox
from toolcrib.providers.registry import Providers, open_providers
from toolcrib.sandbox.background import Background
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.server.login_links import LoginLinks
from toolcrib.server.passwords import Passwords
from toolcrib.server.services import Services
from toolcrib.server.tokens import AccessTokens
from toolcrib.settings import Settings
from toolcrib.storage.access import Access
from toolcrib.storage.accounts import Accounts
from toolcrib.storage.agents import Agents
from toolcrib.storage.approvals import Approvals as ApprovalRows
from toolcrib.storage.audit import Audit, Sealing
from toolcrib.storage.background import BackgroundProcesses
from toolcrib.storage.blobs import Blobs
from toolcrib.storage.bookmarks import Bookmarks
from toolcrib.storage.calls import Calls
from toolcrib.storage.changes import Changes
from toolcrib.storage.credentials import Lock
from toolcrib.storage.database import Database
from toolcrib.storage.files import Files
from toolcrib.storage.grants import Grants
from toolcrib.storage.growth import Growth
from toolcrib.storage.keys import Keys
from toolcrib.storage.mcp_servers import McpServers
from toolcrib.storage.past_calls import PastCalls
from toolcrib.storage.plan_mode import PlanMode
from toolcrib.storage.processes import Processes
from toolcrib.storage.questions import Questions as QuestionRows
from toolcrib.storage.regexes import Regexes
from toolcrib.storage.runs import Runs
from toolcrib.storage.sessions import Sessions
from toolcrib.storage.since import Since
from toolcrib.storage.tickets import Tickets
from toolcrib.storage.trash import TrashEntries, TrashLimits
from toolcrib.storage.undo import Undoing
from toolcrib.storage.usage import Usage
from toolcrib.storage.workspaces import Workspaces
from toolcrib.tools.registry import Registry, tools_in
from toolcrib.tools.shell.background import BackgroundShell
from toolcrib.tools.shell.bash import bash_with
from toolcrib.tools.shell.bash_input import bash_input_with
from toolcrib.tools.shell.bash_list import bash_list_with
from toolcrib.tools.shell.bash_output import bash_output_with
from toolcrib.tools.shell.bash_start import bash_start_with
from toolcrib.tools.shell.bash_stop import bash_stop_with
from toolcrib.tools.shell.shell import Shell
from toolcrib.tools.shell.staging import Staging
from toolcrib.tools.studio.web_search import web_search_with
from toolcrib.tools.tool import Tool
from toolcrib.tools.workspace.exit_plan_mode import exit_plan_mode_with
from toolcrib.websearch.brave import Brave
from toolcrib.websearch.engine import SearchEngine
from toolcrib.websearch.fallback import Fallback
from toolcrib.websearch.searxng import SearXNG
from toolcrib.workspace.commit import Committer
from toolcrib.workspace.mounts import Mounts
from toolcrib.workspace.search.ripgrep import Ripgrep
from toolcrib.workspace.sync import Sync
from toolcrib.workspace.tree import Shelves

if TYPE_CHECKING:
    from toolcrib.mcp.connections import Connections


@dataclass(frozen=True, slots=True)
class Engine:
    """The tool layer on one database, without a face."""

    registry: Registry
    shelves: Shelves
    executor: Executor
    approvals: Approvals
    questions: Questions
    waiting: Waiting
    bell: Bell
    shell: Shell
    background: BackgroundShell
    toolbox: Toolbox


def assemble(
    settings: Settings,
    database: Database,
    *,
    tools: Iterable[Tool] = (),
    live: Watchers | None = None,
    process_id: ProcessId | None = None,
    sandbox: Sandbox | None = None,
) -> Engine:
    """The gate and what stands behind it; ``tools`` are added to our own, ``live`` shows what happens."""
    live = live or Nobody()
    files, changes, blobs = Files(database), Changes(database), Blobs(database)
    mounts = Mounts(settings.data_dir)
    search = web_search_with(Fallback(search_engines(settings), seconds=settings.search_seconds))
    plan_exit = exit_plan_mode_with(PlanMode(database))
    sandbox = sandbox or Sandbox()
    shell = Shell(sandbox, settings.data_dir / "staging")
    toolbox = Toolbox(McpServers(database, credentials_lock(settings)), partial(mcp_connections, settings, sandbox))
    shelves = Shelves(
        files=files,
        blobs=blobs,
        changes=changes,
        mounts=mounts,
        sync=Sync(changes, mounts, node=settings.node, trash=trash_limits(settings)),
        undoing=Undoing(database),
        regexes=Regexes(database),
        ripgrep=Ripgrep.found(),
        trash=TrashEntries(database),
        since=Since(database),
        node=settings.node,
        max_file_bytes=settings.max_file_bytes,
        trash_bytes=settings.trash_bytes,
    )
    # Who runs a call is the process, not the node: of the same node there may be several.
    process_id = process_id or ProcessId(new_id())
    committer = Committer(changes, mounts, node=settings.node, trash=trash_limits(settings))
    background = BackgroundShell(
        sandbox,
        shell,
        shelves,
        committer,
        BackgroundProcesses(database),
        Audit(database),
        process=process_id,
        lease=settings.lease_seconds,
    )
    commands = [bash_with(shell), *background_tools(background)]
    registry = Registry([*tools_in(toolcrib.tools), search, *commands, plan_exit, *tools], added=toolbox)
    process, patience, bell = str(process_id), timedelta(seconds=settings.approval_seconds), Bell()
    approval_rows, calls = ApprovalRows(database), Calls(database)
    approvals = Approvals(approval_rows, blobs, registry, live, process=process, patience=patience, decided=bell.ring)
    questions = Questions(QuestionRows(database), live, process=process, patience=patience, decided=bell.ring)
    executor = Executor(
        registry=registry,
        shelves=shelves,
        recorder=Recorder(
            committer,
            Book(Audit(database)),
            calls,
            live,
        ),
        journal=Journal(files, mounts),
        approvals=approvals,
        questions=questions,
        process=process,
    )
    agents = Agents(database)
    waiting = Waiting(
        executor,
        approvals,
        questions,
        approval_rows,
        agents,
        calls,
        node=settings.node,
        process=process,
        decided=bell.ear(),
        lease=settings.lease_seconds,
    )
    return Engine(registry, shelves, executor, approvals, questions, waiting, bell, shell, background, toolbox)


def background_tools(shell: BackgroundShell) -> list[Tool]:
    """What background processes are started and spoken to with."""
    makers = (bash_start_with, bash_output_with, bash_input_with, bash_stop_with, bash_list_with)
    return [make(shell) for make in makers]


def advancing(
    settings: Settings, database: Database, engine: Engine, providers: Providers, live: Watchers | None = None
) -> Advance:
    """What carries a run on, with the models that people have access to."""
    return Advance(
        runs=Runs(database),
        sessions=Sessions(database),
        agents=Agents(database),
        access=ModelAccess(Access(database, credentials_lock(settings))),
        providers=providers,
        registry=engine.registry,
        executor=engine.executor,
        approvals=engine.approvals,
        approval_rows=ApprovalRows(database),
        questions=engine.questions,
        live=live or Nobody(),
    )


@asynccontextmanager
async def desk(
    settings: Settings,
    database: Database,
    engine: Engine,
    providers: Providers,
    presence: Presence,
    live: Watchers | None = None,
) -> AsyncIterator[Desk]:
    """A desk with a runner at work behind it."""
    runs = Runs(database)
    advance = advancing(settings, database, engine, providers, live)
    runner = Runner(runs, Processes(database), advance, presence, node=settings.node, decided=engine.bell.ear())
    running = asyncio.create_task(runner.run())
    try:
        yield Desk(runs, engine.bell, live or Nobody(), runner=runner)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def mcp_connections(settings: Settings, sandbox: Sandbox) -> "Connections":
    """The ways to MCP servers; made when the first is used, for the protocol's library takes a second to load."""
    from toolcrib.mcp.opening import open_connections
    from toolcrib.mcp.pipe import Programs

    spare_what_is_loaded()
    staging = Staging(settings.data_dir / "staging")
    background = Background(sandbox, staging.folder)
    programs = Programs(background, settings.data_dir / "mcp", programs=settings.mcp_programs)
    return open_connections(programs, private_hosts=settings.private_mcp_hosts, at_end=staging.close)


def credentials_lock(settings: Settings) -> Lock:
    """What people's keys are locked with: a key of its own or, if none is set, one derived from the token secret."""
    key = settings.credentials_key or settings.jwt_secret
    previous = settings.credentials_previous_key
    return Lock(key.get_secret_value(), previous=previous.get_secret_value() if previous else None)


def search_engines(settings: Settings) -> tuple[SearchEngine, ...]:
    """The engines that are configured, in the order in which they are asked. Another one is added here."""
    engines: list[SearchEngine] = []
    if settings.searxng_url:
        engines.append(SearXNG(settings.searxng_url))
    if settings.brave_api_key:
        engines.append(Brave(settings.brave_api_key, url=settings.brave_url))
    return tuple(engines)


@asynccontextmanager
async def services(settings: Settings, *, tools: Iterable[Tool] = ()) -> AsyncIterator[Services]:
    """Everything the server's routes use, on an open database, after recovery and with the sealer at work."""
    settings.refuse_weak_secrets()
    async with AsyncExitStack() as opened:
        database = await opened.enter_async_context(
            Database.open(settings.database_url, settings.system_url, pool_size=settings.pool_size)
        )
        live = await opened.enter_async_context(Live.open(database, redis_url=settings.redis_url, node=settings.node))
        providers = await opened.enter_async_context(
            open_providers(private_hosts=settings.private_model_hosts, proxy=settings.model_proxy)
        )
        presence = opened.enter_context(
            Presence.kept(settings.system_url, node=settings.node, lease=settings.lease_seconds)
        )
        sandbox = Sandbox()
        engine = assemble(settings, database, tools=tools, live=live, process_id=presence.id, sandbox=sandbox)
        await recover(engine.shelves.files, engine.shelves.sync, node=settings.node)
        await engine.waiting.recover()
        sealing = Sealing(database)
        sealer = Sealer(sealing, audit_key(settings), anchor=settings.audit_anchor)
        bin_ = Bin(engine.shelves.trash, engine.shelves.mounts, node=settings.node)
        collector = Collector(Growth(database), keep=keeping(settings), bin=bin_)
        front = await opened.enter_async_context(desk(settings, database, engine, providers, presence, live))
        access = Access(database, credentials_lock(settings))
        at_work = [
            asyncio.create_task(engine.shell.prove()),
            asyncio.create_task(sealer.run(settings.seal_seconds)),
            asyncio.create_task(collector.run(settings.collect_seconds)),
            asyncio.create_task(engine.waiting.run()),
            asyncio.create_task(engine.background.run()),
        ]
        try:
            yield Services(
                settings=settings,
                database=database,
                accounts=Accounts(database),
                keys=Keys(database),
                workspaces=Workspaces(database),
                agents=Agents(database),
                files=engine.shelves.files,
                audit=Audit(database),
                verifier=Verifier(sealing, audit_key(settings), anchor=settings.audit_anchor),
                usage=Usage(database),
                past_calls=PastCalls(database),
                sandbox=sandbox,
                calls=Calls(database),
                sessions=Sessions(database),
                bookmarks=Bookmarks(database),
                tickets=Tickets(database),
                live=live,
                executor=engine.executor,
                registry=engine.registry,
                toolbox=engine.toolbox,
                approvals=engine.approvals,
                questions=engine.questions,
                grants=Grants(database),
                desk=front,
                access=access,
                model_access=ModelAccess(access),
                providers=providers,
                passwords=Passwords(),
                tokens=AccessTokens.from_settings(settings),
                login_links=LoginLinks(settings.jwt_secret.get_secret_value()),
            )
        finally:
            for task in at_work:
                task.cancel()
            await asyncio.gather(*at_work, return_exceptions=True)
            await engine.toolbox.close()
            await engine.background.close()
            engine.shell.close()


def audit_key(settings: Settings) -> bytes:
    return settings.audit_key.get_secret_value().encode()


def keeping(settings: Settings) -> timedelta | None:
    """How long versions are kept; for ever if nothing is set."""
    return None if settings.keep_versions_days is None else timedelta(days=settings.keep_versions_days)


def trash_limits(settings: Settings) -> TrashLimits:
    return TrashLimits(most_bytes=settings.trash_bytes, keep=timedelta(days=settings.trash_days))
