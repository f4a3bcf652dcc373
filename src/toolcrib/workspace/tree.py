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
from toolcrib.workspace.fs.folder_entries import first_places, places_in
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
        self, shelves: WorkspaceServices, caller: Caller, guard: Guard, *, needs: WorkspaceRole = WorkspaceRole.VIEWER
    ) -> None:
        self._shelves = shelves
        self._caller = caller
        self._guard = guard
        self._needs = needs
        self._tenant = Tenant.of(caller)
        # Where the trees are on disk, as of the membership check.
        self._home: WorkspaceHome | None = None
        self.virtual = VirtualTree(shelves, self._tenant)
        self.history = FileHistory(shelves, self._tenant, guard, self.lookup_all, needs=needs)

    @property
    def max_file_bytes(self) -> int:
        return self._shelves.max_file_bytes

    async def check_membership(self) -> None:
        """Raise ``Forbidden`` unless the caller is a member with a sufficient role. Every lookup checks the same."""
        self._home = (await self._look([mount_root(Mount.PROJECT)])).home

    async def lookup(self, place: WorkspacePath) -> PathState:
        """Return the state of a path."""
        return (await self.lookup_all([place]))[0]

    async def view(self, place: WorkspacePath) -> PathState:
        """Return the state of a path, including folders that exist only for virtual files."""
        return await self.virtual.folder_or(await self.lookup(place))

    async def lookup_all(
        self, places: Sequence[WorkspacePath], *, aliases: bool = False, past_links: bool = False
    ) -> list[PathState]:
        """Return the state of each path, after importing changes made on disk.

        Args:
            aliases: Include files with several names. The caller has checked that none of them is protected.
            past_links: Treat a path behind a link as missing instead of raising.
        """
        wanted = [self.with_scope(place) for place in places]
        asked_about: set[WorkspacePath] = set()
        for _ in range(_LOOKS):
            seen = await self._look(wanted)
            look = partial(_look_all, past_links=past_links)
            nodes = await in_thread_if_many(len(wanted), look, self._disks(seen), wanted, seen.files)
            found = [PathState(*row) for row in zip(wanted, seen.files, nodes, strict=True)]
            stale = [s for s in found if is_stale(s, seen, asked_about)]
            if not stale:
                return found
            self._refuse_aliases(() if aliases else stale)
            asked_about.update(s.place for s in stale)
            await self._shelves.sync.reconcile(self._tenant, [s.place for s in stale])
        raise Conflict(f"{shown(places[0])} keeps changing on disk. Stop the program that writes it, then try again.")

    async def read(self, place: WorkspacePath) -> FileContent:
        """Return a file's current content. Usually takes one query and one read."""
        self._guard.check_read(place)
        place = self.with_scope(place)
        asked_about: set[WorkspacePath] = set()
        for _ in range(_LOOKS):
            seen = await self._look([place])
            file = seen.files[0]
            if file is not None and file.is_virtual:
                return await self.virtual.read(file)
            if file is None or not file.pending:
                reading = await self._read_here_or_in_thread(self._disks(seen)(place), place, file)
                if reading is not None and not is_stale(reading.standing, seen, asked_about):
                    return await self._trusted(reading)
            asked_about.add(place)
            await self._shelves.sync.reconcile(self._tenant, [place])
        raise Conflict(f"{shown(place)} keeps changing on disk. Stop the program that writes it, then try again.")

    async def require_unchanged(self, reading: FileContent, last_read_hash: str | None) -> None:
        """Raise ``PreconditionFailed``, naming the author, if the content changed since the caller read it."""
        if last_read_hash is None or last_read_hash.lower() == reading.sha256.hex():
            return
        who = "someone outside Toolcrib"
        if reading.standing.file is not None:
            [version] = await self._shelves.files.versions(self._tenant, reading.standing.file.id, before=None, limit=1)
            who = author_in_words(version, self._caller)
        raise PreconditionFailed(
            f"{shown(reading.standing.place)} changed since you read it (by {who}). "
            "Read it again, then repeat the edit."
        )

    async def stream(self, place: WorkspacePath, take: Callable[[bytes], None]) -> PathState:
        """Pass a file's content to ``take`` in pieces, for files of any size."""
        self._guard.check_read(place)
        standing = await self.lookup(place)
        if standing.is_virtual:
            assert standing.file is not None
            take(await self.head_content(standing.file))
            return standing
        disk = await self.disk_at(standing.place)
        await in_thread(_pour, disk.pieces(standing.place, hard_links=self.reads_hard_links), take)
        return standing

    async def lines_matching(
        self, text: str, pattern: str, *, ignore_case: bool, seconds: float, limit: int
    ) -> list[int]:
        """Return the numbers, from 0, of the lines that a PostgreSQL regular expression matches."""
        return await self._shelves.regexes.lines(
            self._tenant, text, pattern, ignore_case=ignore_case, seconds=seconds, limit=limit
        )

    async def reject_symlink(self, standing: PathState) -> None:
        """Raise if the path is a link.

        A link that leads out of its mount is a violation, any other is only not followed.
        """
        if standing.kind is EntryKind.LINK:
            raise (await self.disk_at(standing.place)).symlink_error(standing.place)

    async def resolve_host_path(self, path: str) -> WorkspacePath:
        """Convert an absolute host path to a workspace path. It must be in @project or @central."""
        seen = await self._look([mount_root(Mount.PROJECT)])
        for mount in (Mount.PROJECT, Mount.CENTRAL):
            found = self._shelves.mounts.inside(
                self._caller.workspace_id, seen.home.root_path, mount, posixpath.normpath(path)
            )
            if found is not None:
                return replace(parse_relative(found), mount=mount)
        raise PathOutsideMount(
            f"{path[:80]!r} is outside the workspace: it is in none of its mounts. "
            "Write it relative to the project, such as src/main.py, or as @central/plan.md."
        )

    async def track(
        self, places: Sequence[WorkspacePath], *, whole: bool = False, aliases: bool = False
    ) -> list[PathState]:
        """Import files that are only on disk, with the folders above them.

        Args:
            whole: Import without content, folders with everything in them.
            aliases: As in ``lookup_all``.
        """
        self._refuse_aliases(await self.lookup_all(places) if self._caller.is_agent and not aliases else ())
        wanted = [self.with_scope(place) for place in places]
        everything = {above for place in wanted for above in (*place.ancestors, place)}
        await self._shelves.sync.reconcile(
            self._tenant, sorted(everything), take_in=True, whole=wanted if whole else ()
        )
        return await self.lookup_all(places, aliases=aliases)

    async def wait_until_applied(self) -> None:
        """Wait until all changes are on disk. Applies those that a crash left."""
        await self._shelves.sync.wait_until_applied(self._tenant)

    async def list_directory(
        self, folder: WorkspacePath, *, recursive: bool, limit: int | None, virtual: bool = False
    ) -> list[PathState]:
        """List a folder, folders first, then by path. Applies ``limit`` after sorting.

        ``virtual`` includes virtual files, for callers that can mark them.
        """
        self._guard.check_read(folder)
        standing = await (self.view if virtual else self.lookup)(folder)
        if not standing.exists and not folder.is_root:
            raise NotFound(f"Folder not found: {shown(folder)}")
        if not standing.is_folder:
            raise BadArguments({"path": f"Not a folder: {shown(folder)}. Use `read` for files."})
        folder = standing.place
        disk = None if standing.is_virtual else self._disks(await self._look([folder]))(folder)
        others = await self._shelves.files.off_disk(self._tenant, folder, recursive=recursive, virtual=virtual)
        known = {file.state.place.path: file.state.kind for file in others}
        shown_first = await in_thread(partial(first_places, disk, folder, known, recursive=recursive, limit=limit))
        return await self.path_states(shown_first, others)

    async def plans(self) -> list[File]:
        """List every plan in @project from the history. The guard checks each one when it is read."""
        return await self._shelves.files.plans(self._tenant, mount_root(Mount.PROJECT).mount_key)

    async def is_empty(self, folder: PathState) -> bool:
        """Whether a folder has nothing in it, not even entries that no listing shows."""
        disk = self._disks(await self._look([folder.place]))(folder.place)
        if await in_thread(disk.entries, folder.place):
            return False
        return not await self.off_disk(folder.place)

    async def disk_paths_below(self, folder: WorkspacePath) -> list[WorkspacePath]:
        """Return every path below a folder that exists on disk, tracked or not."""
        folder = self.with_scope(folder)
        disk = self._disks(await self._look([folder]))(folder)
        return [place for place, _ in await in_thread(lambda: list(disk.walk(folder)))]

    async def tracked_below(self, folder: WorkspacePath) -> list[File]:
        """Return everything tracked below a folder, after importing changes made on disk."""
        files = await self._shelves.files.below(self._tenant, self.with_scope(folder))
        standings = await self.lookup_all([file.state.place for file in files]) if files else []
        return [standing.file for standing in standings if standing.file is not None]

    def with_scope(self, place: WorkspacePath) -> WorkspacePath:
        """Add the caller's scope to a path if its mount has scopes."""
        if place.mount is Mount.STATE and not place.scope:
            return replace(place, scope=self._caller.state_scope)
        return place

    # For modules of this package, which check the guard themselves.

    async def stage(self, staged: Sequence[TrashedFile]) -> TrashDirectory:
        """Record what is about to be moved into the trash, until a change set brings it into the tree."""
        await self._shelves.trash.stage(self._tenant, staged, node=self._shelves.node)
        return self._shelves.mounts.trash(self._caller.workspace_id)

    async def author_of(self, version_id: VersionId | None) -> str:
        """Describe who made a version. Without a version, it was an outside program."""
        if version_id is None:
            return "a program outside Toolcrib"
        return author_in_words(await self._shelves.files.version(self._tenant, version_id), self._caller)

    async def roots(self, mounts: Iterable[Mount]) -> dict[Mount, tuple[WorkspacePath, Path]]:
        """Return each mount's root as workspace path and as directory, for programs that run in it."""
        if self._home is None:
            await self.check_membership()
        assert self._home is not None
        places = {mount: self.with_scope(mount_root(mount)) for mount in mounts}
        workspace_id, tree = self._caller.workspace_id, self._home.root_path
        return {m: (place, self._shelves.mounts.root(workspace_id, tree, place)) for m, place in places.items()}

    async def disks(self) -> WorkspaceDisks:
        """Return the disks of the workspace."""
        return self._disks(await self._look([mount_root(Mount.PROJECT)]))

    async def disk_at(self, place: WorkspacePath) -> MountWriter:
        """Return the disk of a path's mount."""
        return self._disks(await self._look([place]))(place)

    async def off_disk(self, folder: WorkspacePath, *, recursive: bool = True, virtual: bool = True) -> list[File]:
        """List files in a folder that may not be on disk: changes being applied, and ``virtual`` files."""
        return await self._shelves.files.off_disk(self._tenant, folder, recursive=recursive, virtual=virtual)

    async def head_content(self, file: File) -> bytes:
        """Return the content of a file's head, whatever is on disk."""
        if file.is_virtual:
            return (await self.virtual.read(file)).body
        assert file.state.sha256 is not None
        return await self._shelves.blobs.get(self._tenant, file.state.sha256)

    @property
    def ripgrep(self) -> Ripgrep:
        return self._shelves.ripgrep

    @property
    def is_an_agents(self) -> bool:
        """Whether the caller is an agent, to which name and permission rules apply."""
        return self._caller.is_agent

    @property
    def reads_hard_links(self) -> bool:
        """Whether the caller may read hard links. Agents may not: another name of the file may be protected."""
        return not self._caller.is_agent

    def check_read(self, place: WorkspacePath) -> None:
        """Raise if the caller may not read a path."""
        self._guard.check_read(place)

    def check_write(self, place: WorkspacePath) -> None:
        """Raise if the caller may not change a path."""
        self._guard.check_write(place)

    def check_name(self, place: WorkspacePath) -> None:
        """Raise if the caller may not create this name."""
        self._guard.check_name(place)

    async def check_write_below(self, folder: WorkspacePath, *, moved_to: WorkspacePath | None = None) -> None:
        """Check write access to everything in a folder on disk, and at its target paths if it moves.

        Name rules apply only to agents, so that only agents wait for this check.
        """
        if not self._caller.is_agent:
            return
        folder = self.with_scope(folder)
        disk = self._disks(await self._look([folder]))(folder)
        for place in await in_thread(partial(places_in, disk, folder, recursive=True)):
            self._guard.check_write(place)
            if moved_to is not None:
                self._guard.check_write(place.relocate(folder, self.with_scope(moved_to)))

    def _refuse_aliases(self, standings: Sequence[PathState]) -> None:
        """Keep an agent's call from importing a file with several names, because another name may be protected."""
        for standing in standings:
            node = standing.node
            if self._caller.is_agent and node is not None and node.kind is EntryKind.FILE and node.links > 1:
                raise hard_link_error(standing.place)

    async def _look(self, places: Sequence[WorkspacePath]) -> PathLookup:
        return await self.virtual.added_to(await self._look_real(places), places)

    async def _look_real(self, places: Sequence[WorkspacePath]) -> PathLookup:
        seen = await self._shelves.files.lookup(self._tenant, places, self._needs)
        seen.home.require(self._shelves.node)
        return seen

    def _disks(self, seen: PathLookup) -> WorkspaceDisks:
        return self._shelves.mounts.disks_of(self._caller.workspace_id, seen.home.root_path)

    async def _read_here_or_in_thread(
        self, disk: MountWriter, place: WorkspacePath, file: File | None
    ) -> FileContent | None:
        # Reading a small file takes less time than waking a thread.
        if file is not None and file.state.size <= _SMALL:
            return self._read_disk(disk, place, file)
        return await in_thread(self._read_disk, disk, place, file)

    def _read_disk(self, disk: MountWriter, place: WorkspacePath, file: File | None) -> FileContent | None:
        """Read a file and compare it. Returns ``None`` if its content differs from the history."""
        try:
            body, node = disk.read(place, limit=self.max_file_bytes, hard_links=not self._caller.is_agent)
        except NotFound:
            if file is None:
                raise
            return None
        standing = PathState(place, file, node)
        if file is None:
            return FileContent(standing, body, digest(body))
        if file.fingerprint is not None and file.fingerprint.is_proof_of(node.fingerprint) and file.state.sha256:
            return FileContent(standing, body, file.state.sha256)
        if token_of(file.state) is not None:
            same = file.fingerprint is not None and file.fingerprint.matches(node.fingerprint)
            return FileContent(standing, body, digest(body)) if same else None
        found = digest(body)
        same = found == file.state.sha256 and node.mode == file.state.mode
        return FileContent(standing, body, found) if same else None

    async def _trusted(self, reading: FileContent) -> FileContent:
        """Save a fingerprint that was verified by reading, so that the next lookup need not read."""
        file, node = reading.standing.file, reading.standing.node
        if file and node and not (file.fingerprint and file.fingerprint.is_proof_of(node.fingerprint)):
            seen = AppliedFile(file.id, file.version_id, node.fingerprint)
            await self._shelves.changes.save_fingerprints(self._tenant, [seen])
        return reading

    async def path_states(
        self, places: Sequence[WorkspacePath], off_disk: Sequence[File], *, nodes_of_all: bool = False
    ) -> list[PathState]:
        """Return the states of listed paths, with the virtual files among ``off_disk``.

        Stats only untracked paths, unless ``nodes_of_all`` is set.
        """
        virtual = {file.state.place: file for file in off_disk if file.is_virtual}
        found: list[PathState] = []
        for start in range(0, len(places), _LISTING_CHUNK):
            chunk = places[start : start + _LISTING_CHUNK]
            seen = await self._look_real(chunk)
            files = [_over(virtual.get(place), file) for place, file in zip(chunk, seen.files, strict=True)]
            unknown = [
                None if file and (file.is_virtual or not nodes_of_all) else place
                for place, file in zip(chunk, files, strict=True)
            ]
            nodes = await in_thread(_look_some, self._disks(seen), unknown)
            listed = (PathState(*row) for row in zip(chunk, files, nodes, strict=True))
            found += [s if s.exists else replace(s, file=virtual.get(s.place)) for s in listed]
        # Drop entries that vanished between listing and lookup.
        return [standing for standing in found if standing.exists]


def _over(virtual: File | None, file: File | None) -> File | None:
    """A virtual file hides a tracked one; a folder of virtual files hides nothing."""
    return virtual if virtual and virtual.state.kind is EntryKind.FILE else file


def _pour(pieces: Iterable[bytes], take: Callable[[bytes], None]) -> None:
    for piece in pieces:
        take(piece)


def _look_all(
    disk_of: WorkspaceDisks, places: Sequence[WorkspacePath], files: Sequence[File | None], *, past_links: bool
) -> list[DiskEntry | None]:
    look = stat_no_symlinks if past_links else MountWriter.stat
    return [
        None if file is not None and file.is_virtual else look(disk_of(place), place)
        for place, file in zip(places, files, strict=True)
    ]


def _look_some(disk_of: WorkspaceDisks, places: Sequence[WorkspacePath | None]) -> list[DiskEntry | None]:
    return [None if place is None else disk_of(place).stat(place) for place in places]
