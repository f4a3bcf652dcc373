"""Runs a call's command in the sandbox, and imports its effect into the call's draft.

Connects the sandbox, which works on directories, with the workspace, which works on change sets. The gate commits.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from toolcrib.core.agents import ToolPermission
from toolcrib.core.callers import Caller
from toolcrib.core.errors import Overloaded, ProtectedPath
from toolcrib.core.files import EntryKind
from toolcrib.core.ids import WorkspaceId
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.policy.path_guard import PathAccess, PathGuard
from toolcrib.policy.permissions import granted_hosts, permission_for
from toolcrib.policy.protected_paths import ProtectedPaths
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.runtime.fair_queue import FairQueue
from toolcrib.sandbox.bubblewrap import ViewMount, is_masked
from toolcrib.sandbox.command import CommandResult, SandboxCommand
from toolcrib.sandbox.filesystem_effect import ChangedEntry, EntryChange, EntryType, FilesystemEffect
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.sandbox.staging_directory import StagingDirectory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.shell.uncovered_paths import outside_paths
from toolcrib.workspace.effects.effect_import import CommandBase, ImportResult, import_effects
from toolcrib.workspace.effects.path_effects import PathEffect, UntrackedFiles
from toolcrib.workspace.fs.mounts import VIEWED
from toolcrib.workspace.fs.protected_scan import ProtectedPathScanner, Protects

TOOL_NAME: Final = "bash"
# Concurrent commands: per server, and per workspace. An account gets at most half of what others leave.
_AT_ONCE: Final = 16
_IN_ONE: Final = 4
# Further commands that may wait in one workspace.
_WAITING_IN_ONE: Final = 32
# Names at the root of every view.
_TAKEN: Final = frozenset({"bin", "dev", "etc", "lib", "lib32", "lib64", "mnt", "proc", "sbin", "sys", "tmp", "usr"})
_KINDS: Final = {EntryType.FILE: EntryKind.FILE, EntryType.FOLDER: EntryKind.FOLDER, EntryType.LINK: EntryKind.LINK}
# The author of commits. A person's git identity is in files that are hidden from agents.
_IDENTITY: Final = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "agent"), ("EMAIL", "agent@toolcrib.invalid"))
}
# Reading a repository must not change it.
ENVIRONMENT: Final = {**_IDENTITY, "GIT_OPTIONAL_LOCKS": "0"}


@dataclass(frozen=True, slots=True)
class CommandRun:
    """How a command ended, and which parts of its effect are not in the draft."""

    result: CommandResult
    left_out: tuple[str, ...] = ()
    unkept: tuple[tuple[WorkspacePath, int], ...] = ()


class Shell:
    """Runs commands for one server."""

    def __init__(self, sandbox: Sandbox, staging: Path) -> None:
        self._sandbox = sandbox
        self._data = staging.parent.resolve()
        self._staging = StagingDirectory(staging)
        self._hidden = ProtectedPathScanner()
        self._off: str | None = None
        self._room = FairQueue(_AT_ONCE, what="commands", waiting_of_one=_WAITING_IN_ONE)
        self._waiting: Counter[WorkspaceId] = Counter()
        self._rooms: WeakValueDictionary[WorkspaceId, asyncio.Semaphore] = WeakValueDictionary()

    async def probe(self) -> None:
        """Determine whether commands can run here at all."""
        self._off = (await self._sandbox.probe()).reason

    def is_offered(self) -> bool:
        """Whether models see the tool. True until the probe has run."""
        return self._off is None

    @property
    def staging(self) -> Path:
        """The staging directory of this server process."""
        return self._staging.folder

    def close(self) -> None:
        self._staging.close()

    async def run(self, text: str, context: ToolContext, *, seconds: float) -> CommandRun:
        """Run a command to its end. If it ended by itself, its changes are in the draft."""
        isolation = await self._sandbox.probe()
        isolation.require()
        context.remarks.isolation = isolation.level
        caller = context.caller
        # A workspace waits for itself first, so that it cannot fill its account's queue with waiting commands.
        room = self._rooms.setdefault(caller.workspace_id, asyncio.Semaphore(_IN_ONE))
        with self._in_line(caller.workspace_id):
            async with room, self._room.turn(caller.user_id):
                return await self._run(text, context, seconds=seconds)

    @contextmanager
    def _in_line(self, workspace_id: WorkspaceId) -> Iterator[None]:
        if self._waiting[workspace_id] >= _IN_ONE + _WAITING_IN_ONE:
            raise Overloaded("Too many commands are queued in this workspace. Try again later.")
        self._waiting[workspace_id] += 1
        try:
            yield
        finally:
            self._waiting[workspace_id] -= 1
            if not self._waiting[workspace_id]:
                del self._waiting[workspace_id]

    async def _run(self, text: str, context: ToolContext, *, seconds: float) -> CommandRun:
        base = await CommandBase.capture(context.tree)
        # Only now: masks and copies must reflect the tree that the command starts on.
        agent = context.caller.agent
        permission = permission_for(agent.rules, TOOL_NAME) if agent else None
        mounts, _ = await asyncio.gather(self.mounts(context, permission), base.wait_for_clock_tick())
        staging = self._staging.folder
        async with self._sandbox.transaction(
            [mount for _, mount in mounts], staging, dispose=self._staging.dispose
        ) as view:
            hosts = granted_hosts(agent.rules if agent else None, TOOL_NAME)
            command = SandboxCommand(text, env=ENVIRONMENT, seconds=seconds, hosts=hosts)
            result = await view.run(command, context.emit)
            context.remarks.contacted += [(f"{one.host}:{one.port}", one.refused) for one in result.contacted]
            if result.timed_out or result.stopped:
                return CommandRun(result)
            left_out, adopted = await _adopted(
                await view.effect(), {mount.name: root for root, mount in mounts}, context, base
            )
        return CommandRun(result, left_out, adopted.unkept)

    async def mounts(
        self, context: ToolContext, permission: ToolPermission | None = None
    ) -> list[tuple[WorkspacePath, ViewMount]]:
        """Return the four mounts as the command sees them. The project comes first: the command starts there.

        Paths outside the permission's ``paths`` are empty, like those protected from agents.
        """
        roots = await context.tree.roots(Mount)
        agent = context.caller.agent
        protects = ProtectedPaths(agent.rules.unprotected_paths).protects_reading if agent else None
        masked = await in_thread(self._masked, roots, protects, permission) if protects else {}
        return [
            (path, ViewMount(mount, root, self._target(mount, root), mount.writable, masked.get(mount, frozenset())))
            for mount, (path, root) in roots.items()
        ]

    def _target(self, mount: Mount, root: Path) -> str:
        """Return where a command sees a mount.

        A person's own directory keeps its path, because installed files (a virtual environment, a build) contain it.
        """
        is_ours = root.is_relative_to(self._data)
        return VIEWED[mount] if is_ours or root.parts[1:2] == () or root.parts[1] in _TAKEN else str(root)

    def _masked(
        self,
        roots: Mapping[Mount, tuple[WorkspacePath, Path]],
        protects: Protects,
        permission: ToolPermission | None,
    ) -> dict[Mount, frozenset[str]]:
        masked = {mount: self._hidden.below(root, path, protects) for mount, (path, root) in roots.items()}
        if permission is None or permission.paths is None:
            return masked
        outside = {mount: outside_paths(root, path, permission) for mount, (path, root) in roots.items()}
        return {mount: _topmost(masked[mount] | outside[mount]) for mount in masked}

    def protected_paths(self, root: Path, path: WorkspacePath, protects: Protects) -> frozenset[str]:
        """Return the protected paths below a mount's root by name, without hard links."""
        return self._hidden.below(root, path, protects, aliases=False)


def _topmost(paths: frozenset[str]) -> frozenset[str]:
    """Drop paths that are below another one."""
    return frozenset(path for path in paths if not is_masked(path.rpartition("/")[0], paths))


async def _adopted(
    effect: FilesystemEffect, roots: dict[str, WorkspacePath], context: ToolContext, base: CommandBase
) -> tuple[tuple[str, ...], ImportResult]:
    """Import the effect into the draft. Also returns what cannot be imported."""
    taken, left_out = _sorted_out(effect, roots)
    if not taken:
        return left_out, ImportResult()
    context.remarks.protected += _protected_paths(context.caller, taken)
    path_effects = [_path_effect(effect, entry, path) for entry, path in taken]
    untracked = UntrackedFiles({roots[mount].mount_key: written for mount, written in effect.written.items()})
    return left_out, await import_effects(context.tree, context.draft, path_effects, base, untracked)


def _sorted_out(
    effect: FilesystemEffect, roots: dict[str, WorkspacePath]
) -> tuple[list[tuple[ChangedEntry, WorkspacePath]], tuple[str, ...]]:
    taken: list[tuple[ChangedEntry, WorkspacePath]] = []
    left_out: list[str] = []
    for entry in effect:
        root = roots[entry.mount]
        if entry.path == ".":
            left_out.append(f"the mode of {root}, the root of a mount")
        elif entry.kind is EntryType.SPECIAL and entry.change is not EntryChange.DELETED:
            left_out.append(f"{root}/{entry.path}, a special file")
        else:
            taken.append((entry, WorkspacePath(root.mount, f"/{entry.path}", root.scope)))
    return taken, tuple(left_out)


def _protected_paths(caller: Caller, taken: Sequence[tuple[ChangedEntry, WorkspacePath]]) -> Iterator[WorkspacePath]:
    """Yield the paths that need a person's approval. Raises for what nothing can approve; then no effect is kept."""
    guard = PathGuard(caller, TOOL_NAME)
    for entry, path in taken:
        denial = guard.denial(PathAccess.WRITE, path)
        if denial is None and not entry.masked:
            continue
        if denial is not None and not isinstance(denial.error, ProtectedPath):
            raise denial.error
        yield path


def _path_effect(effect: FilesystemEffect, entry: ChangedEntry, path: WorkspacePath) -> PathEffect:
    gone = entry.change is EntryChange.DELETED
    return PathEffect(
        path,
        None if gone else _KINDS[entry.kind],
        was_there=entry.change is not EntryChange.CREATED,
        mode=entry.mode & 0o777,
        size=entry.size,
        target=entry.target,
        open=partial(effect.open, entry) if entry.body else None,
        was_folder=gone and entry.kind is EntryType.FOLDER,
    )
