"""Commits a change set: takes locks, checks the base, writes one transaction, then applies it to disk.

Every change that a tool makes to a workspace goes through this module.
"""

import asyncio
from collections.abc import Mapping, Sequence

from toolcrib.core.audit import AuditRecord, CallRecord
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.change_sets import ChangeSet, FileChange
from toolcrib.core.errors import ApplyFailed, BaseChanged, ToolFailed
from toolcrib.core.files import EntryKind, File
from toolcrib.core.paths import WorkspacePath, shown
from toolcrib.runtime.disk_threads import in_thread, in_thread_if_many
from toolcrib.storage.change_sets import AppliedFile, ChangeSetStore, touches_folders
from toolcrib.storage.database import Connection, Tenant
from toolcrib.storage.trash import TrashedFile, TrashLimits, record_restored, record_trashed
from toolcrib.workspace.changes.untracked_hashes import has_hashes, require_as_shown
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.fs.mounts import MountTable, WorkspaceDisks
from toolcrib.workspace.fs.trash import RestoredFromTrash, list_restored, list_trashed
from toolcrib.workspace.sync.apply_to_disk import ApplyStep, apply
from toolcrib.workspace.sync.path_state import disk_matches_head, stat_no_symlinks

# Bytes that stay free on the disk for other users.
_SPARE = 1_000_000


class Committer:
    """Commits to the database first, then applies to disk.

    If applying fails, reconciliation or crash recovery repeats it.
    """

    def __init__(
        self, changes: ChangeSetStore, mounts: MountTable, *, node: str, trash: TrashLimits | None = None
    ) -> None:
        self._changes = changes
        self._mounts = mounts
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
    ) -> None:
        """Commit the change set and apply it to disk.

        Args:
            needs: The workspace role that the author must have.
            call: The call record, written in the same transaction.
            audit: The audit record, written in the same transaction.

        Raises:
            BaseChanged: The tree changed since the set was planned. Plan it again.
            ApplyFailed: The set is committed, but the disk could not be written.
        """
        # Shielded: a cancelled caller must not leave a change half applied while others wait for its locks.
        await asyncio.shield(self._commit(tenant, change_set, needs, call, audit))

    async def _commit(
        self,
        tenant: Tenant,
        change_set: ChangeSet,
        needs: WorkspaceRole,
        call: CallRecord | None,
        audit: AuditRecord | None,
    ) -> None:
        paths = change_set.paths
        watched = sorted({*paths, *_parents(change_set)})
        async with self._changes.lock(tenant, paths, whole=touches_folders(change_set)) as locked:
            seen = await locked.lookup(watched, needs)
            found = dict(zip(watched, seen.files, strict=True))
            disk_of = self._mounts.disks_of(tenant.workspace_id, seen.home.root_path)
            _check_history(change_set, found)
            try:
                await in_thread_if_many(len(paths), _check_disk, change_set, found, disk_of)
            except BaseChanged as error:
                error.drifted = True
                raise
            if has_hashes(change_set):
                await in_thread(require_as_shown, disk_of, change_set)
            displaced, returned = list_trashed(change_set), list_restored(change_set)
            if displaced or returned:
                async with locked.transaction() as connection:
                    await locked.commit(change_set, seen.home, node=self._node, call=call, audit=audit)
                    await self._note_trash(connection, tenant, change_set, displaced, returned)
            else:
                await locked.commit(change_set, seen.home, node=self._node, call=call, audit=audit)
            await locked.mark_applied(await self._applied(change_set, disk_of))

    async def _note_trash(
        self,
        connection: Connection,
        tenant: Tenant,
        change_set: ChangeSet,
        displaced: Sequence[TrashedFile],
        returned: Sequence[RestoredFromTrash],
    ) -> None:
        """Record in the same transaction what enters the trash and what leaves it."""
        if returned and not await record_restored(connection, tenant, [one.token for one in returned]):
            raise BaseChanged(f"{shown(returned[0].path)} is no longer in the trash.")
        if displaced:
            await record_trashed(connection, tenant, change_set.id, displaced, node=self._node, limits=self._trash)

    async def _applied(self, change_set: ChangeSet, disk_of: WorkspaceDisks) -> list[AppliedFile]:
        try:
            return await in_thread(apply, disk_of, [ApplyStep.of(change) for change in change_set.changes])
        except ToolFailed as error:
            # The change is committed. Its files stay marked as pending, so that the next lookup applies them again.
            raise ApplyFailed(
                f"The change is committed but not on disk: {error.message} It is written once that is fixed."
            ) from error


def _parents(change_set: ChangeSet) -> set[WorkspacePath]:
    """Return the folders that must still exist for what is put into them."""
    parents = {change.after.path.parent for change in change_set.changes if change.after is not None}
    return {parent for parent in parents if not parent.is_root}


def _check_history(change_set: ChangeSet, found: Mapping[WorkspacePath, File | None]) -> None:
    """Check that every change is still based on the file's current version."""
    freed = {c.before.path for c in change_set.changes if c.before and (not c.after or c.after.path != c.before.path)}
    made = {c.after.path for c in change_set.changes if c.after}
    for change in change_set.changes:
        if change.before is not None:
            file = found[change.before.path]
            if file is None or file.id != change.file_id or file.version_id != change.base:
                raise _moved_on(change.before.path)
            if file.pending:
                raise BaseChanged(f"An earlier change of {shown(change.before.path)} is not on disk yet.")
        if change.after is None:
            continue
        if _takes_new_place(change) and found[change.after.path] is not None and change.after.path not in freed:
            raise _moved_on(change.after.path)
        parent = change.after.path.parent
        if not parent.is_root and parent not in made and found[parent] is None:
            raise BaseChanged(f"The directory {shown(parent)} no longer exists.")


def _check_disk(change_set: ChangeSet, found: Mapping[WorkspacePath, File | None], disk_of: WorkspaceDisks) -> None:
    """Check that the disk matches the history, so that changes made outside Toolcrib are never overwritten.

    A program outside can still write between this check and the rename. That gap cannot be closed from here.
    """
    _require_room(change_set, disk_of)
    _require_trash(change_set, disk_of)
    freed = {change.before.path for change in change_set.changes if change.before}
    displaced = [one.path for one in list_trashed(change_set) if one.kind is EntryKind.FOLDER]
    for change in change_set.changes:
        if change.before is not None:
            disk, file = disk_of(change.before.path), found[change.before.path]
            assert file is not None
            if not disk_matches_head(disk, file, disk.stat(change.before.path)):
                raise _moved_on(change.before.path)
            if change.after is None and change.before.kind is EntryKind.FOLDER:
                # A folder that goes into the trash takes its untracked content with it.
                if any(path == change.before.path or change.before.path.is_below(path) for path in displaced):
                    continue
                inside = {change.before.path.child(entry.name) for entry in disk.entries(change.before.path)}
                if not inside <= freed:
                    raise BaseChanged(f"{shown(change.before.path)} is no longer empty.")
        if change.after is not None and _takes_new_place(change) and change.after.path not in freed:
            node = stat_no_symlinks(disk_of(change.after.path), change.after.path)
            if node is not None and not (node.kind is EntryKind.FOLDER is change.after.kind):
                raise _moved_on(change.after.path)


def _require_room(change_set: ChangeSet, disk_of: WorkspaceDisks) -> None:
    """Fail before the commit if the disk has too little free space for the content."""
    wanted: dict[MountWriter, int] = {}
    for change in change_set.changes:
        if change.body is not None and change.after is not None:
            disk = disk_of(change.after.path)
            wanted[disk] = wanted.get(disk, 0) + len(change.body)
    for disk, size in wanted.items():
        if disk.free_bytes() < size + _SPARE:
            raise ToolFailed(
                f"The disk is full: {size:,} bytes do not fit. Nothing was changed. Free some space, then repeat."
            )


def _require_trash(change_set: ChangeSet, disk_of: WorkspaceDisks) -> None:
    """Check that displaced content can be renamed into the trash, and that restored content is still there."""
    for displaced in list_trashed(change_set):
        if not disk_of.trash.can_rename_from(disk_of(displaced.path)):
            raise ToolFailed(
                f"{shown(displaced.path)} is too large for the history and on another file system than the "
                "trash, so it could not be restored. Nothing was changed. Move it outside Toolcrib."
            )
    for returned in list_restored(change_set):
        if not disk_of.trash.holds(returned.token):
            raise BaseChanged(
                f"The file to restore at {shown(returned.path)} is no longer in the trash. Nothing was changed."
            )


def _takes_new_place(change: FileChange) -> bool:
    return change.after is not None and (change.before is None or change.before.path != change.after.path)


def _moved_on(path: WorkspacePath) -> BaseChanged:
    return BaseChanged(f"{shown(path)} was changed concurrently. Read it again, then repeat the call.")
