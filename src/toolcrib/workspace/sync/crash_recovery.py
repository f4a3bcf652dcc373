"""Applies pending changes again: plans which ones, finds where someone else wrote meanwhile, and writes the rest."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from toolcrib.core.change_sets import EXTERNAL, ChangeSet, FileChange, TrashedFile
from toolcrib.core.files import EntryKind, EntryState, File, FileType, Version
from toolcrib.core.ids import FileId, VersionId, new_id
from toolcrib.core.paths import WorkspacePath
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.storage import blobs
from toolcrib.storage.change_sets import AppliedFile, LockedCommit
from toolcrib.storage.database import Connection, Tenant
from toolcrib.storage.files import WorkspaceHome, get_versions
from toolcrib.storage.trash import TrashLimits, record_trashed
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.sync.apply_to_disk import apply
from toolcrib.workspace.sync.path_state import disk_matches_state, observe_entry

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DiskChanges:
    """Changes found on disk that the history did not know, by an outside program or a background process.

    Attributes:
        changes: The changes to commit.
        applied: The current fingerprint of every file.
        dates_ns: The ctime of each change, where the disk has one.
    """

    changes: tuple[FileChange, ...]
    applied: tuple[AppliedFile, ...]
    dates_ns: Mapping[VersionId, int] = field(default_factory=dict)

    @property
    def has_deletions(self) -> bool:
        return any(change.after is None for change in self.changes)


async def redo_pending(
    locked: LockedCommit,
    tenant: Tenant,
    home: WorkspaceHome,
    disk_of: WorkspaceDisks,
    pending: Sequence[File],
    *,
    node: str,
    trash: TrashLimits,
    is_rebuild: bool = False,
) -> None:
    """Apply pending changes under their locks, and mark them as applied. What others wrote there is committed on top.

    Args:
        is_rebuild: Only these files are locked, and those that are on disk already stay as they are.
    """
    async with locked.transaction() as connection:
        steps = await _steps(connection, tenant, pending)
        if not is_rebuild:
            # The whole workspace is locked, so that no temporary file belongs to a write in progress.
            await in_thread(remove_temp_files, disk_of, steps)
        redo, clashes = await in_thread(plan_redo, disk_of, steps, pending)
        if clashes.changes:
            log.warning("recovery.external_change", files=[str(p) for c in clashes.changes for p in c.paths])
            found = ChangeSet(EXTERNAL, clashes.changes)
            await locked.commit(found, home, node=node)
            lying = await in_thread(list_stranded_trash, disk_of, steps, redo)
            await record_trashed(connection, tenant, found.id, lying, node=node, limits=trash, anew=False)
    present: list[AppliedFile] = []
    if is_rebuild:
        present = await in_thread(_present, disk_of, redo)
        known = {one.file_id for one in present}
        redo = [step for step in redo if step.file_id not in known]
    applied = await in_thread(apply, disk_of, redo)
    await locked.mark_applied([*applied, *present, *clashes.applied])


async def _steps(connection: Connection, tenant: Tenant, pending: Sequence[File]) -> list[FileChange]:
    """Build the changes that pending files still need on disk."""
    based = [file.base_version_id for file in pending if file.base_version_id is not None]
    bases = await get_versions(connection, tenant, based)
    written = {file.state.sha256 for file in pending if not file.deleted and file.state.sha256 is not None}
    bodies = await blobs.fetch(connection, tenant, written)
    return [_step(file, bases, bodies) for file in pending]


def _step(file: File, bases: Mapping[VersionId, Version], bodies: Mapping[bytes, bytes]) -> FileChange:
    base = None if file.base_version_id is None else bases[file.base_version_id]
    before = None if base is None or base.deleted else base.state
    after = None if file.deleted else file.state
    body = bodies[after.sha256] if after is not None and after.sha256 is not None else None
    # A file created and deleted before it reached the disk is looked for where it would have been.
    before = before or (file.state if after is None else None)
    return FileChange(file.id, file.version_id, file.type, file.base_version_id, before, after, body)


def _present(disk_of: WorkspaceDisks, steps: Sequence[FileChange]) -> list[AppliedFile]:
    """Return the files whose content an interrupted rebuild has written already."""
    found: list[AppliedFile] = []
    for step in steps:
        if step.after is None or step.after.kind is not EntryKind.FILE or step.moves:
            continue
        disk = disk_of(step.after.path)
        node = disk.stat_no_symlinks(step.after.path)
        if node is not None and disk_matches_state(disk, step.after, node):
            found.append(AppliedFile(step.file_id, step.version_id, node.fingerprint))
    return found


def external_change(file: File | None, state: EntryState | None, body: bytes | None) -> FileChange:
    """Build the change from a file's head to what is on disk, or the first version of an untracked file."""
    kind = state.kind if state else None
    type_ = file.type if file else FileType.DOCUMENT
    if kind is EntryKind.FOLDER:
        type_ = FileType.FOLDER
    elif kind is not None and type_ is FileType.FOLDER:
        type_ = FileType.DOCUMENT
    return FileChange(
        file_id=file.id if file else FileId(new_id()),
        version_id=VersionId(new_id()),
        type=type_,
        base=file.version_id if file else None,
        before=None if file is None or file.deleted else file.state,
        after=state,
        body=body,
    )


def remove_temp_files(disk_of: WorkspaceDisks, steps: Sequence[FileChange]) -> None:
    """Remove stray temporary files beside the files that were being written."""
    paths = {state.path.parent for step in steps for state in step.states}
    for folder in paths:
        # If a link is on the way, no write was started there.
        if folder.mount.writable and disk_of(folder).stat_no_symlinks(folder) is not None:
            disk_of(folder).sweep(folder)


def plan_redo(
    disk_of: WorkspaceDisks, steps: Sequence[FileChange], files: Sequence[File]
) -> tuple[list[FileChange], DiskChanges]:
    """Return the steps to apply again, and the changes by others, which are kept on top of ours."""
    redo: list[FileChange] = []
    changes: list[FileChange] = []
    applied: list[AppliedFile] = []
    # Files may swap paths: what one of them leaves at a path is as much ours as the other's state.
    ours: dict[WorkspacePath, list[EntryState]] = defaultdict(list)
    for known in (known for step in steps for known in step.states):
        ours[known.path].append(known)
    for step, file in zip(steps, files, strict=True):
        theirs = [state for state in step.states if not _is_ours(disk_of, ours[state.path], state.path)]
        if not theirs:
            redo.append(step)
            continue
        state, body, node = observe_entry(disk_of(theirs[-1].path), theirs[-1].path, step.after)
        if step.moves and state is not None and step.after is not None:
            # Their content goes to our target path, also because the folder around it may be moving.
            state = replace(state, path=step.after.path)
            changes.append(external_change(file, state, body))
            source = step.before if step.before not in theirs[:-1] else None
            if state.is_untracked and theirs[-1] is step.before:
                # The content is not stored anywhere else, so it is moved from where it is.
                source = replace(state, path=step.before.path)
            redo.append(replace(changes[-1], before=source))
            continue
        changes.append(external_change(file, state, body))
        applied.append(AppliedFile(file.id, changes[-1].version_id, node.fingerprint if node else None))
    return redo, DiskChanges(tuple(changes), tuple(applied))


def list_stranded_trash(
    disk_of: WorkspaceDisks, steps: Sequence[FileChange], redo: Sequence[FileChange]
) -> list[TrashedFile]:
    """List content that is in the trash, or goes there with ``redo``, because others wrote at its path."""
    still = {step.after.trash_id for step in redo if step.after}
    lying = [
        TrashedFile(step.file_id, state)
        for step in steps
        for state in step.states
        if state.trash_id not in (None, *still) and _is_aside(disk_of, state)
    ]
    going = [
        TrashedFile(step.file_id, step.before)
        for step in redo
        if step.before is not None and step.before.trash_id not in (None, *still)
    ]
    return list({found.trash_id: found for found in (*lying, *going)}.values())


def _is_ours(disk_of: WorkspaceDisks, states: Sequence[EntryState], path: WorkspacePath) -> bool:
    """Whether the path has nothing but what these steps found or leave there."""
    disk = disk_of(path)
    node = disk.stat_no_symlinks(path)
    if node is None:
        return True
    expected = [known for known in states if not _is_aside(disk_of, known)]
    return any(
        disk_matches_state(disk, known, node) or known.kind is EntryKind.FOLDER is node.kind for known in expected
    )


def _is_aside(disk_of: WorkspaceDisks, state: EntryState) -> bool:
    """Whether a state's content is in the trash, so that something else is at its path."""
    return state.trash_id is not None and disk_of.trash.holds(state.trash_id)
