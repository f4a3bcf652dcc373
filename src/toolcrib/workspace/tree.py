"""The workspace as one caller sees it: history and disk merged, with every path checked by the guard.

Tools read through this module.
"""

import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.errors import BadArguments, Conflict, NotFound, PathOutsideMount, PreconditionFailed
from toolcrib.core.files import EntryKind, File
from toolcrib.core.ids import VersionId
from toolcrib.core.paths import Mount, WorkspacePath, mount_root, parse_relative, shown
from toolcrib.runtime.disk_threads import in_thread, in_thread_if_many
from toolcrib.storage.blobs import digest
from toolcrib.storage.change_sets import AppliedFile
from toolcrib.storage.database import Tenant
from toolcrib.storage.files import PathLookup, WorkspaceHome
from toolcrib.storage.trash import TrashedFile
from toolcrib.workspace.file_history import FileHistory
from toolcrib.workspace.fs.disk_entries import DiskEntry
from toolcrib.workspace.fs.folder_entries import first_paths, paths_in
from toolcrib.workspace.fs.mount_writer import MountWriter, hard_link_error
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.fs.ripgrep import Ripgrep
from toolcrib.workspace.fs.trash import TrashDirectory, token_of
from toolcrib.workspace.sync.path_state import FileContent, PathState, author_in_words, is_stale, stat_no_symlinks
from toolcrib.workspace.virtual_files import VirtualTree
from toolcrib.workspace.workspace_services import Guard, WorkspaceServices

__all__ = ["WorkspaceServices", "WorkspaceTree"]

# Retries after a file changed during the lookup. More changes than this are no coincidence.
_LOOKS = 20
_LISTING_CHUNK = 5_000
_SMALL = 65_536


class WorkspaceTree:
    """One caller's view of the workspace. ``needs`` is the role that the call requires."""

    def __init__(
        self,
        workspace_services: WorkspaceServices,
        caller: Caller,
        guard: Guard,
        *,
        needs: WorkspaceRole = WorkspaceRole.VIEWER,
    ) -> None:
        self._workspace_services = workspace_services
        self._caller = caller
        self._guard = guard
        self._needs = needs
        self._tenant = Tenant.of(caller)
        # Where the trees are on disk, as of the membership check.
        self._home: WorkspaceHome | None = None
        self.virtual = VirtualTree(workspace_services, self._tenant)
        self.history = FileHistory(workspace_services, self._tenant, guard, self.lookup_all, needs=needs)

    @property
    def max_file_bytes(self) -> int:
        return self._workspace_services.max_file_bytes

    async def check_membership(self) -> None:
        """Raise ``Forbidden`` unless the caller is a member with a sufficient role. Every lookup checks the same."""
        self._home = (await self._lookup_paths([mount_root(Mount.PROJECT)])).home

    async def lookup(self, path: WorkspacePath) -> PathState:
        """Return the state of a path."""
        return (await self.lookup_all([path]))[0]

    async def view(self, path: WorkspacePath) -> PathState:
        """Return the state of a path, including folders that exist only for virtual files."""
        return await self.virtual.folder_or(await self.lookup(path))

    async def lookup_all(
        self, paths: Sequence[WorkspacePath], *, aliases: bool = False, past_links: bool = False
    ) -> list[PathState]:
        """Return the state of each path, after importing changes made on disk.

        Args:
            aliases: Include files with several names. The caller has checked that none of them is protected.
            past_links: Treat a path behind a link as missing instead of raising.
        """
        wanted = [self.with_scope(path) for path in paths]
        asked_about: set[WorkspacePath] = set()
        for _ in range(_LOOKS):
            seen = await self._lookup_paths(wanted)
            look = partial(_look_all, past_links=past_links)
            nodes = await in_thread_if_many(len(wanted), look, self._disks(seen), wanted, seen.files)
            found = [PathState(*row) for row in zip(wanted, seen.files, nodes, strict=True)]
            stale = [s for s in found if is_stale(s, seen, asked_about)]
            if not stale:
                return found
            self._reject_aliases(() if aliases else stale)
            asked_about.update(s.path for s in stale)
            await self._workspace_services.sync.reconcile(self._tenant, [s.path for s in stale])
        raise Conflict(f"{shown(paths[0])} keeps changing on disk. Stop the program that writes it, then try again.")

    async def read(self, path: WorkspacePath) -> FileContent:
        """Return a file's current content. Usually takes one query and one read."""
        self._guard.check_read(path)
        path = self.with_scope(path)
        asked_about: set[WorkspacePath] = set()
        for _ in range(_LOOKS):
            seen = await self._lookup_paths([path])
            file = seen.files[0]
            if file is not None and file.is_virtual:
                return await self.virtual.read(file)
            if file is None or not file.pending:
                reading = await self._read_here_or_in_thread(self._disks(seen)(path), path, file)
                if reading is not None and not is_stale(reading.path_state, seen, asked_about):
                    return await self._trusted(reading)
            asked_about.add(path)
            await self._workspace_services.sync.reconcile(self._tenant, [path])
        raise Conflict(f"{shown(path)} keeps changing on disk. Stop the program that writes it, then try again.")

    async def require_unchanged(self, reading: FileContent, last_read_hash: str | None) -> None:
        """Raise ``PreconditionFailed``, naming the author, if the content changed since the caller read it."""
        if last_read_hash is None or last_read_hash.lower() == reading.sha256.hex():
            return
        who = "someone outside Toolcrib"
        if reading.path_state.file is not None:
            [version] = await self._workspace_services.files.versions(
                self._tenant, reading.path_state.file.id, before=None, limit=1
            )
            who = author_in_words(version, self._caller)
        raise PreconditionFailed(
            f"{shown(reading.path_state.path)} changed since you read it (by {who}). "
            "Read it again, then repeat the edit."
        )

    async def stream(self, path: WorkspacePath, take: Callable[[bytes], None]) -> PathState:
        """Pass a file's content to ``take`` in pieces, for files of any size."""
        self._guard.check_read(path)
        path_state = await self.lookup(path)
        if path_state.is_virtual:
            assert path_state.file is not None
            take(await self.head_content(path_state.file))
            return path_state
        disk = await self.disk_at(path_state.path)
        await in_thread(_pour, disk.pieces(path_state.path, hard_links=self.reads_hard_links), take)
        return path_state

    async def lines_matching(
        self, text: str, pattern: str, *, ignore_case: bool, seconds: float, limit: int
    ) -> list[int]:
        """Return the numbers, from 0, of the lines that a PostgreSQL regular expression matches."""
        return await self._workspace_services.regexes.lines(
            self._tenant, text, pattern, ignore_case=ignore_case, seconds=seconds, limit=limit
        )

    async def reject_symlink(self, path_state: PathState) -> None:
        """Raise if the path is a link.

        A link that leads out of its mount is a violation, any other is only not followed.
        """
        if path_state.kind is EntryKind.LINK:
            raise (await self.disk_at(path_state.path)).symlink_error(path_state.path)

    async def resolve_host_path(self, path: str) -> WorkspacePath:
        """Convert an absolute host path to a workspace path. It must be in @project or @central."""
        seen = await self._lookup_paths([mount_root(Mount.PROJECT)])
        for mount in (Mount.PROJECT, Mount.CENTRAL):
            found = self._workspace_services.mounts.inside(
                self._caller.workspace_id, seen.home.root_path, mount, posixpath.normpath(path)
            )
            if found is not None:
                return replace(parse_relative(found), mount=mount)
        raise PathOutsideMount(
            f"{path[:80]!r} is outside the workspace: it is in none of its mounts. "
            "Write it relative to the project, such as src/main.py, or as @central/plan.md."
        )

    async def track(
        self, paths: Sequence[WorkspacePath], *, whole: bool = False, aliases: bool = False
    ) -> list[PathState]:
        """Import files that are only on disk, with the folders above them.

        Args:
            whole: Import without content, folders with everything in them.
            aliases: As in ``lookup_all``.
        """
        self._reject_aliases(await self.lookup_all(paths) if self._caller.is_agent and not aliases else ())
        wanted = [self.with_scope(path) for path in paths]
        everything = {above for path in wanted for above in (*path.ancestors, path)}
        await self._workspace_services.sync.reconcile(
            self._tenant, sorted(everything), track=True, whole=wanted if whole else ()
        )
        return await self.lookup_all(paths, aliases=aliases)

    async def wait_until_applied(self) -> None:
        """Wait until all changes are on disk. Applies those that a crash left."""
        await self._workspace_services.sync.wait_until_applied(self._tenant)

    async def list_directory(
        self, folder: WorkspacePath, *, recursive: bool, limit: int | None, virtual: bool = False
    ) -> list[PathState]:
        """List a folder, folders first, then by path. Applies ``limit`` after sorting.

        ``virtual`` includes virtual files, for callers that can mark them.
        """
        self._guard.check_read(folder)
        path_state = await (self.view if virtual else self.lookup)(folder)
        if not path_state.exists and not folder.is_root:
            raise NotFound(f"Folder not found: {shown(folder)}")
        if not path_state.is_folder:
            raise BadArguments({"path": f"Not a folder: {shown(folder)}. Use `read` for files."})
        folder = path_state.path
        disk = None if path_state.is_virtual else self._disks(await self._lookup_paths([folder]))(folder)
        others = await self._workspace_services.files.off_disk(
            self._tenant, folder, recursive=recursive, virtual=virtual
        )
        known = {file.state.path.path: file.state.kind for file in others}
        shown_first = await in_thread(partial(first_paths, disk, folder, known, recursive=recursive, limit=limit))
        return await self.path_states(shown_first, others)

    async def plans(self) -> list[File]:
        """List every plan in @project from the history. The guard checks each one when it is read."""
        return await self._workspace_services.files.plans(self._tenant, mount_root(Mount.PROJECT).mount_key)

    async def is_empty(self, folder: PathState) -> bool:
        """Whether a folder has nothing in it, not even entries that no listing shows."""
        disk = self._disks(await self._lookup_paths([folder.path]))(folder.path)
        if await in_thread(disk.entries, folder.path):
            return False
        return not await self.off_disk(folder.path)

    async def disk_paths_below(self, folder: WorkspacePath) -> list[WorkspacePath]:
        """Return every path below a folder that exists on disk, tracked or not."""
        folder = self.with_scope(folder)
        disk = self._disks(await self._lookup_paths([folder]))(folder)
        return [path for path, _ in await in_thread(lambda: list(disk.walk(folder)))]

    async def tracked_below(self, folder: WorkspacePath) -> list[File]:
        """Return everything tracked below a folder, after importing changes made on disk."""
        files = await self._workspace_services.files.below(self._tenant, self.with_scope(folder))
        path_states = await self.lookup_all([file.state.path for file in files]) if files else []
        return [path_state.file for path_state in path_states if path_state.file is not None]

    def with_scope(self, path: WorkspacePath) -> WorkspacePath:
        """Add the caller's scope to a path if its mount has scopes."""
        if path.mount is Mount.STATE and not path.scope:
            return replace(path, scope=self._caller.state_scope)
        return path

    # For modules of this package, which check the guard themselves.

    async def stage(self, staged: Sequence[TrashedFile]) -> TrashDirectory:
        """Record what is about to be moved into the trash, until a change set brings it into the tree."""
        await self._workspace_services.trash.stage(self._tenant, staged, node=self._workspace_services.node)
        return self._workspace_services.mounts.trash(self._caller.workspace_id)

    async def author_of(self, version_id: VersionId | None) -> str:
        """Describe who made a version. Without a version, it was an outside program."""
        if version_id is None:
            return "a program outside Toolcrib"
        return author_in_words(await self._workspace_services.files.version(self._tenant, version_id), self._caller)

    async def roots(self, mounts: Iterable[Mount]) -> dict[Mount, tuple[WorkspacePath, Path]]:
        """Return each mount's root as workspace path and as directory, for programs that run in it."""
        if self._home is None:
            await self.check_membership()
        assert self._home is not None
        paths = {mount: self.with_scope(mount_root(mount)) for mount in mounts}
        workspace_id, tree = self._caller.workspace_id, self._home.root_path
        return {m: (path, self._workspace_services.mounts.root(workspace_id, tree, path)) for m, path in paths.items()}

    async def disks(self) -> WorkspaceDisks:
        """Return the disks of the workspace."""
        return self._disks(await self._lookup_paths([mount_root(Mount.PROJECT)]))

    async def disk_at(self, path: WorkspacePath) -> MountWriter:
        """Return the disk of a path's mount."""
        return self._disks(await self._lookup_paths([path]))(path)

    async def off_disk(self, folder: WorkspacePath, *, recursive: bool = True, virtual: bool = True) -> list[File]:
        """List files in a folder that may not be on disk: changes being applied, and ``virtual`` files."""
        return await self._workspace_services.files.off_disk(self._tenant, folder, recursive=recursive, virtual=virtual)

    async def head_content(self, file: File) -> bytes:
        """Return the content of a file's head, whatever is on disk."""
        if file.is_virtual:
            return (await self.virtual.read(file)).body
        assert file.state.sha256 is not None
        return await self._workspace_services.blobs.get(self._tenant, file.state.sha256)

    @property
    def ripgrep(self) -> Ripgrep:
        return self._workspace_services.ripgrep

    @property
    def is_an_agents(self) -> bool:
        """Whether the caller is an agent, to which name and permission rules apply."""
        return self._caller.is_agent

    @property
    def reads_hard_links(self) -> bool:
        """Whether the caller may read hard links. Agents may not: another name of the file may be protected."""
        return not self._caller.is_agent

    def check_read(self, path: WorkspacePath) -> None:
        """Raise if the caller may not read a path."""
        self._guard.check_read(path)

    def check_write(self, path: WorkspacePath) -> None:
        """Raise if the caller may not change a path."""
        self._guard.check_write(path)

    def check_name(self, path: WorkspacePath) -> None:
        """Raise if the caller may not create this name."""
        self._guard.check_name(path)

    async def check_write_below(self, folder: WorkspacePath, *, moved_to: WorkspacePath | None = None) -> None:
        """Check write access to everything in a folder on disk, and at its target paths if it moves.

        Name rules apply only to agents, so that only agents wait for this check.
        """
        if not self._caller.is_agent:
            return
        folder = self.with_scope(folder)
        disk = self._disks(await self._lookup_paths([folder]))(folder)
        for path in await in_thread(partial(paths_in, disk, folder, recursive=True)):
            self._guard.check_write(path)
            if moved_to is not None:
                self._guard.check_write(path.relocate(folder, self.with_scope(moved_to)))

    def _reject_aliases(self, path_states: Sequence[PathState]) -> None:
        """Keep an agent's call from importing a file with several names, because another name may be protected."""
        for path_state in path_states:
            node = path_state.node
            if self._caller.is_agent and node is not None and node.kind is EntryKind.FILE and node.links > 1:
                raise hard_link_error(path_state.path)

    async def _lookup_paths(self, paths: Sequence[WorkspacePath]) -> PathLookup:
        return await self.virtual.added_to(await self._look_real(paths), paths)

    async def _look_real(self, paths: Sequence[WorkspacePath]) -> PathLookup:
        seen = await self._workspace_services.files.lookup(self._tenant, paths, self._needs)
        seen.home.require(self._workspace_services.node)
        return seen

    def _disks(self, seen: PathLookup) -> WorkspaceDisks:
        return self._workspace_services.mounts.disks_of(self._caller.workspace_id, seen.home.root_path)

    async def _read_here_or_in_thread(
        self, disk: MountWriter, path: WorkspacePath, file: File | None
    ) -> FileContent | None:
        # Reading a small file takes less time than waking a thread.
        if file is not None and file.state.size <= _SMALL:
            return self._read_disk(disk, path, file)
        return await in_thread(self._read_disk, disk, path, file)

    def _read_disk(self, disk: MountWriter, path: WorkspacePath, file: File | None) -> FileContent | None:
        """Read a file and compare it. Returns ``None`` if its content differs from the history."""
        try:
            body, node = disk.read(path, limit=self.max_file_bytes, hard_links=not self._caller.is_agent)
        except NotFound:
            if file is None:
                raise
            return None
        path_state = PathState(path, file, node)
        if file is None:
            return FileContent(path_state, body, digest(body))
        if file.fingerprint is not None and file.fingerprint.is_proof_of(node.fingerprint) and file.state.sha256:
            return FileContent(path_state, body, file.state.sha256)
        if token_of(file.state) is not None:
            same = file.fingerprint is not None and file.fingerprint.matches(node.fingerprint)
            return FileContent(path_state, body, digest(body)) if same else None
        found = digest(body)
        same = found == file.state.sha256 and node.mode == file.state.mode
        return FileContent(path_state, body, found) if same else None

    async def _trusted(self, reading: FileContent) -> FileContent:
        """Save a fingerprint that was verified by reading, so that the next lookup need not read."""
        file, node = reading.path_state.file, reading.path_state.node
        if file and node and not (file.fingerprint and file.fingerprint.is_proof_of(node.fingerprint)):
            seen = AppliedFile(file.id, file.version_id, node.fingerprint)
            await self._workspace_services.changes.save_fingerprints(self._tenant, [seen])
        return reading

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
            seen = await self._look_real(chunk)
            files = [_over(virtual.get(path), file) for path, file in zip(chunk, seen.files, strict=True)]
            unknown = [
                None if file and (file.is_virtual or not nodes_of_all) else path
                for path, file in zip(chunk, files, strict=True)
            ]
            nodes = await in_thread(_look_some, self._disks(seen), unknown)
            listed = (PathState(*row) for row in zip(chunk, files, nodes, strict=True))
            found += [s if s.exists else replace(s, file=virtual.get(s.path)) for s in listed]
        # Drop entries that vanished between listing and lookup.
        return [path_state for path_state in found if path_state.exists]


def _over(virtual: File | None, file: File | None) -> File | None:
    """A virtual file hides a tracked one; a folder of virtual files hides nothing."""
    return virtual if virtual and virtual.state.kind is EntryKind.FILE else file


def _pour(pieces: Iterable[bytes], take: Callable[[bytes], None]) -> None:
    for piece in pieces:
        take(piece)


def _look_all(
    disk_of: WorkspaceDisks, paths: Sequence[WorkspacePath], files: Sequence[File | None], *, past_links: bool
) -> list[DiskEntry | None]:
    look = stat_no_symlinks if past_links else MountWriter.stat
    return [
        None if file is not None and file.is_virtual else look(disk_of(path), path)
        for path, file in zip(paths, files, strict=True)
    ]


def _look_some(disk_of: WorkspaceDisks, paths: Sequence[WorkspacePath | None]) -> list[DiskEntry | None]:
    return [None if path is None else disk_of(path).stat(path) for path in paths]
