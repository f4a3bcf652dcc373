"""Tracks trees that a background process changes directly. Imports them before it starts, then commits changes.

``Reconciler`` commits the changes and decides who the author of each change is.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.change_sets import Author, ChangeSet, FileChange
from toolcrib.core.errors import PathOutsideMount, TooLarge, ToolFailed
from toolcrib.core.files import AuthorKind, DiskEntry, EntryKind
from toolcrib.core.ids import VersionId, WorkspaceId, new_id
from toolcrib.core.paths import Mount, WorkspacePath, is_valid_name, mount_root
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.storage.database import Tenant
from toolcrib.storage.files import FileStore
from toolcrib.workspace.changes.commit import Committer
from toolcrib.workspace.fs.gitignore import RULES, GitignoreRules, read_rules
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.sync.reconcile import Reconciler
from toolcrib.workspace.workspace_services import WorkspaceServices

_KINDS: Final = frozenset({stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK})

_Stamp = tuple[int, ...]
# Index of a root, and a path below it. Not ``WorkspacePath``: a scan visits many entries, and objects cost time.
_Key = tuple[int, str]


class TreeSnapshot:
    """Scans trees repeatedly and finds the differences.

    ``known`` are paths that the history keeps, whatever the ignore rules say. ``closed`` paths are skipped with
    everything below them.
    """

    def __init__(
        self,
        disk_of: WorkspaceDisks,
        roots: Sequence[WorkspacePath],
        *,
        known: Collection[WorkspacePath],
        closed: Callable[[WorkspacePath], bool],
        max_file_bytes: int,
    ) -> None:
        self._disk_of = disk_of
        self._roots = roots
        self._known = frozenset(known) | {above for path in known for above in path.ancestors}
        self._closed = closed
        self._max_file_bytes = max_file_bytes
        self._passed_over: dict[tuple[_Key, bool], bool] = {}
        self._rules: dict[_Key, _Stamp] = {}
        self._last: dict[_Key, _Stamp] = {}

    def scan(self) -> tuple[dict[WorkspacePath, DiskEntry], tuple[WorkspacePath, ...]]:
        """Return every tracked path with its disk entry, and the paths whose content is too large to keep."""
        self._last, too_large = self._walked()
        looks = ((path, self._disk_of(path).stat(path)) for path in map(self._workspace_path, self._last))
        return {path: node for path, node in looks if node is not None}, tuple(map(self._workspace_path, too_large))

    def changed_paths(self) -> list[WorkspacePath]:
        """Return paths that changed or disappeared since the last scan."""
        before = self._last
        self._last, _ = self._walked()
        different = {key for key, stamp in self._last.items() if before.get(key) != stamp}
        return sorted(map(self._workspace_path, different | (before.keys() - self._last.keys())))

    def _walked(self) -> tuple[dict[_Key, _Stamp], list[_Key]]:
        ignoring = GitignoreRules(partial(read_rules, self._disk_of))
        found: dict[_Key, _Stamp] = {}
        too_large: list[_Key] = []
        pending: list[_Key] = [(root, "") for root in range(len(self._roots))]
        while pending:
            root, folder = pending.pop()
            entries = self._entries((root, folder))
            self._heed_rules((root, folder), entries)
            for name, seen in entries:
                key, is_folder = (root, f"{folder}/{name}"), stat.S_ISDIR(seen.st_mode)
                if self._passes_over(key, seen.st_mode, ignoring):
                    continue
                if seen.st_size > self._max_file_bytes and stat.S_ISREG(seen.st_mode):
                    too_large.append(key)
                    continue
                found[key] = _stamp(seen)
                if is_folder:
                    pending.append(key)
        return found, too_large

    def _workspace_path(self, key: _Key) -> WorkspacePath:
        root = self._roots[key[0]]
        return WorkspacePath(root.mount, key[1] or "/", root.scope)

    def _entries(self, key: _Key) -> list[tuple[str, os.stat_result]]:
        folder = self._workspace_path(key)
        try:
            return self._disk_of(folder).stats(folder)
        except (ToolFailed, PathOutsideMount):
            return []

    def _heed_rules(self, folder: _Key, entries: Sequence[tuple[str, os.stat_result]]) -> None:
        """Clear cached decisions when the ignore rules of a folder change."""
        stamp: _Stamp = next((_stamp(seen) for name, seen in entries if name == RULES), ())
        if self._rules.get(folder, ()) != stamp:
            self._rules[folder] = stamp
            self._passed_over.clear()

    def _passes_over(self, key: _Key, mode: int, ignoring: GitignoreRules) -> bool:
        is_folder = stat.S_ISDIR(mode)
        if stat.S_IFMT(mode) not in _KINDS:
            return True
        is_passed_over = self._passed_over.get((key, is_folder))
        if is_passed_over is None:
            path = self._workspace_path(key)
            is_passed_over = self._passed_over[key, is_folder] = (
                not is_valid_name(path.name)
                or self._closed(path)
                or (path not in self._known and ignoring.ignores(path, folder=is_folder))
            )
        return is_passed_over


def _stamp(seen: os.stat_result) -> _Stamp:
    """Return a value that changes whenever the entry does.

    Ignores a folder's timestamps: its entries are scanned too.
    """
    if stat.S_ISDIR(seen.st_mode):
        return (seen.st_mode,)
    return seen.st_mode, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


# Limits for the import before a process starts: everything is read once and stored in the database.
MAX_PATHS: Final = 100_000
MOST_BYTES: Final = 1_000_000_000
_AT_ONCE: Final = 1_000
_BYTES_AT_ONCE: Final = 50_000_000


class LiveTreeTracker:
    """Keeps the history of the trees below ``roots`` up to date while a process changes them."""

    def __init__(
        self,
        sync: Reconciler,
        files: FileStore,
        tenant: Tenant,
        disk_of: WorkspaceDisks,
        roots: Sequence[WorkspacePath],
    ) -> None:
        self._sync = sync
        self._files = files
        self._tenant = tenant
        self._disk_of = disk_of
        self._roots = [root for root in roots if root.mount is not Mount.PKG]
        self._snapshot: TreeSnapshot | None = None
        self._looking = asyncio.Lock()

    async def start(
        self, *, closed: Callable[[WorkspacePath], bool], max_file_bytes: int, all_tracked_before: bool = False
    ) -> tuple[WorkspacePath, ...]:
        """Import untracked files, so that everything can be restored. Returns paths that are too large to keep.

        Args:
            closed: Returns whether a path is one that the process cannot or may not change.
            max_file_bytes: Size limit of one tracked file.
            all_tracked_before: An earlier process ended without its last scan; this scan replaces it.

        Raises:
            TooLarge: There are too many files or bytes to import.
        """
        files = await self._files.below(self._tenant, list(self._roots))
        known = {file.state.path: file for file in files if not file.state.is_untracked}
        # For untracked entries the history records only that they exist.
        whole = {file.state.path for file in files if file.state.is_untracked}
        snapshot = self._snapshot = TreeSnapshot(
            self._disk_of,
            self._roots,
            known=known,
            closed=lambda path: path in whole or closed(path),
            max_file_bytes=max_file_bytes,
        )
        nodes, too_large = await in_thread(snapshot.scan)
        different = {
            path: node for path, node in nodes.items() if not (file := known.get(path)) or file.differs_by_stat(node)
        }
        seen = {*nodes, *too_large}
        gone = [path for path in known if path not in seen and not closed(path)]
        _reject_too_much(different)
        for paths in _batches(different):
            await self._sync.reconcile(self._tenant, paths, track=True, all_tracked_before=all_tracked_before)
        for start in range(0, len(gone), _AT_ONCE):
            await self._sync.reconcile(self._tenant, gone[start : start + _AT_ONCE])
        return too_large

    async def commit_changes(self) -> tuple[ChangeSet, ...]:
        """Commit what changed since the last scan. Serialized: each scan starts where the previous one ended."""
        assert self._snapshot is not None
        async with self._looking:
            changed = await in_thread(self._snapshot.changed_paths)
            committed: list[ChangeSet] = []
            for start in range(0, len(changed), _AT_ONCE):
                committed += await self._sync.reconcile(
                    self._tenant, changed[start : start + _AT_ONCE], track=True, all_tracked_before=True
                )
            return tuple(committed)


def _reject_too_much(different: dict[WorkspacePath, DiskEntry]) -> None:
    size = sum(node.fingerprint.size for node in different.values())
    if len(different) > MAX_PATHS or size > MOST_BYTES:
        raise TooLarge(
            f"{len(different):,} files with {size:,} bytes would have to be tracked first, so that what "
            f"a background process does can be undone; the limits are {MAX_PATHS:,} and {MOST_BYTES:,}. List "
            "generated files in a .gitignore, or run the command with `bash`."
        )


def _batches(different: dict[WorkspacePath, DiskEntry]) -> Iterator[list[WorkspacePath]]:
    """Split paths so that the contents of a batch fit into memory; folders come before their content."""
    batch: list[WorkspacePath] = []
    size = 0
    for path in sorted(different):
        batch.append(path)
        size += different[path].fingerprint.size
        if len(batch) >= _AT_ONCE or size >= _BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def record_tree(workspace_services: WorkspaceServices, workspace_id: WorkspaceId) -> None:
    """Commit what only the disk has of a workspace, ignored files excepted: another node rebuilds it from the history.

    Raises:
        TooLarge: There are too many files or bytes to import.
    """
    tenant, roots = Tenant(workspace_id), [mount_root(Mount.PROJECT), mount_root(Mount.CENTRAL)]
    seen = await workspace_services.files.lookup(tenant, roots)
    await workspace_services.sync.trees.ensure(workspace_id, home_epoch=seen.home.epoch)
    disk_of = workspace_services.mounts.disks_of(workspace_id, seen.home.root_path)
    tracker = LiveTreeTracker(workspace_services.sync, workspace_services.files, tenant, disk_of, roots)
    await tracker.start(closed=lambda path: False, max_file_bytes=workspace_services.max_file_bytes)


# The author of changes that the server makes itself.
_SYSTEM = Author(AuthorKind.SYSTEM)


async def quarantine_untracked(
    workspace_services: WorkspaceServices,
    committer: Committer,
    tenant: Tenant,
    disk_of: WorkspaceDisks,
    paths: Sequence[WorkspacePath],
    *,
    made_links: Collection[WorkspacePath] = (),
) -> tuple[WorkspacePath, ...]:
    """Move untracked entries at these paths into the trash. Tracked files came through the gate and stay.

    ``made_links`` are links that the process made: they are tracked, and do not stay.

    For the server itself: removes what a process created at paths that require approval. Returns the moved paths.
    """
    unknown = [path for path in paths if path in made_links or not await _is_known(workspace_services, tenant, path)]
    nodes = await in_thread(lambda: {path: disk_of(path).stat(path) for path in unknown})
    whole = [
        path for path, node in nodes.items() if node is not None and node.kind in (EntryKind.FILE, EntryKind.FOLDER)
    ]
    links = [path for path, node in nodes.items() if node is not None and node.kind is EntryKind.LINK]
    for wanted, taken_whole in ((whole, whole), (links, [])):
        above = {folder for path in wanted for folder in path.ancestors}
        if wanted:
            await workspace_services.sync.reconcile(tenant, sorted({*above, *wanted}), track=True, whole=taken_whole)
    gone = [*whole, *links]
    seen = await workspace_services.files.lookup(tenant, gone, WorkspaceRole.VIEWER) if gone else None
    changes = [
        FileChange(file.id, VersionId(new_id()), file.type, file.version_id, file.state, None)
        for file in (seen.files if seen else ())
        if file is not None
    ]
    if changes:
        await committer.commit(tenant, ChangeSet(_SYSTEM, tuple(changes)), needs=WorkspaceRole.VIEWER)
    return tuple(sorted(state.path for change in changes if (state := change.before)))


async def _is_known(workspace_services: WorkspaceServices, tenant: Tenant, path: WorkspacePath) -> bool:
    """Whether the path is tracked, or belongs to a folder that is recorded as a whole."""
    *above, file = (await workspace_services.files.lookup(tenant, [*path.ancestors, path], WorkspaceRole.VIEWER)).files
    return file is not None or any(folder is not None and folder.state.is_untracked for folder in above)
