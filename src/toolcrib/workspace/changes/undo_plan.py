"""Plans how to undo a set of calls. The gate commits the plan like any other change.

For every file it asks whether someone else changed it since. If not, the file reverts to its state before the first of
these calls. If so, it reports both versions and leaves the file alone, unless force is used.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolcrib.core.files import EntryKind, EntryState, File, Version
from toolcrib.core.ids import FileId
from toolcrib.core.paths import WorkspacePath
from toolcrib.storage.file_history import FileTimeline
from toolcrib.workspace.changes.draft import Draft
from toolcrib.workspace.fs.trash import token_of, trash_unavailable_reason
from toolcrib.workspace.sync.apply_to_disk import RenameOrder
from toolcrib.workspace.tree import WorkspaceTree

_FORGOTTEN = "The previous version has expired."


@dataclass(frozen=True, slots=True)
class FileRevert:
    """Reverts a file to the state of ``version`` or, without one, removes it."""

    file: File
    version: Version | None

    @property
    def state(self) -> EntryState | None:
        return self.version.state if self.version else None

    @property
    def leaves(self) -> bool:
        """Whether the file leaves its current path."""
        return not self.file.deleted and (self.state is None or self.state.path != self.file.state.path)

    @property
    def is_idle(self) -> bool:
        """Whether the file is already in the wanted state."""
        if self.file.deleted or self.state is None:
            return self.file.deleted and self.state is None
        return self.state.path == self.file.state.path and self.state.holds_same_as(self.file.state)


@dataclass(frozen=True, slots=True)
class UndoConflict:
    """A file that is left alone, with the reason. ``ours`` is the last version by the calls, ``theirs`` a later one."""

    file: File
    reason: str
    ours: Version
    theirs: Version | None


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """The files to revert, and the conflicts."""

    reversals: tuple[FileRevert, ...]
    clashes: tuple[UndoConflict, ...]


async def plan_undo(tree: WorkspaceTree, histories: Sequence[FileTimeline], *, force: bool) -> UndoPlan:
    """Plan the revert of each file, then drop those that conflict with the rest of the tree."""
    clashes = [] if force else [clash for history in histories if (clash := _changed_since(history))]
    left_alone = {clash.file.id for clash in clashes}
    by_id = {history.file.id: history for history in histories}
    reversals = [_reversal(history) for history in histories if history.file.id not in left_alone]
    reversals = [reversal for reversal in reversals if not reversal.is_idle]
    lost = {r.file.id: _FORGOTTEN for r in reversals if _is_forgotten(by_id[r.file.id])}
    lost |= await _lost(tree, reversals)
    clashes += [_clash(by_id[file_id], reason) for file_id, reason in lost.items()]
    reversals = [reversal for reversal in reversals if reversal.file.id not in lost]
    while refused := await _impossible(tree, reversals):
        clashes += [_clash(by_id[file_id], reason) for file_id, reason in refused.items()]
        reversals = [reversal for reversal in reversals if reversal.file.id not in refused]
    return UndoPlan(tuple(reversals), tuple(clashes))


async def draft_undo(tree: WorkspaceTree, draft: Draft, reversals: Sequence[FileRevert]) -> None:
    """Add the reverts to the draft, folders first, so that files find their parents planned."""
    freed = {reversal.file.state.path for reversal in reversals if reversal.leaves}
    # When files swap paths, renaming is not enough: every content is written again.
    trades = any(reversal.state is not None and reversal.state.path in freed for reversal in reversals)
    for reversal in sorted(reversals, key=_folders_first):
        body = await _content(tree, reversal, always=trades)
        await draft.revert(reversal.file, reversal.state, body, freed=freed)


async def _content(tree: WorkspaceTree, reversal: FileRevert, *, always: bool) -> bytes | None:
    """Return the bytes to write, or ``None`` if the file already has them at its current path."""
    version, now = reversal.version, reversal.file.state
    if version is None or version.state.sha256 is None:
        return None
    if not always and not reversal.file.deleted and version.state.sha256 == now.sha256:
        return None
    return await tree.history.body(version)


def _changed_since(history: FileTimeline) -> UndoConflict | None:
    """Return a conflict if someone else changed the file after our first version and the change is still visible."""
    first = next(n for n, version in enumerate(history.versions) if version.id in history.ours)
    theirs = [version for version in history.versions[first:] if version.id not in history.ours]
    if not theirs:
        return None
    ours = _last_of_ours(history)
    head = history.versions[-1]
    if theirs[0].version_number > ours.version_number and _same(head, ours):
        return None
    return UndoConflict(history.file, "Changed by someone else.", ours, theirs[-1])


def _is_forgotten(history: FileTimeline) -> bool:
    """Whether retention deleted the version before our first one, so that there is nothing to revert to."""
    first = history.versions[0]
    return first.id in history.ours and first.version_number > 1


def _reversal(history: FileTimeline) -> FileRevert:
    before = history.versions[0] if history.versions[0].id not in history.ours else None
    return FileRevert(history.file, None if before is None or before.deleted else before)


async def _lost(tree: WorkspaceTree, reversals: Sequence[FileRevert]) -> dict[FileId, str]:
    """Find reverts whose content is no longer available, or that would lose content for good."""
    trashed = await tree.history.trashed([reversal.state for reversal in reversals if reversal.state is not None])
    refused: dict[FileId, str] = {}
    for reversal in reversals:
        file, token = reversal.file, token_of(reversal.state)
        held = None if file.deleted else token_of(file.state)
        if token is not None and token != held and (reason := trash_unavailable_reason(trashed.get(token))):
            refused[file.id] = reason
        elif held is not None and token != held and not tree.history.fits_the_trash(file.state):
            refused[file.id] = f"Its {file.state.size:,} bytes are too large for the trash."
    return refused


async def _impossible(tree: WorkspaceTree, reversals: Sequence[FileRevert]) -> dict[FileId, str]:
    """Find reverts that would remove a folder with content that stays, or that would land on an occupied path."""
    leaving = {reversal.file.id for reversal in reversals if reversal.leaves}
    freed = {reversal.file.state.path for reversal in reversals if reversal.leaves}
    # A folder that moves or goes into the trash as a whole takes its untracked content with it.
    folders = [r for r in reversals if r.leaves and r.file.state.kind is EntryKind.FOLDER]
    carriers = [r.file.state.path for r in folders if r.state is not None or token_of(r.file.state) is not None]
    refused: dict[FileId, str] = {}
    claimed: set[WorkspacePath] = set()
    for reversal in reversals:
        file, state = reversal.file, reversal.state
        if state is not None and state.path in claimed:
            refused[file.id] = "Another of these files would return to the same path."
            continue
        if state is not None:
            claimed.add(state.path)
        if (
            reversal.leaves
            and file.state.kind is EntryKind.FOLDER
            and await _stays_inside(tree, reversal, leaving, carriers)
        ):
            refused[file.id] = "Contains other files."
        elif state is not None and await _is_taken(tree, reversal, state.path, freed):
            refused[file.id] = "Another file exists at its old path."
    left = [reversal for reversal in reversals if reversal.file.id not in refused]
    return refused | _below_a_file(left) | await _onto_what_is_brought(tree, left, freed)


def _below_a_file(reversals: Sequence[FileRevert]) -> dict[FileId, str]:
    """Find reverts into a folder whose path another revert turns into a file."""
    states = [reversal.state for reversal in reversals if reversal.state is not None]
    files = {state.path for state in states if state.kind is not EntryKind.FOLDER}
    return {
        reversal.file.id: "Another of these files would return to the path of its directory."
        for reversal in reversals
        if reversal.state is not None and not files.isdisjoint(reversal.state.path.ancestors)
    }


async def _onto_what_is_brought(
    tree: WorkspaceTree, reversals: Sequence[FileRevert], freed: Collection[WorkspacePath]
) -> dict[FileId, str]:
    """Find reverts to a path where a folder that moves back brings untracked content."""
    moves = [(r.file.state, r.state.path) for r in reversals if r.leaves and r.state is not None]
    goals = {state.path: goal for state, goal in moves}
    folders = {state.path for state, _ in moves if state.kind is EntryKind.FOLDER}
    turns = RenameOrder(goals, folders)
    origins = {goals[folder]: folder for folder in folders}
    comers = [r for r in reversals if r.state and not (r.leaves and turns.carrier(r.file.state.path))]
    asked = [
        (comer, *source) for comer in comers for source in _sources(comer, origins, folders) if source[0] not in freed
    ]
    found = await tree.lookup_all([path for _, path, _ in asked], past_links=True) if asked else []
    return {
        comer.file.id: "A restored directory would bring another file to its path."
        for (comer, _, may_be_folder), path_state in zip(asked, found, strict=True)
        if path_state.exists and not (path_state.is_folder and may_be_folder)
    }


def _sources(
    comer: FileRevert, origins: Mapping[WorkspacePath, WorkspacePath], movers: Collection[WorkspacePath]
) -> Iterator[tuple[WorkspacePath, bool]]:
    """Yield current paths of content that would land on a file's target or above it, and if a folder may be there.

    ``movers`` are the folders that move; ``origins`` maps their new paths to the old ones.
    """
    assert comer.state is not None
    goal = comer.state.path
    for above in (above for above in goal.ancestors if above in origins):
        for path in (path for path in (*goal.ancestors, goal) if path.is_below(above)):
            source = path.relocate(above, origins[above])
            if _moving_above(source, movers) == origins[above]:
                yield source, path != goal or comer.state.kind is EntryKind.FOLDER


def _moving_above(path: WorkspacePath, movers: Collection[WorkspacePath]) -> WorkspacePath | None:
    return next((folder for folder in reversed(path.ancestors) if folder in movers), None)


async def _stays_inside(
    tree: WorkspaceTree, reversal: FileRevert, leaving: Collection[FileId], carriers: Collection[WorkspacePath]
) -> bool:
    """Whether something stays in a folder that leaves. ``carriers`` take their untracked content with them."""
    here = reversal.file.state.path
    known = await tree.tracked_below(here)
    if any(file.id not in leaving for file in known):
        return True
    if any(_goes_with(here, carrier) for carrier in carriers):
        return False
    names = {file.state.path for file in known}
    unknown = [path for path in await tree.disk_paths_below(here) if path not in names]
    return any(not any(path.is_below(carrier) for carrier in carriers) for path in unknown)


def _goes_with(path: WorkspacePath, folder: WorkspacePath) -> bool:
    return path == folder or path.is_below(folder)


async def _is_taken(
    tree: WorkspaceTree, reversal: FileRevert, path: WorkspacePath, freed: Collection[WorkspacePath]
) -> bool:
    """Whether something occupies the target path, or a non-folder occupies a path above it."""
    if not reversal.file.deleted and not reversal.leaves:
        return False
    *above, there = await tree.lookup_all([*path.ancestors, path], past_links=True)
    in_the_way = [there] if there.exists else []
    in_the_way += [folder for folder in above if folder.exists and not folder.is_folder]
    return any(path_state.path not in freed for path_state in in_the_way)


def _clash(history: FileTimeline, reason: str) -> UndoConflict:
    return UndoConflict(history.file, reason, _last_of_ours(history), None)


def _last_of_ours(history: FileTimeline) -> Version:
    return next(version for version in reversed(history.versions) if version.id in history.ours)


def _same(one: Version, other: Version) -> bool:
    if one.deleted or other.deleted:
        return one.deleted and other.deleted
    return one.state.path == other.state.path and one.state.holds_same_as(other.state)


def _folders_first(reversal: FileRevert) -> tuple[bool, int]:
    state = reversal.state or reversal.file.state
    return state.kind is not EntryKind.FOLDER, len(state.path.parts)
