"""After a crash: which changes to do again, and where someone else wrote meanwhile. Changes no row and no file."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from toolcrib.domain.changes import Change
from toolcrib.domain.files import File, NodeKind, NodeState
from toolcrib.domain.places import Place
from toolcrib.storage.changes import Settled
from toolcrib.storage.trash import Displaced
from toolcrib.workspace.apply import Step
from toolcrib.workspace.drift import holds, look_past_links, observed
from toolcrib.workspace.findings import Found, external_change
from toolcrib.workspace.mounts import Disks
from toolcrib.workspace.trash import token_of


def sweep(disk_of: Disks, steps: Sequence[Step]) -> None:
    """Removes stray temporaries. They lie beside what was being written."""
    places = {state.place.parent for step in steps for state in step.states}
    for folder in places:
        # Where a link is on the way now, nothing was begun.
        if folder.mount.writable and look_past_links(disk_of(folder), folder) is not None:
            disk_of(folder).sweep(folder)


def sorted_out(disk_of: Disks, steps: Sequence[Step], files: Sequence[File]) -> tuple[list[Step], Found]:
    """The steps to do again, and what others wrote: that is kept, and booked on top of ours."""
    redo: list[Step] = []
    changes: list[Change] = []
    settled: list[Settled] = []
    # Files may trade places: what one of them leaves or finds at a place is as much ours as the other's.
    ours: dict[Place, list[NodeState]] = defaultdict(list)
    for known in (known for step in steps for known in step.states):
        ours[known.place].append(known)
    for step, file in zip(steps, files, strict=True):
        theirs = [state for state in step.states if not _is_ours(disk_of, ours[state.place], state.place)]
        if not theirs:
            redo.append(step)
            continue
        state, body, node = observed(disk_of(theirs[-1].place), theirs[-1].place, step.after)
        if step.moves and state is not None and step.after is not None:
            # What they wrote goes where ours was to go, also because the folder it stands in may be moving.
            state = replace(state, place=step.after.place)
            changes.append(external_change(file, state, body))
            source = step.before if step.before not in theirs[:-1] else None
            if token_of(state) is not None and theirs[-1] is step.before:
                # Nobody could write it again: it is moved from where it stands.
                source = replace(state, place=step.before.place)
            redo.append(Step(file.id, changes[-1].version_id, source, state, body))
            continue
        changes.append(external_change(file, state, body))
        settled.append(Settled(file.id, changes[-1].version_id, node.fingerprint if node else None))
    return redo, Found(tuple(changes), tuple(settled))


def stranded(disk_of: Disks, steps: Sequence[Step], redo: Sequence[Step]) -> list[Displaced]:
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
        Displaced(token, step.file_id, state.place, state.kind, state.mode, state.size)
        for token, (step, state) in found.items()
    ]


def _is_ours(disk_of: Disks, states: Sequence[NodeState], place: Place) -> bool:
    """Whether the disk holds, at a place, nothing but what these steps found or leave there."""
    disk = disk_of(place)
    node = look_past_links(disk, place)
    if node is None:
        return True
    expected = [known for known in states if not _is_aside(disk_of, known)]
    return any(holds(disk, known, node) or known.kind is NodeKind.FOLDER is node.kind for known in expected)


def _is_aside(disk_of: Disks, state: NodeState) -> bool:
    """Whether a state's content lies in the trash, so that what stands at its place must be another."""
    token = token_of(state)
    return token is not None and disk_of.trash.holds(token)
