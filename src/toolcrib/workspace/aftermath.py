"""After a crash: which changes to do again, and where someone else wrote meanwhile. Changes no row and no file."""

from collections.abc import Sequence
from dataclasses import replace

from toolcrib.domain.changes import Change
from toolcrib.domain.files import File, NodeKind, NodeState
from toolcrib.storage.changes import Settled
from toolcrib.workspace.apply import DiskOf, Step
from toolcrib.workspace.drift import holds, observed
from toolcrib.workspace.findings import Found, external_change


def sweep(disk_of: DiskOf, steps: Sequence[Step]) -> None:
    """Removes stray temporaries. They lie beside what was being written."""
    places = {state.place.parent for step in steps for state in step.states}
    for folder in places:
        if folder.mount.writable:
            disk_of(folder).sweep(folder)


def sorted_out(disk_of: DiskOf, steps: Sequence[Step], files: Sequence[File]) -> tuple[list[Step], Found]:
    """The steps to do again, and what others wrote: that is kept, and booked on top of ours."""
    redo: list[Step] = []
    changes: list[Change] = []
    settled: list[Settled] = []
    for step, file in zip(steps, files, strict=True):
        theirs = [state for state in step.states if not _is_ours(disk_of, step, state)]
        if not theirs:
            redo.append(step)
            continue
        state, body, node = observed(disk_of(theirs[-1].place), theirs[-1].place, step.after)
        if step.moves and state is not None and step.after is not None:
            # What they wrote goes where ours was to go, also because the folder it stands in may be moving.
            state = replace(state, place=step.after.place)
            changes.append(external_change(file, state, body))
            source = step.before if step.before not in theirs[:-1] else None
            redo.append(Step(file.id, changes[-1].version_id, source, state, body))
            continue
        changes.append(external_change(file, state, body))
        settled.append(Settled(file.id, changes[-1].version_id, node.fingerprint if node else None))
    return redo, Found(tuple(changes), tuple(settled))


def _is_ours(disk_of: DiskOf, step: Step, state: NodeState) -> bool:
    """Whether the disk holds, at a state's place, nothing but what this step found or leaves there."""
    disk = disk_of(state.place)
    node = disk.look(state.place)
    if node is None:
        return True
    expected = [known for known in step.states if known.place == state.place]
    return any(holds(disk, known, node) or known.kind is NodeKind.FOLDER is node.kind for known in expected)
