"""Reconciles history and disk: commits changes made on disk, imports files, and recovers after a crash."""

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from toolcrib.core.background_processes import BackgroundProcess
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.change_sets import EXTERNAL, Author, ChangeKind, ChangeSet, FileChange
from toolcrib.core.errors import Overloaded, ToolcribError
from toolcrib.core.files import DiskEntry, EntryKind, EntryState, File
from toolcrib.core.ids import VersionId, WorkspaceId
from toolcrib.core.paths import Mount, WorkspacePath, mount_root
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.storage.background_processes import present_within
from toolcrib.storage.change_sets import AppliedFile, ChangeSetStore
from toolcrib.storage.database import Connection, OperationalError, Tenant
from toolcrib.storage.files import list_below, list_pending, list_rebuilding
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.fs.mounts import MountTable, WorkspaceDisks
from toolcrib.workspace.sync.crash_recovery import DiskChanges, external_change
from toolcrib.workspace.sync.path_state import disk_matches_head, observe_entry, observed_whole, size_below
from toolcrib.workspace.sync.rebuild import TreeRebuilder

_ANYWHERE = mount_root(Mount.PROJECT)


class Reconciler:
    """Reconciles paths, and recovers workspaces."""

    def __init__(self, changes: ChangeSetStore, mounts: MountTable, trees: TreeRebuilder, *, node: str) -> None:
        self.trees = trees
        self._changes = changes
        self._mounts = mounts
        self._node = node

    async def reconcile(
        self,
        tenant: Tenant,
        paths: Sequence[WorkspacePath],
        *,
        track: bool = False,
        whole: Collection[WorkspacePath] = (),
        all_tracked_before: bool = False,
    ) -> tuple[ChangeSet, ...]:
        """Commit what the disk has at these paths to the history. Waits for concurrent changes of the same paths.

        A change that is still pending after that was left by a crash, and is recovered. Files of a rebuild are written.

        Args:
            track: Also import untracked files.
            whole: Paths to import without content, folders with everything in them.
            all_tracked_before: Untracked files appeared after a process started, and may be its work.

        Returns:
            The committed change sets.
        """
        committed: tuple[ChangeSet, ...] = ()
        paths, is_emptied = sorted(set(paths)), False
        await self.trees.ensure_again(tenant.workspace_id)
        async with self._changes.lock(tenant, paths) as locked:
            seen = await locked.lookup(paths, WorkspaceRole.VIEWER)
            seen.home.require(self._node)
            self._mounts.require_current(tenant.workspace_id, seen.home.epoch)
            async with locked.transaction() as connection:
                pending = [file.id for file in seen.files if file is not None and file.pending]
                missing = await list_rebuilding(connection, tenant, pending) if pending else []
                crashed = not missing and seen.any_pending and bool(await list_pending(connection, tenant, paths))
                found = DiskChanges((), ())
                if not crashed and not missing:
                    disk_of = self._mounts.disks_of(tenant.workspace_id, seen.home.root_path)
                    found = await in_thread(partial(_observe, disk_of, paths, seen.files, track=track, whole=whole))
                    found = await _with_lost_children(connection, tenant, found)
                    is_emptied = found.has_deletions and not await in_thread(self._has_trees, tenant)
                if is_emptied:
                    found = DiskChanges((), ())
                if found.changes:
                    committed = await self._attributed(connection, tenant, found, all_tracked_before=all_tracked_before)
                for change_set in committed:
                    await locked.commit(change_set, seen.home, node=self._node)
            await locked.mark_applied(found.applied)
        if crashed:
            await self.recover(tenant)
        if is_emptied:
            await self.trees.ensure_again(tenant.workspace_id)
        if missing:
            await self.trees.restore_files(tenant, missing)
        if missing or is_emptied:
            return await self.reconcile(tenant, paths, track=track, whole=whole, all_tracked_before=all_tracked_before)
        return committed

    def _has_trees(self, tenant: Tenant) -> bool:
        """Whether what is missing on this disk was deleted. Without a marker, the disk itself is another one."""
        return self.trees.has_marker(tenant.workspace_id)

    async def _attributed(
        self, connection: Connection, tenant: Tenant, found: DiskChanges, *, all_tracked_before: bool
    ) -> tuple[ChangeSet, ...]:
        """Attribute changes to outside programs, or to a background process that ran at the time."""
        oldest_ns = min(found.dates_ns.values(), default=time.time_ns())
        processes = await present_within(connection, tenant, node=self._node, since_ns=oldest_ns)
        return attribute_changes(found, processes, all_tracked_before=all_tracked_before)

    async def wait_until_applied(self, tenant: Tenant) -> None:
        """Wait until all committed changes are on disk. Applies those that a dead process left, and rebuilds trees."""
        await self.trees.complete(tenant.workspace_id)
        async with self._changes.lock(tenant, [], whole=True) as locked:
            # Live processes are done with their changes now: what is still pending was left by a crash.
            crashed = (await locked.lookup([_ANYWHERE], WorkspaceRole.VIEWER)).any_pending
        if crashed:
            await self.recover(tenant)

    async def recover(self, tenant: Tenant, home_epoch: int | None = None) -> int:
        """Apply every committed change of a workspace that a crash left pending. Returns the number of files.

        Args:
            home_epoch: Check the trees again if they were last checked in another epoch.
        """
        await self.trees.ensure_again(tenant.workspace_id)
        await self.trees.ensure(tenant.workspace_id, home_epoch=home_epoch)
        return await self.trees.recovery.recover(tenant)

    async def recover_found(self) -> None:
        """Recover in the background what ``trees.recovery`` finds."""
        await self.trees.recovery.run(self.recover)

    async def recover_first(self, workspace_id: WorkspaceId) -> None:
        """Recover a workspace that waits for it, because a call needs it. Other errors are raised when it is used.

        Raises:
            Overloaded: It takes long.
        """
        if self.trees.recovery.is_waiting(workspace_id):
            try:
                await self.recover(Tenant(workspace_id))
            except Overloaded:
                raise
            except (OSError, ToolcribError, OperationalError):
                return


def attribute_changes(
    found: DiskChanges, processes: Sequence[BackgroundProcess], *, all_tracked_before: bool
) -> tuple[ChangeSet, ...]:
    """Group the found changes into one change set per author, judged by timestamps and running processes.

    Args:
        processes: The candidates, latest first.
        all_tracked_before: All files were tracked when the process started, so that a new file may be its work.
    """
    shares: dict[Author, list[FileChange]] = {}
    for change in found.changes:
        theirs = all_tracked_before or change.kind is not ChangeKind.CREATED
        # If undo could not restore the earlier content, the change must not look revertible.
        is_kept = not any(state.is_untracked for state in change.states)
        author = _author(processes, found.dates_ns.get(change.version_id)) if theirs and is_kept else EXTERNAL
        shares.setdefault(author, []).append(change)
    return tuple(ChangeSet(author, tuple(changes)) for author, changes in shares.items())


def _author(processes: Sequence[BackgroundProcess], date_ns: int | None) -> Author:
    """Return the process that ran at a date. A deletion has no date, so the running process counts."""
    there = [process for process in processes if (process.is_running if date_ns is None else process.ran_at(date_ns))]
    if len({process.belongs_to for process in there}) != 1:
        return EXTERNAL
    return there[0].author


async def _with_lost_children(connection: Connection, tenant: Tenant, found: DiskChanges) -> DiskChanges:
    """Add the deletion of everything in a deleted folder."""
    gone = {c.before.path for c in found.changes if c.after is None and c.before and c.before.kind is EntryKind.FOLDER}
    tops = sorted(folder for folder in gone if gone.isdisjoint(folder.ancestors))
    if not tops:
        return found
    known = {change.file_id for change in found.changes}
    lost = [file for file in await list_below(connection, tenant, tops) if file.id not in known]
    changes = [external_change(file, None, None) for file in lost]
    applied = [AppliedFile(change.file_id, change.version_id, None) for change in changes]
    return DiskChanges((*found.changes, *changes), (*found.applied, *applied), found.dates_ns)


def _observe(
    disk_of: WorkspaceDisks,
    paths: Sequence[WorkspacePath],
    files: Sequence[File | None],
    *,
    track: bool,
    whole: Collection[WorkspacePath],
) -> DiskChanges:
    changes: list[FileChange] = []
    applied: list[AppliedFile] = []
    dates_ns: dict[VersionId, int] = {}
    for path, file in zip(paths, files, strict=True):
        if file is None and not track:
            continue
        state, body, node = _found_at(disk_of(path), path, file, whole=path in whole)
        if file is None and state is None:
            continue
        version_id = file.version_id if file else None
        if file is None or state != _comparable(file.state, state):
            change = external_change(file, state, body)
            changes.append(change)
            version_id = change.version_id
            if node is not None:
                dates_ns[version_id] = node.fingerprint.ctime_ns
        assert version_id is not None
        file_id = file.id if file else changes[-1].file_id
        fingerprint = node.fingerprint if node and node.kind is not EntryKind.FOLDER else None
        applied.append(AppliedFile(file_id, version_id, fingerprint))
    return DiskChanges(tuple(changes), tuple(applied), dates_ns)


def _found_at(
    disk: MountWriter, path: WorkspacePath, file: File | None, *, whole: bool
) -> tuple[EntryState | None, bytes | None, DiskEntry | None]:
    if file is not None and file.state.is_untracked:
        node = disk.stat(path)
        if disk_matches_head(disk, file, node):
            size = size_below(disk, path) if whole and file.state.kind is EntryKind.FOLDER else file.state.size
            return replace(file.state, size=size), None, node
    if not whole:
        return observe_entry(disk, path, file.state if file else None)
    state, node = observed_whole(disk, path)
    return state, None, node


def _comparable(known: EntryState, state: EntryState | None) -> EntryState:
    """Drop what an observation cannot know from a state: a link's own mode means nothing."""
    if state is None or state.kind is not EntryKind.LINK:
        return known
    return replace(known, mode=state.mode)
