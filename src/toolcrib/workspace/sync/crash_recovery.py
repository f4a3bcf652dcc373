"""Plans recovery after a crash: which changes to apply again, and where someone else wrote meanwhile."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from toolcrib.core.change_sets import FileChange, TrashedFile
from toolcrib.core.files import EntryKind, EntryState, File, FileType
from toolcrib.core.ids import FileId, VersionId, new_id
from toolcrib.core.paths import WorkspacePath
from toolcrib.storage.change_sets import AppliedFile
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.sync.path_state import disk_matches_state, observe_entry


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
