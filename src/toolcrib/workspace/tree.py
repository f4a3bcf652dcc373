"""The workspace as one caller sees it: history, disk and virtual files merged. Tools read through this module."""

import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.errors import (
    BadArguments,
    Conflict,
    NotFound,
    PathOutsideMount,
    PreconditionFailed,
    ToolcribError,
)
from toolcrib.core.files import DiskEntry, EntryKind, File, FileContent, PathState
from toolcrib.core.paths import Mount, WorkspacePath, is_valid_name, mount_root, parse_relative
from toolcrib.policy.authorization import PathGuard
from toolcrib.runtime.disk_threads import FEW_FILES, in_thread
from toolcrib.storage.blobs import digest
from toolcrib.storage.change_sets import AppliedFile
from toolcrib.storage.database import Tenant
from toolcrib.storage.files import PathLookup, WorkspaceHome
from toolcrib.storage.virtual_files import VIRTUAL_FOLDERS
from toolcrib.workspace.fs.mount_reader import AccessDenied, SkipNames
from toolcrib.workspace.fs.mount_writer import MountWriter, hard_link_error, too_large
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.sync.path_state import author_in_words
from toolcrib.workspace.workspace_services import WorkspaceServices

# Retries after a file changed during the lookup. More changes than this are no coincidence.
_LOOKUPS = 20
_LISTING_CHUNK = 5_000
_LOOKUP_CHUNK = 2_000
_SMALL = 65_536
_VIRTUAL_PREFIXES = tuple(f"{folder}/" for folder in VIRTUAL_FOLDERS)


class WorkspaceTree:
    """One caller's access to the workspace: membership, guard, mounts, and the state of paths.

    Reading a path checks the guard; every lookup checks the membership. ``needs`` is the role that the call requires.
    """

    def __init__(
        self,
        services: WorkspaceServices,
        caller: Caller,
        guard: PathGuard,
        *,
        needs: WorkspaceRole = WorkspaceRole.VIEWER,
    ) -> None:
        self.services = services
        self.caller = caller
        self.guard = guard
        self.needs = needs
        self.tenant = Tenant.of(caller)
        self.max_file_bytes = services.max_file_bytes
        # Agents may not read hard links: another name of the file may be protected.
        self.reads_hard_links = caller.agent is None
        # If set, lookups collect here the paths that the operating system denies, instead of raising. Their states are
        # as the history has them.
        self.denied: set[WorkspacePath] | None = None
        # Where the trees are on disk, as of the last membership check.
        self._home: WorkspaceHome | None = None

    async def check_membership(self) -> None:
        """Raise ``Forbidden`` unless the caller is a member with a sufficient role. Every lookup checks the same."""
        await self.query_history([mount_root(Mount.PROJECT)])

    async def lookup(self, path: WorkspacePath) -> PathState:
        """Return the state of a path."""
        return (await self.lookup_all([path]))[0]

    async def lookup_all(
        self, paths: Sequence[WorkspacePath], *, aliases: bool = False, past_links: bool = False
    ) -> list[PathState]:
        """Return the state of each path, after importing changes made on disk.

        Args:
            aliases: Include files with several names. The caller has checked that none of them is protected.
            past_links: Treat a path behind a link as missing instead of raising.
        """
        if len(paths) > _LOOKUP_CHUNK:
            # In pieces, so that other calls have their turn in between.
            pieces = [paths[start : start + _LOOKUP_CHUNK] for start in range(0, len(paths), _LOOKUP_CHUNK)]
            states = [await self.lookup_all(piece, aliases=aliases, past_links=past_links) for piece in pieces]
            return list(chain.from_iterable(states))
        wanted = [self.with_scope(path) for path in paths]
        asked_about: set[WorkspacePath] = set()
        for _ in range(_LOOKUPS):
            seen = await self.query(wanted)
            look = partial(
                _look_all, await self._disks(), wanted, seen.files, past_links=past_links, denied=self.denied
            )
            nodes = look() if len(wanted) <= FEW_FILES else await in_thread(look)
            found = [PathState(*row) for row in zip(wanted, seen.files, nodes, strict=True)]
            stale = [s for s in found if _is_stale(s, seen, asked_about) and s.path not in (self.denied or ())]
            if not stale:
                return found
            self.reject_aliases(() if aliases else stale)
            asked_about.update(s.path for s in stale)
            if self.denied is not None:
                self.denied |= await in_thread(_unreadable, await self._disks(), stale)
                stale = [s for s in stale if s.path not in self.denied]
            if stale:
                await self.services.sync.reconcile(self.tenant, [s.path for s in stale])
        raise _keeps_changing(paths[0])

    async def view(self, path: WorkspacePath) -> PathState:
        """Return the state of a path, including folders that exist only for virtual files."""
        return await self.or_virtual_folder(await self.lookup(path))

    async def or_virtual_folder(self, path_state: PathState) -> PathState:
        """Return a folder of virtual files if nothing else is at the path."""
        if path_state.exists or path_state.path.path not in VIRTUAL_FOLDERS:
            return path_state
        return replace(path_state, file=await self.services.virtual.folder_at(self.tenant, path_state.path))

    async def read(self, path: WorkspacePath) -> FileContent:
        """Return a file's current content. Usually takes one query and one read."""
        self.guard.check_read(path)
        path = self.with_scope(path)
        asked_about: set[WorkspacePath] = set()
        for _ in range(_LOOKUPS):
            seen = await self.query([path])
            file = seen.files[0]
            if file is not None and file.is_virtual:
                body = await self._read_virtual(file)
                return FileContent(PathState(path, file, None), body, digest(body))
            if file is None or not file.pending:
                disk = await self._disk_at(path)
                # Reading a small file takes less time than waking a thread.
                is_small = file is not None and file.state.size <= _SMALL
                reading = (
                    self._read_disk(disk, path, file)
                    if is_small
                    else await in_thread(self._read_disk, disk, path, file)
                )
                if reading is not None and not _is_stale(reading.path_state, seen, asked_about):
                    return await self._trusted(reading)
            asked_about.add(path)
            await self.services.sync.reconcile(self.tenant, [path])
        raise _keeps_changing(path)

    async def require_unchanged(self, reading: FileContent, last_read_hash: str | None) -> None:
        """Raise ``PreconditionFailed``, naming the author, if the content changed since the caller read it."""
        if last_read_hash is None or last_read_hash.lower() == reading.sha256.hex():
            return
        who, file = "someone outside Toolcrib", reading.path_state.file
        if file is not None:
            [version] = await self.services.files.versions(self.tenant, file.id, before=None, limit=1)
            who = author_in_words(version, self.caller)
        raise PreconditionFailed(
            f"{reading.path_state.path.display} changed since you read it (by {who}). "
            "Read it again, then repeat the edit."
        )

    async def stream(self, path: WorkspacePath, take: Callable[[bytes], None]) -> PathState:
        """Pass a file's content to ``take`` in pieces, for files of any size."""
        self.guard.check_read(path)
        path_state = await self.lookup(path)
        if path_state.is_virtual:
            assert path_state.file is not None
            take(await self._read_virtual(path_state.file))
            return path_state
        disk = await self._disk_at(path_state.path)
        await in_thread(_pour, disk.pieces(path_state.path, hard_links=self.reads_hard_links), take)
        return path_state

    async def head_content(self, file: File) -> bytes:
        """Return the content of a file's head, whatever is on disk."""
        if file.is_virtual:
            return await self._read_virtual(file)
        assert file.state.sha256 is not None
        return await self.services.blobs.get(self.tenant, file.state.sha256)

    async def reject_symlink(self, path_state: PathState) -> None:
        """Raise if the path is a link.

        A link that leads out of its mount is a violation, any other is only not followed.
        """
        if path_state.kind is EntryKind.LINK:
            raise (await self._disk_at(path_state.path)).symlink_error(path_state.path)

    async def list_directory(
        self,
        folder: WorkspacePath,
        *,
        recursive: bool,
        limit: int | None,
        virtual: bool = False,
        skip: SkipNames | None = None,
    ) -> list[PathState]:
        """List a folder, folders first, then by path. Applies ``limit`` after sorting.

        ``virtual`` includes virtual files, for callers that can mark them. ``skip`` leaves out names on disk.
        """
        self.guard.check_read(folder)
        path_state = await (self.view if virtual else self.lookup)(folder)
        if not path_state.exists and not folder.is_root:
            raise NotFound(f"Folder not found: {folder.display}")
        if not path_state.is_folder:
            raise BadArguments({"path": f"Not a folder: {folder.display}. Use `read` for files."})
        folder = path_state.path
        disk = None if path_state.is_virtual else await self._disk_at(folder)
        others = await self.off_disk(folder, recursive=recursive, virtual=virtual)
        known = {file.state.path.path: file.state.kind for file in others}
        # A generator: the thread reads the disk.
        names = disk.names(folder, recursive=recursive, skip=skip) if disk else ()
        return await self.path_states(await in_thread(_first_paths, names, folder, known, limit), others)

    async def path_states(
        self, paths: Sequence[WorkspacePath], off_disk: Sequence[File], *, nodes_of_all: bool = False
    ) -> list[PathState]:
        """Return the states of listed paths, with the virtual files among ``off_disk``.

        Stats only untracked paths, unless ``nodes_of_all`` is set.
        """
        virtual = {file.state.path: file for file in off_disk if file.is_virtual}
        found: list[PathState] = []
        for start in range(0, len(paths), _LISTING_CHUNK):
            chunk = paths[start : start + _LISTING_CHUNK]
            seen = await self.query_history(chunk)
            files = [_over(virtual.get(path), file) for path, file in zip(chunk, seen.files, strict=True)]
            unknown = [
                None if file and (file.is_virtual or not nodes_of_all) else path
                for path, file in zip(chunk, files, strict=True)
            ]
            nodes = await in_thread(_look_some, await self._disks(), unknown)
            listed = (PathState(*row) for row in zip(chunk, files, nodes, strict=True))
            found += [s if s.exists else replace(s, file=virtual.get(s.path)) for s in listed]
        # Drop entries that vanished between listing and lookup.
        return [path_state for path_state in found if path_state.exists]

    async def is_empty(self, folder: PathState) -> bool:
        """Whether a folder has nothing in it, not even entries that no listing shows."""
        disk = await self._disk_at(folder.path)
        return not await in_thread(disk.entries, folder.path) and not await self.off_disk(folder.path)

    async def plans(self) -> list[File]:
        """List every plan in @project from the history. The guard checks each one when it is read."""
        return await self.services.files.plans(self.tenant, mount_root(Mount.PROJECT).mount_key)

    async def query(self, paths: Sequence[WorkspacePath]) -> PathLookup:
        """Query what history and virtual files have at these paths. Checks the caller's membership."""
        seen = await self.query_history(paths)
        if not any(path.path.startswith(_VIRTUAL_PREFIXES) for path in paths):
            return seen
        virtual = await self.services.virtual.at(self.tenant, paths)
        return replace(seen, files=tuple(virtual.get(*row) for row in zip(paths, seen.files, strict=True)))

    async def query_history(self, paths: Sequence[WorkspacePath]) -> PathLookup:
        """Query what the history has at these paths. Checks the caller's membership."""
        seen = await self.services.files.lookup(self.tenant, paths, self.needs)
        seen.home.require(self.services.node)
        if not self.services.mounts.is_checked(self.caller.workspace_id, seen.home.epoch):
            # It may begin a rebuild, which makes files pending.
            await self.services.sync.trees.ensure(self.caller.workspace_id, home_epoch=seen.home.epoch)
            seen = await self.services.files.lookup(self.tenant, paths, self.needs)
        self._home = seen.home
        return seen

    async def off_disk(self, folder: WorkspacePath, *, recursive: bool = True, virtual: bool = True) -> list[File]:
        """List files in a folder that may not be on disk: changes being applied, and ``virtual`` files."""
        return await self.services.files.off_disk(self.tenant, folder, recursive=recursive, virtual=virtual)

    def with_scope(self, path: WorkspacePath) -> WorkspacePath:
        """Add the caller's scope to a path if its mount has scopes."""
        if path.mount is Mount.STATE and not path.scope:
            return replace(path, scope=self.caller.state_scope)
        return path

    def reject_aliases(self, path_states: Sequence[PathState]) -> None:
        """Keep an agent's call from importing a file with several names, because another name may be protected."""
        for path_state in path_states:
            node = path_state.node
            if self.caller.is_agent and node is not None and node.kind is EntryKind.FILE and node.links > 1:
                raise hard_link_error(path_state.path)

    async def check_write_below(self, folder: WorkspacePath, *, moved_to: WorkspacePath | None = None) -> None:
        """Check write access to everything in a folder on disk, and at its target paths if it moves.

        Name rules apply only to agents, so that only agents wait for this check.
        """
        if self.caller.agent is None:
            return
        folder = self.with_scope(folder)
        for path in await in_thread(_nameable_below, await self.disk_at(folder), folder):
            self.guard.check_write(path)
            if moved_to is not None:
                self.guard.check_write(path.relocate(folder, self.with_scope(moved_to)))

    async def disks(self) -> WorkspaceDisks:
        """Return the disks of the workspace, once they are complete."""
        await self._complete()
        return await self._disks()

    async def disk_at(self, path: WorkspacePath) -> MountWriter:
        """Return the disk of a path's mount, once it is complete."""
        await self._complete()
        return await self._disk_at(path)

    async def roots(self, mounts: Iterable[Mount]) -> dict[Mount, tuple[WorkspacePath, Path]]:
        """Return each mount's root as workspace path and as directory, once complete, for programs that run in it."""
        await self._complete()
        tree = (await self._known_home()).root_path
        paths = {mount: self.with_scope(mount_root(mount)) for mount in mounts}
        return {m: (path, self.services.mounts.root(self.caller.workspace_id, tree, path)) for m, path in paths.items()}

    async def resolve_host_path(self, path: str) -> WorkspacePath:
        """Convert an absolute host path to a workspace path. It must be in @project or @central."""
        tree = (await self._known_home()).root_path
        for mount in (Mount.PROJECT, Mount.CENTRAL):
            found = self.services.mounts.inside(self.caller.workspace_id, tree, mount, posixpath.normpath(path))
            if found is not None:
                return replace(parse_relative(found), mount=mount)
        raise PathOutsideMount(
            f"{path[:80]!r} is outside the workspace: it is in none of its mounts. "
            "Write it relative to the project, such as src/main.py, or as @central/plan.md."
        )

    async def _disks(self) -> WorkspaceDisks:
        """Return the disks. While a tree is rebuilt, the history has files that they do not have yet."""
        return self.services.mounts.disks_of(self.caller.workspace_id, (await self._known_home()).root_path)

    async def _disk_at(self, path: WorkspacePath) -> MountWriter:
        return self.services.mounts.disk(self.caller.workspace_id, (await self._known_home()).root_path, path)

    async def _complete(self) -> None:
        """Wait until the trees are rebuilt, after the disk was lost."""
        await self._known_home()
        checked = self.services.mounts.checked.get(self.caller.workspace_id)
        if checked is None or not checked.are_whole:
            await self.services.sync.trees.complete(self.caller.workspace_id)

    async def _known_home(self) -> WorkspaceHome:
        if self._home is None:
            await self.check_membership()
        assert self._home is not None
        return self._home

    async def _read_virtual(self, file: File) -> bytes:
        """Return the current content of a virtual file."""
        if file.state.size > self.max_file_bytes:
            raise too_large(file.state.path, f"{file.state.size:,}", self.max_file_bytes)
        body = (await self.services.virtual.texts(self.tenant, [file.id])).get(file.id)
        if body is None:
            raise NotFound(f"File not found: {file.state.path.display}")
        return body

    def _read_disk(self, disk: MountWriter, path: WorkspacePath, file: File | None) -> FileContent | None:
        """Read a file and compare it. Returns ``None`` if its content differs from the history."""
        try:
            body, node = disk.read(path, limit=self.max_file_bytes, hard_links=self.reads_hard_links)
        except NotFound:
            if file is None:
                raise
            return None
        path_state = PathState(path, file, node)
        if file is None:
            return FileContent(path_state, body, digest(body))
        if file.fingerprint is not None and file.fingerprint.is_proof_of(node.fingerprint) and file.state.sha256:
            return FileContent(path_state, body, file.state.sha256)
        found = digest(body)
        if file.state.is_untracked:
            same = file.fingerprint is not None and file.fingerprint.matches(node.fingerprint)
        else:
            same = found == file.state.sha256 and node.mode == file.state.mode
        return FileContent(path_state, body, found) if same else None

    async def _trusted(self, reading: FileContent) -> FileContent:
        """Save a fingerprint that was verified by reading, so that the next lookup need not read."""
        file, node = reading.path_state.file, reading.path_state.node
        if file and node and not (file.fingerprint and file.fingerprint.is_proof_of(node.fingerprint)):
            seen = AppliedFile(file.id, file.version_id, node.fingerprint)
            await self.services.changes.save_fingerprints(self.tenant, [seen], await self._known_home())
        return reading


def _keeps_changing(path: WorkspacePath) -> Conflict:
    """Return the error of a path that was different at every lookup."""
    return Conflict(f"{path.display} keeps changing on disk. Stop the program that writes it, then try again.")


def _nameable_below(disk: MountWriter, folder: WorkspacePath) -> list[WorkspacePath]:
    """Return the paths below a folder on disk. Leaves out what no path can name, such as special files."""
    depth = len(folder.parts)
    return [
        path
        for path, entry in disk.walk(folder)
        if entry.kind is not None and all(map(is_valid_name, path.parts[depth:]))
    ]


def _is_stale(path_state: PathState, seen: PathLookup, asked_about: set[WorkspacePath]) -> bool:
    """Whether history and disk must be reconciled before the state is returned."""
    file, node = path_state.file, path_state.node
    if file is None:
        # After a crash, it may be left over from a move or a deletion. Reconcile it once.
        return seen.any_pending and node is not None and path_state.path not in asked_about
    if file.is_virtual:
        return False
    return file.pending or file.differs_by_stat(node)


def _look_all(
    disk_of: WorkspaceDisks,
    paths: Sequence[WorkspacePath],
    files: Sequence[File | None],
    *,
    past_links: bool,
    denied: set[WorkspacePath] | None,
) -> list[DiskEntry | None]:
    look = MountWriter.stat_no_symlinks if past_links else MountWriter.stat
    nodes: list[DiskEntry | None] = []
    for path, file in zip(paths, files, strict=True):
        try:
            nodes.append(None if file is not None and file.is_virtual else look(disk_of(path), path))
        except AccessDenied:
            if denied is None:
                raise
            denied.add(path)
            nodes.append(None)
    return nodes


def _unreadable(disk_of: WorkspaceDisks, path_states: Sequence[PathState]) -> set[WorkspacePath]:
    """Return the files that the operating system does not let the server read."""
    found: set[WorkspacePath] = set()
    for path_state in path_states:
        if path_state.node is None or path_state.node.kind is not EntryKind.FILE:
            continue
        try:
            disk_of(path_state.path).read_head(path_state.path, ())
        except AccessDenied:
            found.add(path_state.path)
        except ToolcribError:
            # The lookup says what it is.
            continue
    return found


def _first_paths(
    names: Iterable[tuple[str, str, EntryKind | None]],
    folder: WorkspacePath,
    known: dict[str, EntryKind],
    limit: int | None,
) -> list[WorkspacePath]:
    """Return the first paths of a listing, folders first. Checks only as many names as it returns."""
    kinds = known | {path: kind for path, _, kind in names if kind is not None}
    folders = sorted(path for path, kind in kinds.items() if kind is EntryKind.FOLDER)
    others = sorted(path for path, kind in kinds.items() if kind is not EntryKind.FOLDER)
    paths = (WorkspacePath(folder.mount, path, folder.scope) for path in chain(folders, others))
    depth = len(folder.parts)
    nameable = (path for path in paths if all(map(is_valid_name, path.parts[depth:])))
    return list(islice(nameable, min(limit, len(kinds)) if limit else None))


def _over(virtual: File | None, file: File | None) -> File | None:
    """A virtual file hides a tracked one; a folder of virtual files hides nothing."""
    return virtual if virtual and virtual.state.kind is EntryKind.FILE else file


def _pour(pieces: Iterable[bytes], take: Callable[[bytes], None]) -> None:
    for piece in pieces:
        take(piece)


def _look_some(disk_of: WorkspaceDisks, paths: Sequence[WorkspacePath | None]) -> list[DiskEntry | None]:
    return [None if path is None else disk_of(path).stat(path) for path in paths]
