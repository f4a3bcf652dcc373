"""Runs a call's command in the sandbox, and imports its effect into the call's draft.

Connects the sandbox, which works on directories, with the workspace, which works on change sets. The gate commits.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from toolcrib.core.agents import ToolPermission
from toolcrib.core.callers import Caller
from toolcrib.core.change_sets import ChangeKind, ChangeSet
from toolcrib.core.errors import Overloaded, ProtectedPath, TooLarge
from toolcrib.core.files import EntryKind
from toolcrib.core.ids import WorkspaceId
from toolcrib.core.paths import Mount, WorkspacePath, in_order
from toolcrib.policy.authorization import PathAccess, PathGuard
from toolcrib.policy.git_config import MAX_BYTES, ConfigEdit, InvalidGitConfig
from toolcrib.policy.permissions import covers_whole, granted_hosts, may_cover_below, path_allowed, permission_for
from toolcrib.policy.protected_paths import ProtectedPaths
from toolcrib.runtime.disk_threads import in_thread, off_loop
from toolcrib.runtime.fair_queue import FairQueue
from toolcrib.sandbox.bubblewrap import ViewMount, is_masked
from toolcrib.sandbox.command import CommandResult, SandboxCommand
from toolcrib.sandbox.egress_proxy import EgressNetwork
from toolcrib.sandbox.overlay import ChangedEntry, EntryChange, EntryType, FilesystemEffect
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.sandbox.transaction import StagingDirectory, Transaction
from toolcrib.tools.context import ContactedHost, ToolContext
from toolcrib.tools.shell.git_view import (
    OutsideRepository,
    PersonalGitSettings,
    config_edit,
    is_git_config,
    visible_configs,
)
from toolcrib.tools.shell.hidden_files import HiddenFileNotes
from toolcrib.tools.shell.toolchain import CommandCaches, Toolchain
from toolcrib.workspace.effects.effect_import import CommandBase, UnkeptPaths, import_effects, past
from toolcrib.workspace.effects.path_effects import PathEffect, UntrackedFiles
from toolcrib.workspace.fs.mounts import VIEWED
from toolcrib.workspace.fs.outward_links import new_outward_links
from toolcrib.workspace.fs.protected_scan import ProtectedPathScanner, Protects

TOOL_NAME: Final = "bash"
# The most paths that a result lists.
MOST_PATHS: Final = 50
# Concurrent commands: per server, and per workspace. An account gets at most half of what others leave.
_AT_ONCE: Final = 16
_IN_ONE: Final = 4
# Further commands that may wait in one workspace.
_WAITING_IN_ONE: Final = 32
# Names at the root of every view.
_TAKEN: Final = frozenset({"bin", "dev", "etc", "lib", "lib32", "lib64", "mnt", "proc", "sbin", "sys", "tmp", "usr"})
_KINDS: Final = {EntryType.FILE: EntryKind.FILE, EntryType.FOLDER: EntryKind.FOLDER, EntryType.LINK: EntryKind.LINK}
# Paths that are hidden one by one. Each is a file to create for every command.
MOST_OUTSIDE: Final = 50_000
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class CommandRun:
    """How a command ended, which hosts it was granted, and which parts of its effect are not in the draft.

    - ``notes``: What the command did not see.
    """

    result: CommandResult
    hosts: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    unkept: UnkeptPaths = ()
    notes: tuple[str, ...] = ()


class Shell:
    """Runs commands for one server. ``environment`` are variables for all of them."""

    def __init__(
        self,
        sandbox: Sandbox,
        staging: Path,
        *,
        environment: Mapping[str, str] | None = None,
        toolchain: Toolchain | None = None,
        git_settings: PersonalGitSettings | None = None,
        cache_bytes: int = 0,
    ) -> None:
        self._sandbox = sandbox
        self._toolchain = toolchain or Toolchain(())
        self._caches = CommandCaches(staging.parent / "workspaces", most_bytes=cache_bytes)
        self._git_settings = git_settings or PersonalGitSettings()
        self.environment = {
            **(environment or {}),
            **self._toolchain.environment,
            **self._caches.environment,
            **self._git_settings.environment,
        }
        self._data = staging.parent.resolve()
        self._staging = StagingDirectory(staging)
        self._hidden = ProtectedPathScanner()
        self._notes = HiddenFileNotes()
        self._off: str | None = None
        self._room = FairQueue(_AT_ONCE, what="commands", waiting_of_one=_WAITING_IN_ONE)
        self._waiting: Counter[WorkspaceId] = Counter()
        self._rooms: WeakValueDictionary[WorkspaceId, asyncio.Semaphore] = WeakValueDictionary()

    async def probe(self) -> None:
        """Determine whether commands can run here at all."""
        self._off = (await self._sandbox.probe()).reason

    def is_available(self) -> bool:
        """Whether models see the tool. True until the probe has run."""
        return self._off is None

    @property
    def staging(self) -> Path:
        """The staging directory of this server process."""
        return self._staging.folder

    def close(self) -> None:
        self._staging.close()

    async def run(self, text: str, context: ToolContext, *, seconds: float, hosts: tuple[str, ...] = ()) -> CommandRun:
        """Run a command to its end. If it ended by itself, its changes are in the draft.

        Args:
            hosts: What it may contact, beside the hosts that its agent's definition grants.
        """
        agent = context.caller.agent
        hosts = tuple(dict.fromkeys((*hosts, *granted_hosts(agent.rules if agent else None, TOOL_NAME))))
        async with self.transaction(context, TOOL_NAME, with_cache=True) as opened:
            command = SandboxCommand(text, cwd=opened.cwd, env=self.environment, seconds=seconds, hosts=hosts)
            result = await opened.view.run(command, context.emit)
            context.remarks.contacted += [
                ContactedHost(f"{one.host}:{one.port}", one.refused) for one in result.contacted
            ]
            notes = self._notes.notes(
                context.caller.session_id,
                opened.mounts,
                opened.repository,
                command=text,
                output=result.output.text,
            )
            if result.timed_out or result.stopped:
                return CommandRun(result, hosts, notes=tuple(notes))
            left_out, unkept = await opened.import_effect()
        return CommandRun(result, hosts, left_out, unkept, tuple(notes))

    @asynccontextmanager
    async def transaction(
        self,
        context: ToolContext,
        tool_name: str,
        *,
        extra: Sequence[ViewMount] = (),
        with_cache: bool = False,
        always_masked: bool = False,
        writable: bool = True,
        network: EgressNetwork | None = None,
    ) -> AsyncIterator["WorkspaceTransaction"]:
        """Open copy-on-write views of the workspace as the caller's tool may see it, when it is the caller's turn.

        Args:
            extra: Further mounts, beside the directories with programs.
            with_cache: The caller's cache is one of them.
            always_masked: Protected paths are empty, also for a person.
            writable: Otherwise the workspace is read-only.
            network: What commands with hosts may contact, if not what the sandbox says.
        """
        context.remarks.isolation = (await self._sandbox.require()).level
        caller = context.caller
        # A workspace waits for itself first, so that it cannot fill its account's queue with waiting commands.
        room = self._rooms.setdefault(caller.workspace_id, asyncio.Semaphore(_IN_ONE))
        with self._in_line(caller.workspace_id):
            async with room, self._room.turn(caller.user_id):
                base = await CommandBase.capture(context.tree)
                # Only now: masks and copies must reflect the tree that the command starts on.
                permission = permission_for(caller.agent.rules, tool_name) if caller.agent else None
                found, _ = await asyncio.gather(
                    self.mounts(context, permission, always_masked=always_masked), past(base.began_ns)
                )
                if not writable:
                    found = [(path, replace(mount, writable=False, isolated=True)) for path, mount in found]
                project = found[0][1]
                repository, outside = await self.repository(project, permission)
                caches = self._caches.mounted(caller, project.root) if with_cache else nullcontext(list[ViewMount]())
                async with (
                    caches as cache,
                    self._sandbox.transaction(
                        [*(mount for _, mount in found), *outside, *cache, *await self.tool_mounts(), *extra],
                        self._staging.folder,
                        dispose=self._staging.dispose,
                        network=network,
                    ) as view,
                ):
                    roots = {mount.name: path for path, mount in found}
                    cwd = self.start_directory(caller, project)
                    mounts = [*(mount for _, mount in found), *outside]
                    yield WorkspaceTransaction(view, cwd, roots, mounts, repository, context, tool_name, base)

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

    async def mounts(
        self, context: ToolContext, permission: ToolPermission | None = None, *, always_masked: bool = False
    ) -> list[tuple[WorkspacePath, ViewMount]]:
        """Return the four mounts as the command sees them. The project comes first: the command starts there.

        Paths outside the permission's ``paths`` are empty, like those protected from agents.
        """
        roots = await context.tree.roots(Mount)
        agent = context.caller.agent
        unprotected = agent.rules.unprotected_paths if agent else ()
        protects = ProtectedPaths(unprotected).protects_reading if agent or always_masked else None
        mounts = [
            (path, ViewMount(mount, root, self.target(mount, root), mount.writable))
            for mount, (path, root) in roots.items()
        ]
        return await in_thread(self._masked, mounts, protects, permission) if protects else mounts

    async def repository(
        self, project: ViewMount, permission: ToolPermission | None
    ) -> tuple[OutsideRepository | None, list[ViewMount]]:
        """Return the repository of a linked worktree, and its mount, read-only.

        An agent that is limited to paths does not see it: it has the contents of all paths.
        """
        repository = await in_thread(OutsideRepository.of, project.root)
        if repository is None or repository.common is None:
            return repository, []
        common = repository.common
        is_limited = permission is not None and permission.paths is not None
        is_taken = common.parts[1] in _TAKEN - {"mnt", "tmp"} or project.root.is_relative_to(common)
        if is_limited or is_taken or not (await self._sandbox.require()).overlay:
            return replace(repository, common=None), []
        return repository, await in_thread(repository.mounts, str(common))

    async def look(
        self, text: str, context: ToolContext, permission: ToolPermission | None, *, seconds: float
    ) -> str | None:
        """Return what a quick command of the server itself prints about the tree, as the agent's commands see it.

        Its changes are dropped. None if it failed, or if every command gets a copy of the tree, which takes too long.
        """
        if not (await self._sandbox.require()).overlay:
            return None
        mounts = [mount for _, mount in await self.mounts(context, permission)]
        _, repository = await self.repository(mounts[0], permission)
        mounts += [*repository, *await in_thread(self._git_settings.mounts, self._staging.folder)]
        async with self._sandbox.transaction(mounts, self._staging.folder, dispose=self._staging.dispose) as view:
            result = await view.run(SandboxCommand(text, env=self._git_settings.environment, seconds=seconds))
        return result.output.text if result.exit_code == 0 else None

    @staticmethod
    def start_directory(caller: Caller, project: ViewMount) -> str:
        """Return where a command of the caller starts: in its session's directory, or where that is gone, the root."""
        directory = caller.agent.directory if caller.agent else ""
        return f"{project.target}/{directory}" if directory and (project.root / directory).is_dir() else project.target

    async def tool_mounts(self) -> list[ViewMount]:
        """Return the directories with programs, and the person's settings of git, as a command sees them."""
        overlay = (await self._sandbox.require()).overlay
        return [
            *await in_thread(partial(self._toolchain.mounts, overlay=overlay)),
            *await in_thread(self._git_settings.mounts, self._staging.folder),
        ]

    def target(self, mount: Mount, root: Path) -> str:
        """Return where a command sees a mount.

        A person's own directory keeps its path, because installed files (a virtual environment, a build) contain it.
        """
        is_ours = root.is_relative_to(self._data)
        return VIEWED[mount] if is_ours or root.parts[1:2] == () or root.parts[1] in _TAKEN else str(root)

    def _masked(
        self,
        mounts: Sequence[tuple[WorkspacePath, ViewMount]],
        protects: Protects,
        permission: ToolPermission | None,
    ) -> list[tuple[WorkspacePath, ViewMount]]:
        return [(path, self._masked_mount(path, mount, protects, permission)) for path, mount in mounts]

    def _masked_mount(
        self, path: WorkspacePath, mount: ViewMount, protects: Protects, permission: ToolPermission | None
    ) -> ViewMount:
        masked = self._hidden.below(mount.root, path, protects)
        limited = permission is not None and permission.paths is not None
        outside = outside_paths(mount.root, path, permission) if permission and limited else frozenset()
        configs = visible_configs(mount.root, [path for path in masked if not is_masked(path, outside)])
        return replace(
            mount,
            masked=_topmost(masked | outside) if limited else masked,
            substitutes={path: config.text for path, config in configs.items()},
        )

    def protected_paths(self, root: Path, path: WorkspacePath, protects: Protects) -> frozenset[str]:
        """Return the protected paths below a mount's root by name, without hard links."""
        return self._hidden.below(root, path, protects, aliases=False)

    def protected_paths_and_links(
        self, root: Path, path: WorkspacePath, protects: Protects
    ) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the protected paths below a mount's root by name, and the symbolic links there."""
        return self._hidden.with_links(root, path, protects)


@dataclass(frozen=True, slots=True)
class WorkspaceTransaction:
    """Views of the workspace for one call. ``cwd`` is where its commands start.

    - ``roots``: The workspace's mounts by their names in the view.
    - ``mounts``: Those, and that of a repository outside.
    """

    view: Transaction
    cwd: str
    roots: Mapping[str, WorkspacePath]
    mounts: Sequence[ViewMount]
    repository: OutsideRepository | None
    context: ToolContext
    tool_name: str
    base: CommandBase

    async def import_effect(self) -> tuple[tuple[str, ...], UnkeptPaths]:
        """Import what was changed into the call's draft, once.

        Returns what cannot be imported, and what the history does not keep.
        """
        guard = PathGuard(self.context.caller, self.tool_name)
        mounts = {mount.name: mount for mount in self.mounts}
        effect = await self.view.effect()
        edits = await in_thread(_edits_of_git_configs, effect, mounts)
        return await _import_effect(effect, self.roots, edits, self.context, self.base, guard)


def outside_paths(root: Path, workspace_path: WorkspacePath, permission: ToolPermission) -> frozenset[str]:
    """Return the paths below a root that an agent's `paths` do not cover; whole folders where possible."""
    if covers_whole(permission, workspace_path):
        return frozenset()
    opened = os.open(root, _OPEN_FOLDER & ~os.O_NOFOLLOW)
    try:
        found = frozenset(islice(_outside(opened, workspace_path, permission), MOST_OUTSIDE + 1))
    finally:
        os.close(opened)
    if len(found) > MOST_OUTSIDE:
        raise TooLarge(
            f"More than {MOST_OUTSIDE:,} single files are outside this agent's `paths`: too many to hide from "
            "a command. Ask an owner to list directories instead of single files."
        )
    return found


def _outside(root: int, workspace_path: WorkspacePath, permission: ToolPermission) -> Iterator[str]:
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            opened = os.open(folder or ".", _OPEN_FOLDER, dir_fd=root)
        except OSError:
            # It is gone or locked, so that its content is unknown.
            yield folder
            continue
        try:
            with os.scandir(opened) as entries:
                listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        finally:
            os.close(opened)
        for name, is_folder in listed:
            path = f"{folder}/{name}" if folder else name
            here = WorkspacePath(workspace_path.mount, f"/{path}", workspace_path.scope)
            if not is_folder:
                if not path_allowed(permission, here):
                    yield path
            elif covers_whole(permission, here):
                continue
            elif path_allowed(permission, here) or may_cover_below(permission, here):
                pending.append(path)
            else:
                yield path


def _topmost(paths: frozenset[str]) -> frozenset[str]:
    """Drop paths that are below another one."""
    return frozenset(path for path in paths if not is_masked(path.rpartition("/")[0], paths))


async def _import_effect(
    effect: FilesystemEffect,
    roots: Mapping[str, WorkspacePath],
    edits: Mapping[ChangedEntry, ConfigEdit | None],
    context: ToolContext,
    base: CommandBase,
    guard: PathGuard,
) -> tuple[tuple[str, ...], UnkeptPaths]:
    left_out, path_effects, links, protected = await off_loop(effect.entries, _translated, effect, roots, edits, guard)
    context.remarks.protected += protected
    if not path_effects:
        return tuple(left_out), ()
    if links and guard.asks_about_outward_links:
        # Those inside ignored folders too, which the draft has as one piece.
        context.remarks.outward_links |= await in_thread(new_outward_links, await context.tree.disks(), links)
    untracked = UntrackedFiles({roots[mount].mount_key: written for mount, written in effect.written.items()})
    return tuple(left_out), await import_effects(context.tree, context.draft, path_effects, base, untracked)


def _translated(
    effect: FilesystemEffect,
    roots: Mapping[str, WorkspacePath],
    edits: Mapping[ChangedEntry, ConfigEdit | None],
    guard: PathGuard,
) -> tuple[list[str], list[PathEffect], list[tuple[WorkspacePath, str]], list[WorkspacePath]]:
    """Return what is left out, the effects by paths, the links with their targets, and the paths to be approved."""
    left_out: list[str] = []
    path_effects: list[PathEffect] = []
    links: list[tuple[WorkspacePath, str]] = []
    protected: list[WorkspacePath] = []
    for entry in effect.entries:
        root = roots[entry.mount]
        if entry.path == ".":
            left_out.append(f"the mode of {root}, the root of a mount")
        elif entry.kind is EntryType.SPECIAL and entry.change is not EntryChange.DELETED:
            left_out.append(f"{root}/{entry.path}, a special file")
        elif entry in edits and edits[entry] is None:
            left_out.append(f"{root}/{entry.path}, which was hidden from it")
        else:
            path, edit = WorkspacePath(root.mount, f"/{entry.path}", root.scope), edits.get(entry)
            if _needs_approval(guard, entry, path) and not (edit and edit.only_branches):
                protected.append(path)
            path_effect = _path_effect(effect, entry, path)
            if edit:
                path_effect = replace(path_effect, size=len(edit.text), open=partial(BytesIO, edit.text))
            path_effects.append(path_effect)
            if entry.target is not None and entry.change is not EntryChange.DELETED:
                links.append((path, entry.target))
    return left_out, path_effects, links, protected


def _edits_of_git_configs(
    effect: FilesystemEffect, mounts: Mapping[str, ViewMount]
) -> dict[ChangedEntry, ConfigEdit | None]:
    """Return what the command changed in configurations of which it saw a part; None where it changed no setting.

    Git writes the file anew, for example to delete a branch. What it did not see must stay.
    """
    edits = {}
    for entry in effect.masked:
        if not entry.body or not is_git_config(entry.path) or entry.change is not EntryChange.MODIFIED:
            continue
        mount = mounts[entry.mount]
        if entry.path in mount.substitutes and entry.size <= MAX_BYTES:
            with effect.open(entry) as file, suppress(InvalidGitConfig):
                edits[entry] = config_edit(mount, entry.path, file.read(MAX_BYTES))
    return edits


def _needs_approval(guard: PathGuard, entry: ChangedEntry, path: WorkspacePath) -> bool:
    """Whether a person must approve the change. Raises for what nothing can approve; then no effect is kept."""
    denial = guard.denial(PathAccess.WRITE, path)
    if denial is not None and not isinstance(denial.error, ProtectedPath):
        raise denial.error
    return denial is not None or entry.masked


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


def summarize_effect(change_sets: Sequence[ChangeSet]) -> dict[str, Any]:
    """Count created, modified and deleted files for a result, and list the first paths; empty without changes."""
    changes = [change for change_set in change_sets for change in change_set.changes]
    if not changes:
        return {}
    count = Counter(change.kind for change in changes)
    paths = in_order(path for change_set in change_sets for path in change_set.paths)
    return {
        **{str(kind): count[kind] for kind in (ChangeKind.CREATED, ChangeKind.MODIFIED, ChangeKind.DELETED)},
        "paths": [path.relative for path in paths[:MOST_PATHS]],
    }
