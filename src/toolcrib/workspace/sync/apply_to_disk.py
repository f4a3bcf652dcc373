"""Applies committed changes to disk, in an order that survives moves, swaps and crashes.

The caller holds the locks and has checked the base.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from graphlib import CycleError, TopologicalSorter

from toolcrib.core.change_sets import FileChange
from toolcrib.core.errors import Conflict, NotFound, ToolFailed
from toolcrib.core.files import EntryKind, EntryState, Fingerprint
from toolcrib.core.ids import FileId
from toolcrib.core.paths import WorkspacePath
from toolcrib.storage.change_sets import AppliedFile
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.sync.path_state import disk_matches_state, is_same_inode


class RenameOrder:
    """Computes the order of renames in a set, so that no folder takes along what belongs elsewhere.

    ``goals`` maps each old path to its new one; ``folders`` are the old paths of folders. Touches no disk.
    """

    def __init__(self, goals: Mapping[WorkspacePath, WorkspacePath], folders: Collection[WorkspacePath]) -> None:
        self._goals = goals
        self._folders = folders
        self._carriers: dict[WorkspacePath, WorkspacePath] = {}
        self._leaving: dict[WorkspacePath, list[WorkspacePath]] = defaultdict(list)
        for path, goal in goals.items():
            above = [folder for folder in path.ancestors if folder in goals]
            if above and goal == path.relocate(above[-1], goals[above[-1]]):
                self._carriers[path] = above[-1]
                continue
            for folder in above:
                self._leaving[folder].append(path)

    def carrier(self, path: WorkspacePath) -> WorkspacePath | None:
        """Return the folder whose rename also moves this path, if there is one."""
        return self._carriers.get(path)

    def leaving(self, folder: WorkspacePath) -> Collection[WorkspacePath]:
        """Return the paths in a folder that move elsewhere than the folder."""
        return self._leaving.get(folder, ())

    def __iter__(self) -> Iterator[WorkspacePath]:
        """Yield each path after those it waits for. Folders in a cycle are left out; files in a cycle come last."""
        waits = {path: self._waits_for(path) for path in self._goals}
        last: list[WorkspacePath] = []
        while waits:
            sorter, cycle = TopologicalSorter(waits), set[WorkspacePath]()
            try:
                sorter.prepare()
            except CycleError as error:
                cycle.update(error.args[1])
            while ready := sorter.get_ready():
                yield from ready
                sorter.done(*ready)
                for path in ready:
                    del waits[path]
            # Nothing goes into a file, and a rename onto its path fails: so others need not wait for files.
            last += [path for path in waits if path not in self._folders]
            waits = {
                path: {other for other in others if other in waits and other in self._folders} - cycle
                for path, others in waits.items()
                if path in self._folders and path not in cycle
            }
        yield from last

    def _waits_for(self, path: WorkspacePath) -> set[WorkspacePath]:
        """Return what occupies the target or its parents, what moves the path along, and what must leave it first."""
        goal = self._goals[path]
        waits = {above for above in (*goal.ancestors, goal) if above in self._goals}
        waits.update(self.leaving(path))
        if path in self._carriers:
            waits.add(self._carriers[path])
        return waits


# Owner permissions that a folder needs while its content changes.
OPEN = 0o700


@contextmanager
def temporarily_writable(disk_of: WorkspaceDisks, paths: Collection[WorkspacePath]) -> Iterator[None]:
    """Make the folders above these paths writable for the owner, and restore their modes afterwards.

    A mode that the change itself sets on a folder stays.
    """
    was: dict[WorkspacePath, int] = {}
    above = {folder for path in paths for folder in path.ancestors}
    try:
        for folder in sorted(above, key=_depth):
            node = disk_of(folder).stat_no_symlinks(folder)
            if node is not None and node.kind is EntryKind.FOLDER and node.mode & OPEN != OPEN:
                disk_of(folder).set_mode(folder, node.mode | OPEN)
                was[folder] = node.mode
        yield
    finally:
        for folder in sorted(was, key=_depth, reverse=True):
            node = disk_of(folder).stat_no_symlinks(folder)
            if node is not None and node.mode == was[folder] | OPEN:
                with suppress(NotFound):
                    disk_of(folder).set_mode(folder, was[folder])


def _depth(path: WorkspacePath) -> int:
    return len(path.parts)


# More changes than this are synced together.
_MANY = 64


# How many changes are between two reports of progress.
_REPORTED = 500


class _Progress:
    """Counts changes that are on disk, and reports their number."""

    def __init__(self, report: Callable[[int, int], object] | None, total: int) -> None:
        self._report = report
        self._total = total
        self._done = 0

    def step(self) -> None:
        self._done += 1
        if self._report is not None and self._done % _REPORTED == 0 and self._done <= self._total:
            self._report(self._done, self._total)


def apply(
    disk_of: WorkspaceDisks, steps: Sequence[FileChange], report: Callable[[int, int], object] | None = None
) -> list[AppliedFile]:
    """Complete every change, whatever part of it was done before. Idempotent.

    ``report`` receives how many changes are on disk, and their number, from the thread that applies them.

    Displaced and deleted files go first, so that no moving folder takes them along. Then everything is renamed that can
    be. Then paths are freed, folders created and contents written. So one set can free a path and use it again.
    """
    with disk_of.synced_together() if len(steps) > _MANY else nullcontext(disk_of) as disks:
        try:
            return _apply(disks, steps, _Progress(report, len(steps)))
        except ToolFailed:
            # A program may have locked a folder against its owner. Retry with the folders writable.
            with temporarily_writable(disks, {state.path for step in steps for state in step.states}):
                return _apply(disks, steps, _Progress(report, len(steps)))


def _apply(disk_of: WorkspaceDisks, steps: Sequence[FileChange], progress: _Progress) -> list[AppliedFile]:
    wanted = {step.after.path: step.after.kind for step in steps if step.after is not None}
    # Moves are renames if the target is free: then a folder takes its untracked content along.
    movers = [step for step in steps if step.before is not None and step.moves]
    targets = {_after(step).path for step in movers}
    written = {path: kind for path, kind in wanted.items() if path not in targets}
    _displace(disk_of, steps, movers)
    for path in _deepest_first(step.before.path for step in steps if step.before and step.after is None):
        _free(disk_of, path, written)
        progress.step()
    _rename_all(disk_of, movers)
    for step in (step for step in movers if _before(step).is_untracked):
        # It could not be renamed because the target is occupied, and it has no stored content to write.
        if is_same_inode(_before(step), disk_of(_before(step).path).stat_no_symlinks(_before(step).path)):
            _set_aside(disk_of, step)
    for path in _deepest_first(_before(step).path for step in steps if _is_left_over(disk_of, step)):
        _free(disk_of, path, wanted)
    prints: dict[FileId, Fingerprint | None] = {}
    contents = [step for step in steps if _is_written(step)]
    at_once = {step.file_id for step in contents} if len(contents) > _MANY else set()
    for step in sorted(steps, key=_folders_first):
        if step.file_id not in at_once:
            prints[step.file_id] = None if step.after is None else _make(disk_of, step)
            if step.after is not None:
                progress.step()
    if at_once:
        prints |= _write_all(disk_of, contents, progress)
    for step in sorted((step for step in steps if _locks(step)), key=_folders_first, reverse=True):
        disk_of(_after(step).path).set_mode(_after(step).path, _after(step).mode)
    return [AppliedFile(step.file_id, step.version_id, prints[step.file_id]) for step in steps]


def _displace(disk_of: WorkspaceDisks, steps: Sequence[FileChange], movers: Sequence[FileChange]) -> None:
    """Move untracked content into the trash, files before the folders that move as a whole."""
    displaced = [step for step in steps if step.before is not None and step.trashed]
    inside: dict[WorkspacePath, list[FileChange]] = defaultdict(list)
    for mover in movers if displaced else ():
        for above in _before(mover).path.ancestors:
            inside[above].append(mover)
    for step in sorted(displaced, key=lambda step: -len(_before(step).path.parts)):
        for mover in inside.get(_before(step).path, ()):
            _rename(disk_of, mover)
        _set_aside(disk_of, step)


def _set_aside(disk_of: WorkspaceDisks, step: FileChange) -> None:
    trash_id, path = _before(step).trash_id, _before(step).path
    # If the content is already in the trash, something else is at the path.
    if trash_id is None or disk_of.trash.holds(trash_id) or disk_of(path).stat_no_symlinks(path) is None:
        return
    disk_of.trash.move_in(disk_of(path), path, trash_id)


def _is_left_over(disk_of: WorkspaceDisks, step: FileChange) -> bool:
    """Whether the earlier state of a step is still on disk, although it must go.

    Something else may be there by now: a renamed folder brings its untracked content.
    """
    if step.before is None:
        return False
    disk, path = disk_of(step.before.path), step.before.path
    node = disk.stat_no_symlinks(path)
    if step.after is None:
        # A folder from which something had to move first. It is removed only if it is empty.
        return step.before.kind is EntryKind.FOLDER and node is not None and node.kind is EntryKind.FOLDER
    return not step.moves or disk_matches_state(disk, step.before, node)


def _rename_all(disk_of: WorkspaceDisks, moving: Sequence[FileChange]) -> None:
    """Rename everything that moves; folders take their content along.

    A folder with content that must leave first, and cannot yet, is not renamed. Its content is moved or written one by
    one.
    """
    movers = {_before(step).path: step for step in moving}
    goals = {path: _after(step).path for path, step in movers.items()}
    turns = RenameOrder(goals, {path for path, step in movers.items() if _before(step).kind is EntryKind.FOLDER})
    gone: set[WorkspacePath] = set()
    for path in turns:
        is_stuck = any(disk_of(left).stat_no_symlinks(left) is not None for left in turns.leaving(path))
        if turns.carrier(path) in gone or (not is_stuck and _rename(disk_of, movers[path])):
            gone.add(path)


def _deepest_first(paths: Iterable[WorkspacePath]) -> list[WorkspacePath]:
    return sorted(paths, key=lambda path: -len(path.parts))


def _folders_first(step: FileChange) -> tuple[bool, int]:
    state = step.after or _before(step)
    return state.kind is not EntryKind.FOLDER, len(state.path.parts)


def _before(step: FileChange) -> EntryState:
    assert step.before is not None
    return step.before


def _rename(disk_of: WorkspaceDisks, step: FileChange) -> bool:
    """Rename on disk if that is still to be done and the target is free. Otherwise the target is written later."""
    assert step.before is not None and step.after is not None
    source, destination = step.before.path, step.after.path
    disk = disk_of(source)
    there, taken = disk.stat_no_symlinks(source), disk_of(destination).stat_no_symlinks(destination)
    if disk_of(destination) is disk and there is not None and taken is None:
        # A file may still be where the parent folder will be. Then the content is written instead.
        with suppress(Conflict):
            disk.rename(source, destination)
            return True
    return False


def _free(disk_of: WorkspaceDisks, path: WorkspacePath, wanted: Mapping[WorkspacePath, EntryKind]) -> None:
    """Remove what is at a path that must be empty, or must have another kind."""
    disk = disk_of(path)
    node = disk.stat_no_symlinks(path)
    if node is None or node.kind is wanted.get(path):
        return
    # If an outside program put something into a folder at the last moment, the folder stays.
    with suppress(Conflict):
        disk.remove(path)


def _locks(step: FileChange) -> bool:
    after = step.after
    return after is not None and after.kind is EntryKind.FOLDER and after.mode & OPEN != OPEN


def _is_written(step: FileChange) -> bool:
    after = step.after
    return step.body is not None and after is not None and after.kind is EntryKind.FILE and after.trash_id is None


def _write_all(
    disk_of: WorkspaceDisks, steps: Sequence[FileChange], progress: _Progress
) -> dict[FileId, Fingerprint | None]:
    """Write many contents with few syncs. Syncing each file separately would take minutes."""
    prints: dict[FileId, Fingerprint | None] = {}
    for disk in {disk_of(_after(step).path) for step in steps}:
        here = [step for step in steps if disk_of(_after(step).path) is disk]
        contents = [(_after(step).path, step.body or b"", _after(step).mode) for step in here]
        nodes = disk.write_all(contents, progress.step)
        prints |= zip((step.file_id for step in here), (node.fingerprint for node in nodes), strict=True)
    return prints


def _after(step: FileChange) -> EntryState:
    assert step.after is not None
    return step.after


def _make(disk_of: WorkspaceDisks, step: FileChange) -> Fingerprint | None:
    assert step.after is not None
    after, before = step.after, step.before
    disk = disk_of(after.path)
    if after.trash_id is not None and disk_of.trash.holds(after.trash_id):
        # The entry at the path is in the history: the base was checked, and untracked content was set aside.
        disk.remove(after.path)
        disk_of.trash.move_out(disk, after.trash_id, after.path)
    if after.is_untracked and disk.stat(after.path) is None:
        # An outside program removed it. The next lookup records that.
        return None
    if after.kind is EntryKind.FOLDER:
        # A folder is locked only after everything in it was written.
        mode = after.mode | OPEN if _locks(step) else after.mode
        node = disk.make_folder(after.path, mode=mode)
        if node.mode != mode:
            disk.set_mode(after.path, mode)
        if before == after:
            disk.set_times(after.path)
        return None
    if after.kind is EntryKind.LINK:
        assert after.link_target is not None
        return disk.make_link(after.path, after.link_target).fingerprint
    if step.body is not None:
        return disk.write(after.path, step.body, mode=after.mode).fingerprint
    # The content is already there: the file was moved, touched, or only gets another mode.
    node = disk.set_times(after.path) if before == after else disk.set_mode(after.path, after.mode)
    return node.fingerprint
