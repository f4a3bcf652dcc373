"""Background processes that calls started: their trees, their owners and their changes.

Connects the sandbox, which runs them, with the workspace, which commits their changes, and with their rows. The gate
has checked permissions before.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import structlog

from toolcrib.core.agents import AgentRules
from toolcrib.core.audit import AUDITED_BYTES, AuditRecord, audit_files
from toolcrib.core.background_processes import BackgroundProcess
from toolcrib.core.callers import Caller, WorkspaceRole, state_scope
from toolcrib.core.change_sets import ChangeSet
from toolcrib.core.errors import Conflict, PermissionDenied, ToolcribError, ToolFailed
from toolcrib.core.ids import BackgroundId, ProcessId, WorkspaceId, new_id
from toolcrib.core.paths import Mount, WorkspacePath, mount_root
from toolcrib.policy.permissions import granted_hosts, permission_for
from toolcrib.policy.truncation import truncate
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.sandbox.background_process import BackgroundSandbox, OutputChunk, SandboxedProcess
from toolcrib.sandbox.bubblewrap import ViewMount
from toolcrib.sandbox.command import OutputCollector, SandboxCommand
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.storage.audit import AuditStore
from toolcrib.storage.background_processes import BackgroundProcessStore
from toolcrib.storage.database import OperationalError, Tenant
from toolcrib.tools.context import ToolContext
from toolcrib.tools.shell.protected_path_watch import ProtectedPathWatch
from toolcrib.tools.shell.shell import Shell
from toolcrib.workspace.changes.commit import Committer
from toolcrib.workspace.changes.draft import author_of
from toolcrib.workspace.effects.effect_import import past
from toolcrib.workspace.effects.live_tree import LiveTreeTracker, quarantine_untracked
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.workspace_services import WorkspaceServices

log = structlog.get_logger(__name__)

TOOL_NAME: Final = "bash_start"
# Concurrent processes: per agent, or per person without an agent, in a workspace; and per server.
MOST_OF_ONE: Final = 4
MOST_HERE: Final = 32
# How many ended processes are kept with their output.
_ENDED_KEPT: Final = 64
_STOP_CHECK_SECONDS: Final = 1.0
_UNWANTED: Final = "its session ended, or the user who started it is no longer a member"


@dataclass(slots=True)
class BackgroundJob:
    """One process of this server. ``too_large`` paths are too large for the history, so they cannot be restored.

    ``made_links`` are the symbolic links among its committed changes. ``process`` is set once it has started.
    """

    row: BackgroundProcess
    caller: Caller
    live_tree: LiveTreeTracker
    names: ProtectedPathWatch
    disk_of: WorkspaceDisks
    too_large: tuple[WorkspacePath, ...]
    quarantined: tuple[WorkspacePath, ...] = ()
    unreported_changes: list[ChangeSet] = field(default_factory=list)
    made_links: set[WorkspacePath] = field(default_factory=set)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    process: SandboxedProcess = field(init=False)

    @property
    def tenant(self) -> Tenant:
        """The server itself is the tenant, because the user who started the process may be gone."""
        return Tenant(self.row.workspace_id)

    @property
    def state(self) -> BackgroundProcess:
        """The row as it would be written now."""
        process = self.process
        ended_ns = None if process.is_running else self.row.ended_ns or time.time_ns()
        return replace(self.row, ended_ns=ended_ns, exit_code=process.exit_code, stop_reason=process.stopped)

    async def output(self, *, offset: int, most: int, wait: float) -> OutputChunk:
        """Return output from an offset on. Waits for the first output, or the end, if there is none yet."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait_for_output(offset), wait)
        return self.process.output(offset, most=most)

    async def stop(self, reason: str) -> None:
        """Stop the process, and wait until its changes are committed."""
        await self.process.stop(reason)
        await self.finished.wait()


class BackgroundShell:
    """The background processes of one server."""

    def __init__(
        self,
        sandbox: Sandbox,
        shell: Shell,
        workspace_services: WorkspaceServices,
        committer: Committer,
        rows: BackgroundProcessStore,
        audit: AuditStore,
        *,
        process: ProcessId,
        lease: float,
    ) -> None:
        self._sandbox = sandbox
        self._shell = shell
        self._workspace_services = workspace_services
        self._committer = committer
        self._rows = rows
        self._audit = audit
        self._process = process
        self._lease = lease
        self._background: BackgroundSandbox | None = None
        self._jobs: dict[BackgroundId, BackgroundJob] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop_check: asyncio.Task[None] | None = None

    def is_available(self) -> bool:
        return self._shell.is_available()

    async def start(self, text: str, context: ToolContext) -> BackgroundJob:
        """Import the tree, then start the process. The caller can read its output from then on."""
        command = SandboxCommand(
            text, env=self._shell.environment, hosts=granted_hosts(_rules(context.caller), TOOL_NAME)
        )
        command.check()
        level = (await self._sandbox.require()).level
        context.remarks.isolation = level
        await self._refuse(context.caller)
        job, mounts = await self._prepared(text, context, level)
        command = replace(command, cwd=self._shell.start_directory(context.caller, mounts[0]))
        await self._rows.begin(Tenant.of(context.caller), job.row, most=MOST_OF_ONE)
        try:
            if self._background is None:
                self._background = BackgroundSandbox(self._sandbox, self._shell.staging)
            emit = OutputCollector(context.emit).take
            job.process = await self._background.start(command, mounts, guard=job.names.denial, emit=emit)
        except BaseException:
            await asyncio.shield(
                self._rows.end(job.tenant, job.row.id, at_ns=time.time_ns(), code=None, why="it did not start")
            )
            raise
        self._jobs[job.row.id] = job
        self._watch(job)
        return job

    async def find(self, caller: Caller, id_: BackgroundId) -> BackgroundJob:
        """Return one of the caller's processes on this server.

        For others, ``ToolFailed`` says what happened to them.
        """
        row = await self._rows.get(caller, id_)
        if job := self._jobs.get(id_):
            return job
        if row.is_running:
            row = await self._with_exit_state(row)
        if row.is_running:
            raise ToolFailed(f"Process {id_} runs on node {row.node!r}. Call that node.")
        raise ToolFailed(
            f"Process {id_} has ended ({row.stop_reason or f'exit code {row.exit_code}'}) and its output is gone."
        )

    async def all_of(self, caller: Caller) -> list[BackgroundProcess]:
        """List the caller's processes: all that run, on any server, and the latest that have ended."""
        return [await self._with_exit_state(row) for row in await self._rows.of(caller)]

    async def stop(self, caller: Caller, id_: BackgroundId) -> BackgroundJob | None:
        """Stop a process, here or, a moment later, on its server. Members only."""
        await self._rows.get(caller, id_, needs=WorkspaceRole.MEMBER)
        job = self._jobs.get(id_)
        if job is None:
            await self._rows.ask_to_end(caller, id_)
            return None
        await job.stop("stopped on request")
        return job

    async def end_all_of(self, workspace_id: WorkspaceId) -> None:
        """Stop the processes of a deleted workspace that run here."""
        for job in [job for job in self._jobs.values() if job.row.workspace_id == workspace_id]:
            if not job.finished.is_set():
                await job.stop(_UNWANTED)

    async def commit_changes(self, job: BackgroundJob) -> tuple[ChangeSet, ...]:
        """Commit the changes since the last call. After the end of the process, waits for the final commit."""
        if job.process.is_running:
            await self._record_changes(job, await job.live_tree.commit_changes())
        else:
            await job.finished.wait()
        committed, job.unreported_changes = tuple(job.unreported_changes), []
        return committed

    async def run(self) -> None:
        """Recover processes of dead servers, for ever."""
        while True:
            try:
                await self.recover()
            except OperationalError as error:
                log.warning("background.recovery_failed", error=str(error))
            except Exception:
                # No other task here cleans up after dead servers, so no error may end this loop.
                log.exception("background.recovery_failed")
            await asyncio.sleep(self._lease)

    async def recover(self) -> None:
        """Clean up after dead servers of this node. Their processes ended with them; commits their changes."""
        for row in await self._rows.orphans(self._workspace_services.node, seconds=self._lease):
            assert row.ended_ns is not None
            tenant = Tenant(row.workspace_id)
            await self._rows.end(tenant, row.id, at_ns=row.ended_ns, code=None, why="its server stopped unexpectedly")
            try:
                await self._commit_leftover_changes(row)
            except ToolcribError as error:
                log.warning("background.scan_failed", process=str(row.id), code=error.code)

    async def close(self) -> None:
        """Stop all processes, and commit their changes."""
        if self._stop_check:
            self._stop_check.cancel()
        if self._background:
            await self._background.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _refuse(self, caller: Caller) -> None:
        """Raise if this caller cannot start any process here."""
        _reject_paths(caller)
        if sum(not job.finished.is_set() for job in self._jobs.values()) >= MOST_HERE:
            raise Conflict(f"{MOST_HERE} background processes are running on this server, the limit. Try again later.")
        seen = await self._workspace_services.files.lookup(
            Tenant.of(caller), [mount_root(Mount.PROJECT)], WorkspaceRole.MEMBER
        )
        seen.home.require(self._workspace_services.node)

    async def _prepared(self, text: str, context: ToolContext, level: str) -> tuple[BackgroundJob, list[ViewMount]]:
        """Import the tree, and return the job to start with its mounts."""
        caller = context.caller
        await context.history.wait_until_applied()
        roots = await context.tree.roots(Mount)
        names = ProtectedPathWatch(self._shell, dict(roots.values()), _rules(caller))
        mounts = await self._zones(context, names)
        disk_of = await context.tree.disks()
        live_tree = self._live_tree(caller.workspace_id, disk_of, [path for path, _ in roots.values()])
        too_large = await live_tree.start(closed=names.closes, max_file_bytes=self._workspace_services.max_file_bytes)
        row = BackgroundProcess(
            caller.workspace_id,
            BackgroundId(new_id()),
            author_of(caller),
            text,
            level,
            self._workspace_services.node,
            self._process,
            time.time_ns(),
        )
        await past(row.started_ns)
        return BackgroundJob(row, caller, live_tree, names, disk_of, too_large), mounts

    async def _zones(self, context: ToolContext, names: ProtectedPathWatch) -> list[ViewMount]:
        closed, mounts = await asyncio.gather(in_thread(names.begin), self._shell.mounts(context))
        zones = [
            replace(
                mount,
                fixed=closed.get(root, frozenset()) - frozenset(mount.masked),
                writable=mount.writable and not names.closes_whole(root),
            )
            for root, mount in mounts
        ]
        _, repository = await self._shell.repository(zones[0], None)
        return [*zones, *repository, *await self._shell.tool_mounts()]

    def _live_tree(
        self, workspace_id: WorkspaceId, disk_of: WorkspaceDisks, roots: Sequence[WorkspacePath]
    ) -> LiveTreeTracker:
        return LiveTreeTracker(
            self._workspace_services.sync, self._workspace_services.files, Tenant(workspace_id), disk_of, roots
        )

    def _watch(self, job: BackgroundJob) -> None:
        task = asyncio.create_task(self._finish_job(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._stop_check is None or self._stop_check.done():
            self._stop_check = asyncio.create_task(self._stop_unwanted_jobs())

    async def _finish_job(self, job: BackgroundJob) -> None:
        """Wait for the end of a process. Then commit its last changes, and record how it ended."""
        process = job.process
        await process.wait()
        ended_ns = time.time_ns()
        try:
            await self._record_changes(job, await job.live_tree.commit_changes())
            come_up = await in_thread(job.names.new_paths)
            job.quarantined = await quarantine_untracked(
                self._workspace_services,
                self._committer,
                job.tenant,
                job.disk_of,
                come_up,
                made_links=job.made_links,
            )
        except Exception:
            # Uncommitted changes are later imported like any outside change. The end is recorded in any case.
            log.exception("background.commit_failed", process=str(job.row.id))
        job.row = replace(job.row, ended_ns=ended_ns)
        try:
            await self._rows.end(job.tenant, job.row.id, at_ns=ended_ns, code=process.exit_code, why=process.stopped)
            await self._audit.append([_record(job, "ended", rule=process.stopped or f"exit code {process.exit_code}")])
        finally:
            job.finished.set()
            self._forget_old()

    async def _record_changes(self, job: BackgroundJob, committed: Sequence[ChangeSet]) -> None:
        """Keep this process's own changes for the next result, and write them to the audit log."""
        own = [change_set for change_set in committed if change_set.author.call_id == job.row.author.call_id]
        job.unreported_changes += own
        job.made_links |= {
            change.after.path
            for change_set in own
            for change in change_set.changes
            if change.after is not None and change.after.link_target is not None
        }
        if own:
            await self._audit.append([_record(job, "changed", change_sets=own)])

    async def _stop_unwanted_jobs(self) -> None:
        """Stop processes that are no longer wanted: their session was deleted, or another server requested it."""
        while at_work := [job for job in self._jobs.values() if not job.finished.is_set()]:
            await asyncio.sleep(_STOP_CHECK_SECONDS)
            try:
                wanted = await self._rows.wanted(self._process)
            except OperationalError as error:
                log.warning("background.stop_check_failed", error=str(error))
                continue
            except Exception:
                # Nor may one end this: processes that nobody wants would go on.
                log.exception("background.stop_check_failed")
                continue
            for job in at_work:
                if job.row.id not in wanted and not job.finished.is_set():
                    await job.stop(_UNWANTED)

    async def _with_exit_state(self, row: BackgroundProcess) -> BackgroundProcess:
        """Correct a row that still says running although its server has died."""
        if not row.is_running or row.process_id == self._process:
            return row
        if await self._rows.served([row.process_id], seconds=self._lease):
            return row
        return replace(row, ended_ns=row.started_ns, stop_reason="its server stopped unexpectedly")

    async def _commit_leftover_changes(self, row: BackgroundProcess) -> None:
        author = row.author
        scope = state_scope(author.session_id, author.agent_id, author.user_id)
        roots = [
            WorkspacePath(Mount.PROJECT, "/"),
            WorkspacePath(Mount.CENTRAL, "/"),
            WorkspacePath(Mount.STATE, "/", scope),
        ]
        seen = await self._workspace_services.files.lookup(Tenant(row.workspace_id), roots)
        disk_of = self._workspace_services.mounts.disks_of(row.workspace_id, seen.home.root_path)
        names = ProtectedPathWatch(self._shell, {}, AgentRules() if author.agent_id else None)
        await self._live_tree(row.workspace_id, disk_of, roots).start(
            closed=names.closes, max_file_bytes=self._workspace_services.max_file_bytes, all_tracked_before=True
        )

    def _forget_old(self) -> None:
        ended = [job for job in self._jobs.values() if job.finished.is_set()]
        for job in ended[:-_ENDED_KEPT]:
            del self._jobs[job.row.id]


def _rules(caller: Caller) -> AgentRules | None:
    return caller.agent.rules if caller.agent else None


def _reject_paths(caller: Caller) -> None:
    """Deny agents with path limits: on the live tree, a process cannot be limited to paths."""
    permission = permission_for(caller.agent.rules, TOOL_NAME) if caller.agent else None
    if permission is not None and permission.paths is not None:
        raise PermissionDenied(
            f"`{TOOL_NAME}` is limited to some paths for this agent, but a background process works on the live tree "
            "and cannot be limited. Use `bash`, or ask an owner to remove `paths`."
        )


def _record(
    job: BackgroundJob, outcome: str, *, rule: str = "background", change_sets: Sequence[ChangeSet] = ()
) -> AuditRecord:
    """Build the audit record of a process: its changes or its end, under the call that started it."""
    files = [file for change_set in change_sets for file in audit_files(change_set)]
    return AuditRecord(
        caller=job.caller,
        tool=TOOL_NAME,
        decision="none",
        rule=rule,
        arguments=truncate({"process": str(job.row.id), "command": job.row.command}, limit_bytes=AUDITED_BYTES).value,
        outcome=outcome,
        created_at=datetime.now(UTC),
        duration_us=(time.time_ns() - job.row.started_ns) // 1000,
        files=[*files, *({"path": path.display, "displaced": True} for path in job.quarantined)],
        isolation=job.row.isolation,
    )
