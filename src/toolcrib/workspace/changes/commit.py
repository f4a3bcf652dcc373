"""Commits a change set: takes locks, checks the base, writes one transaction, then applies it to disk.

Every change that a tool makes to a workspace goes through this module.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from toolcrib.core.audit import AuditRecord, CallRecord
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.change_sets import ChangeSet, FileChange, TrashedFile
from toolcrib.core.errors import ApplyFailed, BaseChanged, ToolFailed
from toolcrib.core.files import EntryKind, File, Version
from toolcrib.core.ids import VersionId
from toolcrib.core.paths import WorkspacePath, in_order
from toolcrib.runtime.disk_threads import FEW_FILES, in_thread, off_loop
from toolcrib.storage.change_sets import AppliedFile, ChangeSetStore, LockedCommit
from toolcrib.storage.database import Tenant
from toolcrib.storage.files import get_versions
from toolcrib.storage.trash import TrashLimits, record_restored, record_trashed
from toolcrib.workspace.changes.change_preview import require_as_shown
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.fs.mounts import MountTable, WorkspaceDisks
from toolcrib.workspace.sync.apply_to_disk import apply
from toolcrib.workspace.sync.path_state import disk_matches_head
from toolcrib.workspace.sync.read_only_folders import find_read_only, folders_changed_by, read_only_error
from toolcrib.workspace.sync.rebuild import TreeRebuilder

# Bytes that stay free on the disk for other users.
_SPARE = 1_000_000


class Committer:
    """Commits to the database first, then applies to disk.

    If applying fails, reconciliation or crash recovery repeats it.
    """

    def __init__(
        self,
        changes: ChangeSetStore,
        mounts: MountTable,
        trees: TreeRebuilder,
        *,
        node: str,
        trash: TrashLimits | None = None,
    ) -> None:
        self._changes = changes
        self._mounts = mounts
        self._trees = trees
        self._node = node
        self._trash = trash or TrashLimits()

    async def commit(
        self,
        tenant: Tenant,
        change_set: ChangeSet,
        *,
        needs: WorkspaceRole = WorkspaceRole.MEMBER,
        call: CallRecord | None = None,
        audit: AuditRecord | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Commit the change set and apply it to disk.

        Args:
            needs: The workspace role that the author must have.
            call: The call record, written in the same transaction.
            audit: The audit record, written in the same transaction.
            progress: Receives how many changes are on disk, and their number.

        Raises:
            BaseChanged: The tree changed since the set was planned. Plan it again.
            ApplyFailed: The set is committed, but the disk could not be written.
        """
        # Shielded: a cancelled caller must not leave a change half applied while others wait for its locks.
        await asyncio.shield(self._commit(tenant, change_set, needs, call, audit, progress))

    async def _commit(
        self,
        tenant: Tenant,
        change_set: ChangeSet,
        needs: WorkspaceRole,
        call: CallRecord | None,
        audit: AuditRecord | None,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        paths, trashed, restored = change_set.paths, change_set.trashed, change_set.restored
        parents, watched = await off_loop(paths, _watched, change_set)
        await self._trees.ensure(tenant.workspace_id)
        async with self._changes.lock(tenant, paths, whole=any(map(_displaces_folder, change_set.changes))) as locked:
            seen = await locked.lookup(watched, needs)
            found = dict(zip(watched, seen.files, strict=True))
            self._mounts.require_current(tenant.workspace_id, seen.home.epoch)
            disk_of = self._mounts.disks_of(tenant.workspace_id, seen.home.root_path)
            await off_loop(paths, _check_history, change_set.changes, parents, found)
            try:
                check = partial(_check_disk, change_set.changes, trashed, restored, found, disk_of)
                check() if len(paths) <= FEW_FILES else await in_thread(check)
            except BaseChanged as error:
                error.drifted = True
                raise
            await self._require_open_folders(locked, tenant, change_set, disk_of, needs)
            write = partial(locked.commit, change_set, seen.home, node=self._node, call=call, audit=audit)
            if not trashed and not restored:
                await write()
            else:
                await in_thread(require_as_shown, disk_of, change_set)
                async with locked.transaction() as connection:
                    await write()
                    # In the same transaction: what leaves the trash, and what enters it.
                    if restored and not await record_restored(connection, tenant, [one.trash_id for one in restored]):
                        raise BaseChanged(f"{restored[0].state.path.display} is no longer in the trash.")
                    if trashed:
                        limits = self._trash
                        await record_trashed(connection, tenant, change_set.id, trashed, node=self._node, limits=limits)
            if locked.has_lost_locks:
                # Another process may have applied this change and later ones, which must stay on disk.
                raise ApplyFailed("The change is committed. This process was suspended; another one writes it to disk.")
            await locked.mark_applied(await self._applied(change_set, disk_of, progress))

    async def _require_open_folders(
        self,
        locked: LockedCommit,
        tenant: Tenant,
        change_set: ChangeSet,
        disk_of: WorkspaceDisks,
        needs: WorkspaceRole,
    ) -> None:
        """Raise ``ToolFailed`` before anything is committed if a folder may not be changed on disk."""
        # What a set does to a folder itself is done before and after its entries are changed.
        own = set(change_set.paths)

        async def files(folders: Sequence[WorkspacePath]) -> Sequence[File | None]:
            return (await locked.lookup(folders, needs)).files

        async def versions(ids: Sequence[VersionId]) -> Mapping[VersionId, Version]:
            async with locked.transaction() as connection:
                return await get_versions(connection, tenant, ids)

        folders = await off_loop(own, folders_changed_by, change_set.changes) - own
        for folder, reason in (await find_read_only(disk_of, folders, files, versions)).items():
            raise read_only_error(folder, reason)

    async def _applied(
        self, change_set: ChangeSet, disk_of: WorkspaceDisks, progress: Callable[[int, int], None] | None
    ) -> list[AppliedFile]:
        loop = asyncio.get_running_loop()

        def report(done: int, total: int) -> None:
            if progress is not None:
                loop.call_soon_threadsafe(progress, done, total)

        try:
            return await in_thread(apply, disk_of, change_set.changes, report)
        except (ToolFailed, OSError) as error:
            # The change is committed. Its files stay marked as pending, so that the next lookup applies them again.
            reason = error.message if isinstance(error, ToolFailed) else f"{error.strerror or type(error).__name__}."
            raise ApplyFailed(
                f"The change is committed but not on disk: {reason} It is written once that is fixed."
            ) from error


def _watched(change_set: ChangeSet) -> tuple[dict[WorkspacePath, WorkspacePath], list[WorkspacePath]]:
    """Return the folder of each path that is written, and all paths whose state counts."""
    # The folders must still exist for what is put into them. The root always does.
    parents = {change.after.path: change.after.path.parent for change in change_set.changes if change.after}
    above = [parent for parent in set(parents.values()) if parent.path != "/"]
    return parents, in_order([*change_set.paths, *above])


def _displaces_folder(change: FileChange) -> bool:
    """Whether a folder is moved or deleted. It may contain files, so the whole workspace must be locked."""
    return change.before is not None and change.before.kind is EntryKind.FOLDER and change.vacates_path


def _check_history(
    changes: Sequence[FileChange],
    parents: Mapping[WorkspacePath, WorkspacePath],
    found: Mapping[WorkspacePath, File | None],
) -> None:
    """Check that every change is still based on the file's current version."""
    freed = {c.before.path for c in changes if c.before and c.vacates_path}
    for change in changes:
        if change.before is not None:
            file = found[change.before.path]
            if file is None or file.id != change.file_id or file.version_id != change.base:
                raise _moved_on(change.before.path)
            if file.pending:
                raise BaseChanged(f"An earlier change of {change.before.path.display} is not on disk yet.")
        if change.after is None:
            continue
        path, parent = change.after.path, parents[change.after.path]
        if _takes_new_place(change) and found[path] is not None and path not in freed:
            raise _moved_on(path)
        if parent in found and parent not in parents and found[parent] is None:
            raise BaseChanged(f"The directory {parent.display} no longer exists.")


def _check_disk(
    changes: Sequence[FileChange],
    trashed: Sequence[TrashedFile],
    restored: Sequence[TrashedFile],
    found: Mapping[WorkspacePath, File | None],
    disk_of: WorkspaceDisks,
) -> None:
    """Check that the disk matches the history, so that changes made outside Toolcrib are never overwritten.

    A program outside can still write between this check and the rename. That gap cannot be closed from here.
    """
    _require_trash(trashed, restored, disk_of)
    freed = {change.before.path for change in changes if change.before}
    displaced = {one.state.path for one in trashed if one.state.kind is EntryKind.FOLDER}
    written: Counter[MountWriter] = Counter()
    for change in changes:
        if change.before is not None:
            disk, file = disk_of(change.before.path), found[change.before.path]
            assert file is not None
            if not disk_matches_head(disk, file, disk.stat(change.before.path)):
                raise _moved_on(change.before.path)
            if change.after is None and change.before.kind is EntryKind.FOLDER:
                # A folder that goes into the trash takes its untracked content with it.
                if not displaced.isdisjoint((*change.before.path.ancestors, change.before.path)):
                    continue
                inside = {change.before.path.child(entry.name) for entry in disk.entries(change.before.path)}
                if not inside <= freed:
                    raise BaseChanged(f"{change.before.path.display} is no longer empty.")
        if change.after is None:
            continue
        disk = disk_of(change.after.path)
        written[disk] += len(change.body or b"")
        if _takes_new_place(change) and change.after.path not in freed:
            node = disk.stat_no_symlinks(change.after.path)
            if node is not None and not (node.kind is EntryKind.FOLDER is change.after.kind):
                raise _moved_on(change.after.path)
    for disk, size in written.items():
        if size and disk.free_bytes() < size + _SPARE:
            raise ToolFailed(
                f"The disk is full: {size:,} bytes do not fit. Nothing was changed. Free some space, then repeat."
            )


def _require_trash(trashed: Sequence[TrashedFile], restored: Sequence[TrashedFile], disk_of: WorkspaceDisks) -> None:
    """Check that displaced content can be renamed into the trash, and that restored content is still there."""
    for displaced in trashed:
        if not disk_of.trash.can_rename_from(disk_of(displaced.state.path)):
            raise ToolFailed(
                f"{displaced.state.path.display} is too large for the history and on another file system than the "
                "trash, so it could not be restored. Nothing was changed. Move it outside Toolcrib."
            )
    for returned in restored:
        if not disk_of.trash.holds(returned.trash_id):
            raise BaseChanged(
                f"The file to restore at {returned.state.path.display} is no longer in the trash. Nothing was changed."
            )


def _takes_new_place(change: FileChange) -> bool:
    return change.before is None or change.moves


def _moved_on(path: WorkspacePath) -> BaseChanged:
    return BaseChanged(f"{path.display} was changed concurrently. Read it again, then repeat the call.")
