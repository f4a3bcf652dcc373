"""After a crash: which changes to do again, and where someone else wrote meanwhile. Changes no row and no file."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from toolcrib.core.change_sets import FileChange
from toolcrib.core.files import EntryKind, EntryState, File, FileType
from toolcrib.core.ids import FileId, VersionId, new_id
from toolcrib.core.paths import WorkspacePath
from toolcrib.storage.change_sets import AppliedFile
from toolcrib.storage.trash import TrashedFile
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.fs.trash import token_of
from toolcrib.workspace.sync.apply_to_disk import ApplyStep
from toolcrib.workspace.sync.path_state import disk_matches_state, observe_entry, stat_no_symlinks

# What was found on disk that the history did not know: changes by the author ``external``, or by a process of ours.


@dataclass(frozen=True, slots=True)
class DiskChanges:
    """Changes to book, how every file looks on disk, and when the disk says that each change was made, if it does."""

    changes: tuple[FileChange, ...]
    settled: tuple[AppliedFile, ...]
    dates_ns: Mapping[VersionId, int] = field(default_factory=dict)


def external_change(file: File | None, state: EntryState | None, body: bytes | None) -> FileChange:
    """A file's step to what the disk holds; of a file that the history does not know yet, its first."""
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


def remove_temp_files(disk_of: WorkspaceDisks, steps: Sequence[ApplyStep]) -> None:
    """Removes stray temporaries. They lie beside what was being written."""
    places = {state.place.parent for step in steps for state in step.states}
    for folder in places:
        # Where a link is on the way now, nothing was begun.
        if folder.mount.writable and stat_no_symlinks(disk_of(folder), folder) is not None:
            disk_of(folder).sweep(folder)


def plan_redo(
    disk_of: WorkspaceDisks, steps: Sequence[ApplyStep], files: Sequence[File]
) -> tuple[list[ApplyStep], DiskChanges]:
    """The steps to do again, and what others wrote: that is kept, and booked on top of ours."""
    redo: list[ApplyStep] = []
    changes: list[FileChange] = []
    settled: list[AppliedFile] = []
    # Files may trade places: what one of them leaves or finds at a place is as much ours as the other's.
    ours: dict[WorkspacePath, list[EntryState]] = defaultdict(list)
    for known in (known for step in steps for known in step.states):
        ours[known.place].append(known)
    for step, file in zip(steps, files, strict=True):
        theirs = [state for state in step.states if not _is_ours(disk_of, ours[state.place], state.place)]
        if not theirs:
            redo.append(step)
            continue
        state, body, node = observe_entry(disk_of(theirs[-1].place), theirs[-1].place, step.after)
        if step.moves and state is not None and step.after is not None:
            # What they wrote goes where ours was to go, also because the folder it stands in may be moving.
            state = replace(state, place=step.after.place)
            changes.append(external_change(file, state, body))
            source = step.before if step.before not in theirs[:-1] else None
            if token_of(state) is not None and theirs[-1] is step.before:
                # Nobody could write it again: it is moved from where it stands.
                source = replace(state, place=step.before.place)
            redo.append(ApplyStep(file.id, changes[-1].version_id, source, state, body))
            continue
        changes.append(external_change(file, state, body))
        settled.append(AppliedFile(file.id, changes[-1].version_id, node.fingerprint if node else None))
    return redo, DiskChanges(tuple(changes), tuple(settled))


def list_stranded_trash(
    disk_of: WorkspaceDisks, steps: Sequence[ApplyStep], redo: Sequence[ApplyStep]
) -> list[TrashedFile]:
    """What is in the trash, or goes there when ``redo`` is done, because others wrote where it was to be."""
    still = {token_of(step.after) for step in redo}
    lying = [
        (step, state)
        for step in steps
        for state in step.states
        if (token := token_of(state)) is not None and token not in still and disk_of.trash.holds(token)
    ]
    going = [
        (step, step.before) for step in redo if step.before is not None and token_of(step.before) not in (None, *still)
    ]
    found = {token: (step, state) for step, state in (*lying, *going) if (token := token_of(state)) is not None}
    return [
        TrashedFile(token, step.file_id, state.place, state.kind, state.mode, state.size)
        for token, (step, state) in found.items()
    ]


def _is_ours(disk_of: WorkspaceDisks, states: Sequence[EntryState], place: WorkspacePath) -> bool:
    """Whether the disk holds, at a place, nothing but what these steps found or leave there."""
    disk = disk_of(place)
    node = stat_no_symlinks(disk, place)
    if node is None:
        return True
    expected = [known for known in states if not _is_aside(disk_of, known)]
    return any(
        disk_matches_state(disk, known, node) or known.kind is EntryKind.FOLDER is node.kind for known in expected
    )


def _is_aside(disk_of: WorkspaceDisks, state: EntryState) -> bool:
    """Whether a state's content lies in the trash, so that what stands at its place must be another."""
    token = token_of(state)
    return token is not None and disk_of.trash.holds(token)
