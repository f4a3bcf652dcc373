"""Makes the disk hold what the history says. Decides nothing: whoever calls holds the locks and checked the base."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from toolcrib.domain.changes import Change
from toolcrib.domain.errors import Conflict
from toolcrib.domain.files import Fingerprint, NodeKind, NodeState
from toolcrib.domain.ids import FileId, VersionId
from toolcrib.domain.places import Place
from toolcrib.storage.changes import Settled
from toolcrib.workspace.disk import Disk

DiskOf = Callable[[Place], Disk]


@dataclass(frozen=True, slots=True)
class Step:
    """One file's way on disk: from the state it was left in to its head. ``body`` is the head's content."""

    file_id: FileId
    version_id: VersionId
    before: NodeState | None
    after: NodeState | None
    body: bytes | None

    @classmethod
    def of(cls, change: Change) -> "Step":
        return cls(change.file_id, change.version_id, change.before, change.after, change.body)

    @property
    def states(self) -> tuple[NodeState, ...]:
        return tuple(state for state in (self.before, self.after) if state is not None)

    @property
    def moves(self) -> bool:
        return self.before is not None and self.after is not None and self.before.place != self.after.place


def apply(disk_of: DiskOf, steps: Sequence[Step]) -> list[Settled]:
    """Brings every step to its end, whatever part of it was done before. Doing it twice is harmless.

    What is deleted goes first, then moves (a folder before what it holds, which then has moved with it), then
    new folders, then contents: so a path can be freed and taken in one set.
    """
    movers = sorted((s for s in steps if s.moves), key=lambda s: len(_before(s).place.parts))
    gone = sorted((s for s in steps if s.after is None), key=lambda s: -len(_before(s).place.parts))
    makers = sorted((s for s in steps if s.after is not None), key=lambda s: len(s.after.place.parts))  # type: ignore[union-attr]
    taken = {step.after.place for step in steps if step.after is not None}
    prints: dict[FileId, Fingerprint | None] = {}
    # A deleted folder may still hold what a move is about to take out of it.
    for step in gone:
        if _before(step).kind is not NodeKind.FOLDER and _before(step).place not in taken:
            disk_of(_before(step).place).remove(_before(step).place)
        prints[step.file_id] = None
    for step in movers:
        _move(disk_of, step)
    for step in gone:
        if _before(step).kind is NodeKind.FOLDER and _before(step).place not in taken:
            # A program outside put something into it at the last moment: then the folder stays, with that in it.
            with suppress(Conflict):
                disk_of(_before(step).place).remove(_before(step).place)
    for step in makers:
        prints[step.file_id] = _make(disk_of, step)
    return [Settled(step.file_id, step.version_id, prints[step.file_id]) for step in steps]


def _before(step: Step) -> NodeState:
    assert step.before is not None
    return step.before


def _move(disk_of: DiskOf, step: Step) -> None:
    """Renames on disk if that is still to be done and possible; else ``_make`` writes the new place."""
    assert step.before is not None and step.after is not None
    source, destination = step.before.place, step.after.place
    disk = disk_of(source)
    if disk.look(source) is None or disk_of(destination) is not disk:
        return
    if disk.look(destination) is None:
        disk.rename(source, destination)


def _make(disk_of: DiskOf, step: Step) -> Fingerprint | None:
    assert step.after is not None
    after, before = step.after, step.before
    disk = disk_of(after.place)
    if after.kind is NodeKind.FOLDER:
        node = disk.make_folder(after.place, mode=after.mode)
        if node.mode != after.mode:
            disk.set_mode(after.place, after.mode)
        if before == after:
            disk.set_times(after.place)
        return None
    if after.kind is NodeKind.LINK:
        assert after.target is not None
        return disk.make_link(after.place, after.target).fingerprint
    if step.body is not None:
        written = disk.write(after.place, step.body, mode=after.mode)
        _remove_old(disk_of, before, after)
        return written.fingerprint
    # The content is there already: moved, touched, or given another mode.
    node = disk.set_times(after.place) if before == after else disk.set_mode(after.place, after.mode)
    return node.fingerprint


def _remove_old(disk_of: DiskOf, before: NodeState | None, after: NodeState) -> None:
    """A move that had to be written anew leaves its old place."""
    if before is not None and before.place != after.place:
        disk_of(before.place).remove(before.place)
