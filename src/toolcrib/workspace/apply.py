"""Makes the disk hold what the history says. Decides nothing: whoever calls holds the locks and checked the base."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from toolcrib.domain.changes import Change
from toolcrib.domain.errors import Conflict, ToolFailed
from toolcrib.domain.files import Fingerprint, NodeKind, NodeState
from toolcrib.domain.ids import FileId, VersionId
from toolcrib.domain.places import Place
from toolcrib.storage.changes import Settled
from toolcrib.workspace.drift import holds, look_past_links
from toolcrib.workspace.mounts import Disks
from toolcrib.workspace.trash import is_it, token_of
from toolcrib.workspace.turns import Turns
from toolcrib.workspace.unlocking import OPEN, unlocked

# More contents than this are made safe all together.
_MANY = 64


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


def apply(disk_of: Disks, steps: Sequence[Step]) -> list[Settled]:
    """Brings every step to its end, whatever part of it was done before. Doing it twice is harmless.

    What is displaced or deleted goes first, so that no moving folder takes it along; then whatever can be renamed is;
    then places are freed, new folders made and contents written: so one set can free a place and take it.
    """
    try:
        return _apply(disk_of, steps)
    except ToolFailed:
        # A folder may be locked against its owner, which a program can do and undo.
        with unlocked(disk_of, {state.place for step in steps for state in step.states}):
            return _apply(disk_of, steps)


def _apply(disk_of: Disks, steps: Sequence[Step]) -> list[Settled]:
    wanted = {step.after.place: step.after.kind for step in steps if step.after is not None}
    # What moves is renamed, if it finds its place free: then a folder takes along what only the disk knows in it.
    written = {step.after.place: step.after.kind for step in steps if step.after is not None and not step.moves}
    _displace(disk_of, steps)
    for place in _deepest_first(step.before.place for step in steps if step.before and step.after is None):
        _free(disk_of, place, written)
    _rename_all(disk_of, steps)
    for step in (step for step in steps if step.moves and token_of(step.before) is not None):
        # What could not be renamed, since another stands in its way, and has no content that could be written.
        if is_it(_before(step), look_past_links(disk_of(_before(step).place), _before(step).place)):
            _set_aside(disk_of, step)
    for place in _deepest_first(_before(step).place for step in steps if _is_left_over(disk_of, step)):
        _free(disk_of, place, wanted)
    prints: dict[FileId, Fingerprint | None] = {}
    contents = [step for step in steps if _is_written(step)]
    at_once = {step.file_id for step in contents} if len(contents) > _MANY else set()
    for step in sorted(steps, key=_folders_first):
        if step.file_id not in at_once:
            prints[step.file_id] = None if step.after is None else _make(disk_of, step)
    if at_once:
        prints |= _write_all(disk_of, contents)
    for step in sorted((step for step in steps if _locks(step)), key=_folders_first, reverse=True):
        disk_of(_after(step).place).set_mode(_after(step).place, _after(step).mode)
    return [Settled(step.file_id, step.version_id, prints[step.file_id]) for step in steps]


def _displace(disk_of: Disks, steps: Sequence[Step]) -> None:
    """Moves into the trash what nobody could write again, files before the folders that go as a whole."""
    displaced = [step for step in steps if token_of(step.before) not in (None, token_of(step.after))]
    for step in sorted(displaced, key=lambda step: -len(_before(step).place.parts)):
        for mover in (other for other in steps if other.moves and _before(other).place.is_below(_before(step).place)):
            _rename(disk_of, mover)
        _set_aside(disk_of, step)


def _set_aside(disk_of: Disks, step: Step) -> None:
    token, place = token_of(step.before), _before(step).place
    # If it lies in the trash already, then what stands there is something else.
    if token is None or disk_of.trash.holds(token) or look_past_links(disk_of(place), place) is None:
        return
    disk_of.trash.take(disk_of(place), place, token)


def _is_left_over(disk_of: Disks, step: Step) -> bool:
    """Whether what a step found still stands there, though it shall not.

    Something else may have come there since: a folder that was renamed brings along what only the disk knows.
    """
    if step.before is None:
        return False
    disk, place = disk_of(step.before.place), step.before.place
    node = look_past_links(disk, place)
    if step.after is None:
        # A folder from which something had to move first. It goes only if it is empty.
        return step.before.kind is NodeKind.FOLDER and node is not None and node.kind is NodeKind.FOLDER
    return not step.moves or holds(disk, step.before, node)


def _rename_all(disk_of: Disks, steps: Sequence[Step]) -> None:
    """Renames what moves; folders take along what goes with them.

    A folder from which something could not leave yet is not renamed, or it would take that along; what it holds is
    then moved or written one by one.
    """
    movers = {_before(step).place: step for step in steps if step.moves}
    goals = {place: step.after.place for place, step in movers.items() if step.after is not None}
    turns = Turns(goals, {place for place, step in movers.items() if _before(step).kind is NodeKind.FOLDER})
    gone: set[Place] = set()
    for place in turns:
        is_stuck = any(look_past_links(disk_of(left), left) is not None for left in turns.leaving(place))
        if turns.carrier(place) in gone or (not is_stuck and _rename(disk_of, movers[place])):
            gone.add(place)


def _deepest_first(places: Iterable[Place]) -> list[Place]:
    return sorted(places, key=lambda place: -len(place.parts))


def _folders_first(step: Step) -> tuple[bool, int]:
    state = step.states[-1]
    return state.kind is not NodeKind.FOLDER, len(state.place.parts)


def _before(step: Step) -> NodeState:
    assert step.before is not None
    return step.before


def _rename(disk_of: Disks, step: Step) -> bool:
    """Moves on disk if that is still to be done and nothing stands in the way; else the new place is written."""
    assert step.before is not None and step.after is not None
    source, destination = step.before.place, step.after.place
    disk = disk_of(source)
    there, taken = look_past_links(disk, source), look_past_links(disk_of(destination), destination)
    if disk_of(destination) is disk and there is not None and taken is None:
        # A file may still stand where the folder above will be; then the content is written instead.
        with suppress(Conflict):
            disk.rename(source, destination)
            return True
    return False


def _free(disk_of: Disks, place: Place, wanted: Mapping[Place, NodeKind]) -> None:
    """Removes what stands where nothing shall stand, or something of another kind."""
    disk = disk_of(place)
    node = look_past_links(disk, place)
    if node is None or node.kind is wanted.get(place):
        return
    # A program outside put something into a folder at the last moment: then it stays, with that in it.
    with suppress(Conflict):
        disk.remove(place)


def _locks(step: Step) -> bool:
    after = step.after
    return after is not None and after.kind is NodeKind.FOLDER and after.mode & OPEN != OPEN


def _is_written(step: Step) -> bool:
    after = step.after
    return step.body is not None and after is not None and after.kind is NodeKind.FILE and token_of(after) is None


def _write_all(disk_of: Disks, steps: Sequence[Step]) -> dict[FileId, Fingerprint | None]:
    """Very many contents: making each of them safe for itself would take minutes."""
    prints: dict[FileId, Fingerprint | None] = {}
    for disk in {disk_of(_after(step).place) for step in steps}:
        here = [step for step in steps if disk_of(_after(step).place) is disk]
        contents = [(_after(step).place, step.body or b"", _after(step).mode) for step in here]
        prints |= zip(
            (step.file_id for step in here), (node.fingerprint for node in disk.write_all(contents)), strict=True
        )
    return prints


def _after(step: Step) -> NodeState:
    assert step.after is not None
    return step.after


def _make(disk_of: Disks, step: Step) -> Fingerprint | None:
    assert step.after is not None
    after, before = step.after, step.before
    disk = disk_of(after.place)
    token = token_of(after)
    if token is not None and disk_of.trash.holds(token):
        # What stands there is in the history: the base was checked, and what is not was set aside.
        disk.remove(after.place)
        disk_of.trash.give(disk, token, after.place)
    if token is not None and disk.look(after.place) is None:
        # Someone outside took it away. The next look finds that out and books it.
        return None
    if after.kind is NodeKind.FOLDER:
        # One that is to be locked is so only when all that goes into it is there.
        mode = after.mode | OPEN if _locks(step) else after.mode
        node = disk.make_folder(after.place, mode=mode)
        if node.mode != mode:
            disk.set_mode(after.place, mode)
        if before == after:
            disk.set_times(after.place)
        return None
    if after.kind is NodeKind.LINK:
        assert after.target is not None
        return disk.make_link(after.place, after.target).fingerprint
    if step.body is not None:
        return disk.write(after.place, step.body, mode=after.mode).fingerprint
    # The content is there already: moved, touched, or given another mode.
    node = disk.set_times(after.place) if before == after else disk.set_mode(after.place, after.mode)
    return node.fingerprint
