"""Rebuilds a workspace's trees from the history on a disk that does not have them. A missing tree is no deletion.

A marker beside the trees says that this disk has them: then what is missing was deleted. Without a marker, a tree that
is empty is rebuilt, and any other tree is kept as it is. A rebuild marks all files as pending in the database, so that
every process sees which ones are missing: a lookup writes the file that it needs, the rest follows in the background.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4
from weakref import WeakValueDictionary

import structlog

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.change_sets import SYSTEM, ChangeSet, FileChange
from toolcrib.core.errors import Conflict, Forbidden, NotFound, Superseded, ToolcribError
from toolcrib.core.files import EntryKind, EntryState, File
from toolcrib.core.ids import FileId, VersionId, WorkspaceId, new_id
from toolcrib.core.paths import Mount, WorkspacePath, mount_root, path_from_row
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.storage.change_sets import ChangeSetStore, LockedCommit
from toolcrib.storage.database import Connection, OperationalError, Tenant
from toolcrib.storage.files import (
    FileStore,
    WorkspaceHome,
    begin_rebuild,
    is_rebuilding,
    list_below,
    list_rebuilding,
    list_tracked_trees,
    list_untracked,
)
from toolcrib.storage.homes import require_disk, set_home_epoch, take_back
from toolcrib.storage.packages import installed_package
from toolcrib.storage.trash import TrashLimits, count_kept
from toolcrib.workspace.fs.gitignore import RULES
from toolcrib.workspace.fs.mounts import CheckedTrees, MountTable, WorkspaceDisks
from toolcrib.workspace.sync.apply_to_disk import apply
from toolcrib.workspace.sync.crash_recovery import redo_pending
from toolcrib.workspace.sync.path_state import MOST_BYTES
from toolcrib.workspace.sync.tree_marker import LostContent, TreeMarker, few_lost
from toolcrib.workspace.sync.workspace_recovery import WorkspaceRecovery

log = structlog.get_logger(__name__)

_ROOT = mount_root(Mount.PROJECT)
_PROJECT = _ROOT.mount_key
# Files, and bytes of content, that are written under one lock. More files would lock the whole workspace.
_BATCH_FILES = 200
_BATCH_BYTES = 64_000_000
# Trees that one process rebuilds at a time in the background. A call that waits for a tree does not queue.
_AT_ONCE = 2
_RETRY_SECONDS = 30.0

# Takes the directory of a tree and a path below it; returns what is wrong with the repository there.
RepositoryCheck = Callable[[Path, str], Awaitable[str | None]]


class TreeRebuilder:
    """Checks markers, and rebuilds trees.

    ``disk_id`` is that of this node's data directory. ``checks_repository`` examines rebuilt git repositories.
    """

    def __init__(
        self,
        files: FileStore,
        changes: ChangeSetStore,
        mounts: MountTable,
        *,
        node: str,
        trash: TrashLimits,
        disk_id: UUID | None = None,
        checks_repository: RepositoryCheck | None = None,
        recoveries: int = 1,
    ) -> None:
        self._files = files
        self._changes = changes
        self._mounts = mounts
        self._node = node
        self._trash = trash
        self._disk_id = disk_id
        self._checks_repository = checks_repository
        self.recovery = WorkspaceRecovery(files, changes, mounts, node=node, trash=trash, at_once=recoveries)
        self._turns: WeakValueDictionary[WorkspaceId, asyncio.Lock] = WeakValueDictionary()
        self._waiting: asyncio.Queue[WorkspaceId] = asyncio.Queue()
        # Rebuilds that another process began: it may have left temporary files.
        self._resumed: set[WorkspaceId] = set()

    async def ensure(
        self,
        workspace_id: WorkspaceId,
        *,
        home_epoch: int | None = None,
        asked: bool = False,
        adopt: bool = False,
    ) -> None:
        """Check the marker of a workspace once per process. Begins a rebuild if the disk does not have its trees.

        Every access to the trees comes after this: so it also waits until what a crash left is recovered.

        Args:
            home_epoch: Check it again if this is not the epoch of the last check.
            asked: A person asked for the rebuild, so that their own directory is rebuilt too.
            adopt: A person says that their own directory is right as it is.

        Raises:
            Conflict: A person's own directory is empty, although the history has files of it.
            Quarantined: What a crash left cannot be recovered.
            Superseded: The trees are another node's.
        """
        if self._mounts.is_checked(workspace_id, home_epoch):
            return
        self.recovery.require_usable(workspace_id)
        async with self._turn(workspace_id):
            if self._mounts.is_checked(workspace_id, home_epoch):
                return
            marker = await asyncio.shield(self._checked(Tenant(workspace_id), asked=asked, adopt=adopt))
            if not self._mounts.is_checked(workspace_id, marker.home_epoch):
                # Another process of this node may have put the directories aside that are open here.
                self._mounts.forget(workspace_id)
        # Without the turn: all who need the workspace wait for its recovery at the same time.
        await self.recovery.recover(Tenant(workspace_id), marker.home_epoch)
        async with self._turn(workspace_id):
            known = self._mounts.checked.get(workspace_id)
            if known is not None and known.home_epoch >= marker.home_epoch:
                return
            self._mounts.checked[workspace_id] = CheckedTrees(marker.home_epoch, marker.rebuild_id is None)
            if marker.rebuild_id is not None:
                self._waiting.put_nowait(workspace_id)

    async def ensure_again(self, workspace_id: WorkspaceId, *, asked: bool = False, adopt: bool = False) -> None:
        """Check the marker of a workspace even if it was checked before: the disk may have been emptied since."""
        if workspace_id in self._mounts.checked and not await in_thread(self.has_marker, workspace_id):
            log.error("rebuild.disk_emptied", workspace_id=str(workspace_id))
            self._mounts.forget(workspace_id)
        await self.ensure(workspace_id, asked=asked, adopt=adopt)

    def has_marker(self, workspace_id: WorkspaceId) -> bool:
        """Whether this disk has the workspace's marker now."""
        return self._mounts.has_marker(workspace_id)

    async def complete(self, workspace_id: WorkspaceId, *, asked: bool = False, adopt: bool = False) -> TreeMarker:
        """Wait until the trees are whole. Rebuilds what is missing now, without waiting for a turn."""
        await self.ensure_again(workspace_id, asked=asked, adopt=adopt)
        async with self._turn(workspace_id):
            folder = self._mounts.beside(workspace_id)
            marker = await in_thread(TreeMarker.load, folder)
            if marker is None:
                raise Superseded("The directory of this workspace was removed while its files were being restored.")
            if marker.rebuild_id is None:
                self._mounts.checked[workspace_id] = CheckedTrees(marker.home_epoch, are_whole=True)
                return marker
            return await self._completed(Tenant(workspace_id), marker)

    async def restore_files(self, tenant: Tenant, files: Sequence[File]) -> None:
        """Write files of a rebuild to disk, unless another process has written them meanwhile."""
        await asyncio.shield(self._restore_files(tenant, files))

    async def discard(self, workspace_id: WorkspaceId, *, takes_back: bool = False) -> bool:
        """Put the trees of a workspace aside that another node has taken over.

        With ``takes_back``, this node becomes the home again instead if that node has not used the workspace yet: then
        these trees are right, with all that the history does not have. Returns whether it is the home.
        """
        # A server that stops does not interrupt it between the row and the marker.
        return await asyncio.shield(self._discard(workspace_id, takes_back=takes_back))

    async def _discard(self, workspace_id: WorkspaceId, *, takes_back: bool) -> bool:
        tenant = Tenant(workspace_id)
        async with self._changes.lock(tenant, [], whole=True) as locked:
            home = (await locked.lookup([_ROOT], WorkspaceRole.VIEWER)).home
            folder = self._mounts.beside(workspace_id)
            marker = await in_thread(TreeMarker.load, folder)
            if home.node in (None, self._node):
                return True
            if marker is None or marker.home_epoch >= home.epoch:
                # Nothing says that it was taken over: the database was restored, a rebuild was interrupted as it began,
                # or this data directory got another node's name before it had a marker.
                log.error("rebuild.tree_of_another_node", workspace_id=str(workspace_id), home=home.node)
                return False
            if takes_back:
                async with locked.transaction() as connection:
                    epoch = await take_back(connection, tenant, self._node, epoch=marker.home_epoch)
                if epoch is not None:
                    # After the row: if a crash comes in between, the trees are put aside, and rebuilt.
                    await in_thread(replace(marker, home_epoch=epoch).save, folder)
                    log.info("rebuild.taken_back", workspace_id=str(workspace_id), home=home.node)
                    return True
            log.warning("rebuild.put_aside", workspace_id=str(workspace_id), home=home.node)
            await in_thread(self._mounts.put_aside, workspace_id)
            return False

    async def run(self) -> None:
        """Complete rebuilds in the background: those that calls begin, and those that a crash interrupted."""
        for workspace_id in await self._files.workspaces_rebuilding(self._node):
            self._waiting.put_nowait(workspace_id)
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._complete_waiting())

    async def _complete_waiting(self) -> None:
        while True:
            workspace_id = await self._waiting.get()
            try:
                await self.complete(workspace_id)
                # The database may have forgotten, in a crash, that the last files were written.
                await self._restore_all(Tenant(workspace_id))
            except (Superseded, NotFound, Forbidden):
                # It moved to another node, or was deleted.
                continue
            except (OSError, ToolcribError, OperationalError) as error:
                log.error(
                    "rebuild.failed",
                    workspace_id=str(workspace_id),
                    error=str(error),
                    remedy="Make the workspace's directory writable, with enough free space. It is retried.",
                )
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._waiting.put_nowait, workspace_id)

    def _turn(self, workspace_id: WorkspaceId) -> asyncio.Lock:
        return self._turns.setdefault(workspace_id, asyncio.Lock())

    async def _checked(self, tenant: Tenant, *, asked: bool, adopt: bool) -> TreeMarker:
        """Return the marker; a new one, with a rebuild begun where trees are missing, if there is none."""
        folder = self._mounts.beside(tenant.workspace_id)
        marker = await in_thread(TreeMarker.load, folder)
        home = await self._home(tenant)
        if marker is not None and marker.rebuild_id is None and marker.home_epoch == home.epoch:
            return marker
        losses: tuple[FileChange, ...] = ()
        async with self._changes.lock(tenant, [], whole=True) as locked:
            home = (await locked.lookup([_ROOT], WorkspaceRole.VIEWER)).home
            home.require(self._node)
            if self._disk_id is not None:
                async with locked.transaction() as connection:
                    await require_disk(connection, self._node, self._disk_id)
            # Under the lock: another process of this node may have been faster.
            marker = await in_thread(TreeMarker.load, folder)
            if marker is not None and marker.home_epoch < home.epoch:
                # Another node may have changed the files since.
                log.warning("rebuild.put_aside", workspace_id=str(tenant.workspace_id), epoch=marker.home_epoch)
                await in_thread(self._mounts.put_aside, tenant.workspace_id)
                marker = None
            if marker is not None and marker.home_epoch > home.epoch:
                # The database was restored from before this node became the home.
                async with locked.transaction() as connection:
                    await set_home_epoch(connection, tenant, marker.home_epoch)
                home = replace(home, epoch=marker.home_epoch)
            if marker is not None and marker.rebuild_id is None:
                return marker
            async with locked.transaction() as connection:
                if marker is None:
                    # What a process has checked before, on this disk or on another of this node, is not true any more.
                    home = replace(home, epoch=home.epoch + 1)
                    await set_home_epoch(connection, tenant, home.epoch)
                if marker is not None and marker.rebuild_id is not None:
                    self._resumed.add(tenant.workspace_id)
                    if await is_rebuilding(connection, tenant, marker.rebuild_id):
                        return marker
                missing = await self._missing_trees(connection, tenant, home, asked=asked, adopt=adopt)
                # After a rebuild that the database does not know, the trees are neither missing nor complete.
                missing = tuple(dict.fromkeys((*(marker.trees if marker else ()), *missing)))
                fresh = TreeMarker(tenant.workspace_id, home.epoch, trees=missing, lost=marker.lost if marker else ())
                fresh, losses = await self._begin(locked, connection, tenant, home, fresh)
            if losses:
                disk_of = self._mounts.disks_of(tenant.workspace_id, home.root_path)
                await locked.mark_applied(await in_thread(apply, disk_of, losses))
        await self._restore_ignore_rules(tenant, fresh)
        return fresh

    async def _missing_trees(
        self, connection: Connection, tenant: Tenant, home: WorkspaceHome, *, asked: bool, adopt: bool
    ) -> tuple[str, ...]:
        """Return the trees that the history has and the disk does not."""
        trees = await list_tracked_trees(connection, tenant)
        look = partial(self._mounts.is_missing, tenant.workspace_id, home.root_path)
        missing = [tree for tree in trees if await in_thread(look, path_from_row(tree, "/"))]
        if _PROJECT not in missing or home.root_path is None:
            return tuple(missing)
        if adopt:
            missing.remove(_PROJECT)
        elif not asked:
            raise Conflict(
                f"The directory {home.root_path} is empty, but the history has files of it. `toolcrib restore` writes "
                "them back; `toolcrib restore --adopt` records that they were deleted."
            )
        else:
            await in_thread(partial(Path(home.root_path).mkdir, parents=True, exist_ok=True))
        return tuple(missing)

    async def _begin(
        self, locked: LockedCommit, connection: Connection, tenant: Tenant, home: WorkspaceHome, marker: TreeMarker
    ) -> tuple[TreeMarker, tuple[FileChange, ...]]:
        """Save the marker, then mark the files of its trees as pending. Deletes from the history what is lost."""
        folder = await in_thread(self._mounts.make_beside, tenant.workspace_id)
        if not marker.trees:
            await in_thread(marker.save, folder)
            return marker, ()
        disk_of = self._mounts.disks_of(tenant.workspace_id, home.root_path)
        untracked = await list_untracked(connection, tenant, marker.trees)
        untracked = await in_thread(_absent, disk_of, untracked)
        lost = [*marker.lost, *map(_lost, untracked), *await self._lost_beside(connection, tenant)]
        marker = replace(marker, rebuild_id=uuid4(), lost=few_lost(lost))
        assert marker.rebuild_id is not None
        marker = replace(marker, files=await begin_rebuild(connection, tenant, marker.trees, marker.rebuild_id))
        # Before the rows are committed: without them, this marker begins the rebuild again.
        await in_thread(marker.save, folder)
        facts = {"trees": marker.trees, "files": marker.files, "lost": len(marker.lost)}
        log.warning("rebuild.started", workspace_id=str(tenant.workspace_id), **facts)
        if not untracked:
            return marker, ()
        gone = {file.id for file in untracked}
        losses = []
        for file in untracked:
            inside = await list_below(connection, tenant, [file.state.path])
            losses.append(_loss(file, has_files=any(one.id not in gone for one in inside)))
        await locked.commit(ChangeSet(SYSTEM, tuple(losses)), home, node=self._node)
        return marker, tuple(losses)

    async def _lost_beside(self, connection: Connection, tenant: Tenant) -> list[LostContent]:
        """Return what the workspace's directory had beside the trees: the trash, and the files of a package."""
        found: list[LostContent] = []
        beside = self._mounts.beside(tenant.workspace_id)
        if not (beside / "trash").exists() and (count := await count_kept(connection, tenant)):
            found.append(LostContent("the trash", f"{count} displaced files, which undo could have brought back"))
        package = await installed_package(connection, tenant)
        if package is not None and self._mounts.packages.current(tenant.workspace_id) is None:
            found.append(LostContent("@pkg", f"the files of the package {package}; install it again"))
        return found

    async def _restore_ignore_rules(self, tenant: Tenant, marker: TreeMarker) -> None:
        """Write the ignore files first: they decide what every search sees."""
        if marker.rebuild_id is None:
            return
        await self._restore_all(tenant, name=RULES, epoch=marker.home_epoch)

    async def _completed(self, tenant: Tenant, marker: TreeMarker) -> TreeMarker:
        await self._restore_all(tenant)
        if tenant.workspace_id in self._resumed:
            await asyncio.shield(self._remove_temp_files(tenant, marker))
        broken = await self._broken_repositories(tenant, marker)
        lost = few_lost([*marker.lost, *broken])
        marker = replace(marker, rebuild_id=None, lost=lost)
        await in_thread(marker.save, self._mounts.beside(tenant.workspace_id))
        self._mounts.checked[tenant.workspace_id] = CheckedTrees(marker.home_epoch, are_whole=True)
        self._resumed.discard(tenant.workspace_id)
        log.info("rebuild.completed", workspace_id=str(tenant.workspace_id), files=marker.files)
        for one in marker.lost:
            log.warning("rebuild.lost", workspace_id=str(tenant.workspace_id), path=one.path, reason=one.reason)
        return marker

    async def _restore_all(self, tenant: Tenant, *, name: str | None = None, epoch: int | None = None) -> None:
        """Write all files that are missing, or all of a name; with ``epoch``, of trees that were checked in it."""
        after: FileId | None = None
        while batch := await self._files.next_rebuilding(tenant, after=after, limit=_BATCH_FILES, name=name):
            batch = _within_bytes(batch)
            await asyncio.shield(self._restore_files(tenant, batch, epoch))
            after = batch[-1].id

    async def _restore_files(self, tenant: Tenant, files: Sequence[File], epoch: int | None = None) -> None:
        paths = [file.state.path for file in files]
        async with self._changes.lock(tenant, paths) as locked:
            home = (await locked.lookup(paths[:1], WorkspaceRole.VIEWER)).home
            home.require(self._node)
            if epoch is None or epoch != home.epoch:
                self._mounts.require_current(tenant.workspace_id, home.epoch)
            async with locked.transaction() as connection:
                pending = await list_rebuilding(connection, tenant, [file.id for file in files])
            disk_of = self._mounts.disks_of(tenant.workspace_id, home.root_path)
            await redo_pending(
                locked, tenant, home, disk_of, pending, node=self._node, trash=self._trash, is_rebuild=True
            )

    async def _remove_temp_files(self, tenant: Tenant, marker: TreeMarker) -> None:
        """Remove what a killed process was writing, while nothing else writes."""
        async with self._changes.lock(tenant, [], whole=True) as locked:
            home = (await locked.lookup([_ROOT], WorkspaceRole.VIEWER)).home
            disk_of = self._mounts.disks_of(tenant.workspace_id, home.root_path)
            await in_thread(_sweep, disk_of, [path_from_row(tree, "/") for tree in marker.trees])

    async def _broken_repositories(self, tenant: Tenant, marker: TreeMarker) -> list[LostContent]:
        if self._checks_repository is None:
            return []
        home = await self._home(tenant)
        broken: list[LostContent] = []
        for folder in await self._files.repositories(tenant, marker.trees):
            root = self._mounts.root(tenant.workspace_id, home.root_path, folder)
            if (reason := await self._checks_repository(root, folder.path[1:])) is not None:
                broken.append(LostContent(folder.child(".git").display, reason))
        return broken

    async def _home(self, tenant: Tenant) -> WorkspaceHome:
        home = (await self._files.lookup(tenant, [_ROOT])).home
        home.require(self._node)
        return home


def _within_bytes(files: list[File]) -> list[File]:
    """Return the first files, as many as fit the memory for one batch; at least one."""
    size = 0
    for index, file in enumerate(files):
        size += file.state.size
        if index and size > _BATCH_BYTES:
            return files[:index]
    return files


def _absent(disk_of: WorkspaceDisks, files: Sequence[File]) -> list[File]:
    return [file for file in files if disk_of(file.state.path).stat_no_symlinks(file.state.path) is None]


def _lost(file: File) -> LostContent:
    state = file.state
    if state.kind is EntryKind.FOLDER:
        return LostContent(state.path.display, "an ignored folder, which the history does not keep", state.size)
    if state.size > MOST_BYTES:
        return LostContent(state.path.display, "larger than the history keeps", state.size)
    return LostContent(state.path.display, "an ignored file, which the history does not keep", state.size)


def _loss(file: File, *, has_files: bool) -> FileChange:
    """Build the change for content that is lost: a deletion or, with tracked files in it, an ordinary folder."""
    state = file.state
    after = EntryState(state.path, EntryKind.FOLDER, state.mode) if has_files else None
    return FileChange(file.id, VersionId(new_id()), file.type, file.version_id, state, after)


def _sweep(disk_of: WorkspaceDisks, roots: Sequence[WorkspacePath]) -> None:
    for root in roots:
        disk = disk_of(root)
        disk.sweep(root)
        for path, entry in disk.walk(root):
            if entry.kind is EntryKind.FOLDER:
                disk.sweep(path)
