"""Plans how to undo a set of calls. The gate commits the plan like any other change.

For every file it asks whether someone else changed it since. If not, the file reverts to its state before the first of
these calls. If so, it reports both versions and leaves the file alone, unless force is used.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from toolcrib.core.files import AuthorKind, ContentKind, EntryKind, EntryState, File, Version
from toolcrib.core.ids import FileId, VersionId
from toolcrib.core.paths import WorkspacePath, in_order
from toolcrib.runtime.disk_threads import in_thread, off_loop
from toolcrib.storage.file_history import FileTimeline
from toolcrib.workspace.changes.draft import Draft
from toolcrib.workspace.changes.git_undo import RepositoryUndo, is_optional, plan_git_undo
from toolcrib.workspace.changes.moved_folders import MovedFolders
from toolcrib.workspace.file_history import FileHistory
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.sync.apply_to_disk import RenameOrder
from toolcrib.workspace.sync.read_only_folders import find_read_only
from toolcrib.workspace.tree import WorkspaceTree

# Reverts that are drafted without a pause.
_AT_ONCE = 500
_FORGOTTEN = "The previous version has expired."
_OCCUPIED = "Contains other files."
# Clocks of the database and of this machine may differ by this much.
_CLOCK_SKEW = timedelta(seconds=1)
_DENIED = "The operating system denies access to it. Correct its owner or mode, then undo it again."


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
    def needs_content(self) -> bool:
        """Whether the file does not have the wanted bytes now."""
        return self.file.deleted or self.state is None or self.state.sha256 != self.file.state.sha256

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
    """The files to revert, new contents of git's own files, and the conflicts."""

    reversals: tuple[FileRevert, ...]
    clashes: tuple[UndoConflict, ...]
    rewrites: Mapping[WorkspacePath, bytes] = field(default_factory=dict)


async def plan_undo(tree: WorkspaceTree, histories: Sequence[FileTimeline], *, force: bool) -> UndoPlan:
    """Plan the revert of each file, then drop those that conflict with the rest of the tree.

    ``force`` does not hold inside git repositories, where it could lose someone's commits.
    """
    repositories, files = await plan_git_undo(tree, histories)
    # Each step that looks at all files is off the loop: there may be ten thousand.
    clashes = [] if force else await off_loop(files, lambda: [clash for h in files if (clash := changed_since(h))])
    left_alone = {clash.file.id for clash in clashes}
    by_id = {history.file.id: history for history in histories}
    reverted = [history for history in files if history.file.id not in left_alone]
    lost, changing, moved = await off_loop(histories, _looked_over, histories, reverted, tree.denied or ())
    if not force:
        lost |= await _changed_within(tree, [r.file for r in changing if _takes_a_unit(r)])
    lost |= await _read_only(tree, changing)
    imported = await _imported_since(tree, moved, by_id)
    while True:
        inside = [history for repository in repositories for history in repository.revert]
        reversals = await off_loop(histories, _chosen, (*reverted, *inside), imported, lost)
        reversals = await _with_contents(tree, reversals, left_alone | lost.keys())
        refused = await _lost(tree, reversals) | _with_rewrites(reversals, repositories)
        refused |= await _impossible(tree, [r for r in reversals if r.file.id not in refused])
        if not refused:
            break
        lost |= refused
        repositories = [_kept(one, refused) if one.refuses(refused) else one for one in repositories]
    quiet = {history.file.id for repository in repositories for history in repository.revert if is_optional(history)}
    clashes += [
        _clash(by_id[file_id], why) for file_id, why in lost.items() if file_id in by_id and file_id not in quiet
    ]
    clashes += [_clash(h, why) for one in repositories for h, why in one.stay if why and h.file.id not in lost]
    rewrites = {path: body for repository in repositories for path, body in repository.rewrite.items()}
    return UndoPlan(tuple(reversals), tuple(clashes), rewrites)


def _looked_over(
    histories: Sequence[FileTimeline], reverted: Sequence[FileTimeline], denied: Collection[WorkspacePath]
) -> tuple[dict[FileId, str], list[FileRevert], MovedFolders]:
    """Return the files that cannot be reverted, the reverts that change something, and the folders that were moved."""
    reversals = [reversal for reversal in map(reversal_of, reverted) if not reversal.is_idle]
    changed = {reversal.file.id for reversal in reversals}
    lost = {h.file.id: _FORGOTTEN for h in reverted if _is_forgotten(h) and h.file.id in changed}
    lost |= {h.file.id: _DENIED for h in histories if h.file.state.path in denied and not h.file.deleted}
    return lost, reversals, MovedFolders(reverted)


def _chosen(
    histories: Sequence[FileTimeline], imported: Sequence[FileRevert], lost: Collection[FileId]
) -> list[FileRevert]:
    """Return the reverts that are left, to the paths from before the moves of folders."""
    chosen = [history for history in histories if history.file.id not in lost]
    moved = MovedFolders(chosen)
    reversals = (_before_moves(r, moved) for r in (*map(reversal_of, chosen), *imported) if r.file.id not in lost)
    return [reversal for reversal in reversals if not reversal.is_idle]


def _before_moves(reversal: FileRevert, moved: MovedFolders) -> FileRevert:
    """Return the revert to the path that the file had before the folders above it moved."""
    version = reversal.version
    if version is None or (path := moved.old_path(version)) == version.state.path:
        return reversal
    return FileRevert(reversal.file, replace(version, state=replace(version.state, path=path)))


async def _imported_since(tree: WorkspaceTree, moved: MovedFolders, known: Collection[FileId]) -> list[FileRevert]:
    """Find what else is in moved folders and still as imported. Like untracked content, it goes back with them."""
    if not moved.paths:
        return []
    files = [file for file in await FileHistory(tree).below(*moved.paths) if file.id not in known]
    versions = await FileHistory(tree).all_versions(files)
    found = [(file, versions[file.id]) for file in files if file.id in versions]
    return [FileRevert(file, of[0]) for file, of in found if of[0].version_number == 1 and _same(of[0], of[-1])]


def _with_rewrites(reversals: Sequence[FileRevert], repositories: Sequence[RepositoryUndo]) -> dict[FileId, str]:
    """Find folders that would move away from a file that gets new content at its current path."""
    above = {folder for one in repositories for path in one.rewrite for folder in path.ancestors}
    return {r.file.id: _OCCUPIED for r in reversals if above and r.leaves and r.file.state.path in above}


async def _with_contents(
    tree: WorkspaceTree, reversals: Sequence[FileRevert], kept: Collection[FileId]
) -> list[FileRevert]:
    """Take the content of an untracked folder that goes into the trash along, except what must be ``kept``.

    It may have versions of its own by now, because a later call changed it. Nothing is reverted inside such a folder.
    """
    units = await off_loop(reversals, lambda: {r.file.state.path for r in reversals if _takes_a_unit(r)})
    if not units:
        return list(reversals)
    planned = {reversal.file.id for reversal in reversals}
    gone = {
        file.id: FileRevert(file, None)
        for file in await FileHistory(tree).below(*sorted(units))
        if file.id not in kept
        and (file.id in planned or file.state.is_untracked or file.state.kind is not EntryKind.FILE)
    }
    stay = [r for r in reversals if r.file.id not in gone and not (r.state and _is_below(r.state.path, units))]
    return [*gone.values(), *stay]


def _is_below(path: WorkspacePath, folders: Set[WorkspacePath]) -> bool:
    return not folders.isdisjoint(path.ancestors)


def _takes_a_unit(reversal: FileRevert) -> bool:
    """Whether an untracked folder goes into the trash with everything in it."""
    state = reversal.file.state
    return reversal.leaves and reversal.state is None and state.is_untracked and state.kind is EntryKind.FOLDER


async def _changed_within(tree: WorkspaceTree, units: Sequence[File]) -> dict[FileId, str]:
    """Find untracked folders in which someone else added or changed files since the last call that changed them.

    A call's content moves into the tree by a rename of the whole, which leaves the times of what is in it alone. So a
    file that is not at a call's version, and that changed after the last call's commit, was changed by someone else.
    """
    if not units:
        return {}
    history = FileHistory(tree)
    known = await history.below(*sorted(unit.state.path for unit in units))
    versions = await history.all_versions([*units, *known])
    inside: dict[WorkspacePath, list[File]] = {unit.state.path: [] for unit in units}
    for file in known:
        for folder in file.state.path.ancestors:
            if folder in inside:
                inside[folder].append(file)
    disks = await tree.disks()

    def look() -> dict[FileId, list[WorkspacePath]]:
        found = {}
        for unit in units:
            top = unit.state.path
            by_calls = {file.state.path for file in inside[top] if not _is_external(versions[file.id][-1])}
            made = [v for file in (unit, *inside[top]) for v in versions[file.id] if not _is_external(v)]
            last = max(version.created_at for version in made) + _CLOCK_SKEW
            files = (path for path, entry in disks(top).walk(top) if entry.kind is not EntryKind.FOLDER)
            found[unit.id] = sorted(_changed_after(disks(top), (path for path in files if path not in by_calls), last))
        return found

    changed = {file_id: paths for file_id, paths in (await in_thread(look)).items() if paths}
    return {file_id: f"Someone else changed files in it: {_first_of(paths)}." for file_id, paths in changed.items()}


def _is_external(version: Version) -> bool:
    return version.author_kind is AuthorKind.EXTERNAL


def _changed_after(disk: MountWriter, paths: Iterable[WorkspacePath], moment: datetime) -> list[WorkspacePath]:
    nanoseconds = int(moment.timestamp() * 1e9)
    return [path for path in paths if (node := disk.stat(path)) and node.fingerprint.ctime_ns > nanoseconds]


def _first_of(paths: Sequence[WorkspacePath]) -> str:
    return paths[0].display + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


def _kept(repository: RepositoryUndo, refused: Mapping[FileId, str]) -> RepositoryUndo:
    """Return the plan that leaves a repository as it is."""
    why = next(refused[history.file.id] for history in repository.revert if history.file.id in refused)
    return RepositoryUndo(stay=(*repository.stay, (repository.revert[0], why)))


async def draft_undo(
    tree: WorkspaceTree, draft: Draft, plan: UndoPlan, progress: Callable[[int, int], None] = lambda _, __: None
) -> None:
    """Add the reverts to the draft, folders first, so that files find their parents planned."""
    reversals = await off_loop(plan.reversals, lambda: sorted(plan.reversals, key=_folders_first))

    def versions_to_write() -> tuple[set[WorkspacePath], list[Version]]:
        freed = {reversal.file.state.path for reversal in reversals if reversal.leaves}
        # When files swap paths, renaming is not enough: every content is written again.
        trades = any(reversal.state is not None and reversal.state.path in freed for reversal in reversals)
        return freed, [v for r in reversals if (v := r.version) and (trades or r.needs_content)]

    freed, versions = await off_loop(reversals, versions_to_write)
    bodies = await FileHistory(tree).bodies(versions)
    written = {version.id for version in versions}
    await draft.load_folders([r.state.path for r in reversals if r.state is not None], past_links=bool(freed))
    for number, reversal in enumerate(reversals):
        if number % _AT_ONCE == 0:
            progress(number, len(reversals))
            # Nothing below waits, so that no other call would have its turn.
            await asyncio.sleep(0)
        version = reversal.version
        body = bodies.get(version.state.sha256) if version and version.state.sha256 and version.id in written else None
        await draft.revert(reversal.file, reversal.state, body, freed=freed)
    for path, body in plan.rewrites.items():
        path_state = await draft.lookup(path)
        path_state = await draft.ensure_tracked(path_state) if path_state.exists else path_state
        await draft.write(path_state, body, content=ContentKind.TEXT)


def changed_since(history: FileTimeline) -> UndoConflict | None:
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


def reversal_of(history: FileTimeline) -> FileRevert:
    """Return the revert of a file to its state before the first of the calls."""
    before = history.versions[0] if history.versions[0].id not in history.ours else None
    return FileRevert(history.file, None if before is None or before.deleted else before)


async def _lost(tree: WorkspaceTree, reversals: Sequence[FileRevert]) -> dict[FileId, str]:
    """Find reverts whose content is no longer available, or that would lose content for good."""

    def weighed() -> tuple[list[tuple[File, EntryState]], dict[FileId, str]]:
        wanted = [(r.file, r.state) for r in reversals if r.state is not None and r.state.trash_id is not None]
        too_large: dict[FileId, str] = {}
        for reversal in reversals:
            file, state = reversal.file, reversal.state
            held = None if file.deleted else file.state.trash_id
            if held not in (None, state and state.trash_id) and not FileHistory(tree).fits_the_trash(file.state):
                too_large[file.id] = f"Its {file.state.size:,} bytes are too large for the trash."
        return wanted, too_large

    wanted, too_large = await off_loop(reversals, weighed)
    return too_large | await FileHistory(tree).unavailable(wanted)


async def _impossible(tree: WorkspaceTree, reversals: Sequence[FileRevert]) -> dict[FileId, str]:
    """Find reverts that would remove a folder with content that stays, or that would land on an occupied path."""
    leaving, freed, folders = await off_loop(reversals, _leaving, reversals)
    # A folder that moves or goes into the trash as a whole takes its untracked content with it.
    carriers = {r.file.state.path for r in folders if r.state is not None or r.file.state.is_untracked}
    occupied = await _occupied(tree, {r.file.state.path for r in folders}, leaving, carriers)
    taken = await _taken(tree, reversals, freed)
    refused, left = await off_loop(reversals, _refused, reversals, occupied, taken)
    return refused | await _onto_what_is_brought(tree, left, freed)


def _leaving(reversals: Sequence[FileRevert]) -> tuple[set[FileId], set[WorkspacePath], list[FileRevert]]:
    """Return what leaves its path, these paths, and the folders among it."""
    leaving = [reversal for reversal in reversals if reversal.leaves]
    folders = [reversal for reversal in leaving if reversal.file.state.kind is EntryKind.FOLDER]
    return {one.file.id for one in leaving}, {one.file.state.path for one in leaving}, folders


def _refused(
    reversals: Sequence[FileRevert], occupied: Set[WorkspacePath], taken: Set[FileId]
) -> tuple[dict[FileId, str], list[FileRevert]]:
    """Return the reverts to a path that is not free, with the reason, and the others."""
    refused: dict[FileId, str] = {}
    claimed: set[WorkspacePath] = set()
    for reversal in reversals:
        file, state = reversal.file, reversal.state
        if state is not None and state.path in claimed:
            refused[file.id] = "Another of these files would return to the same path."
            continue
        if state is not None:
            claimed.add(state.path)
        if reversal.leaves and file.state.path in occupied:
            refused[file.id] = _OCCUPIED
        elif file.id in taken:
            refused[file.id] = "Another file exists at its old path."
    left = [reversal for reversal in reversals if reversal.file.id not in refused]
    return refused | _below_a_file(left), left


async def _read_only(tree: WorkspaceTree, reversals: Sequence[FileRevert]) -> dict[FileId, str]:
    """Find reverts that would replace, create or remove an entry of a folder that may not be changed on disk."""

    def changed_folders() -> list[tuple[FileId, WorkspacePath]]:
        own = {r.file.state.path for r in reversals}
        return [
            (r.file.id, parent)
            for r in reversals
            if r.leaves or r.needs_content
            for state in (None if r.file.deleted else r.file.state, r.state)
            if state is not None and (parent := state.path.parent) not in own
        ]

    entries = await off_loop(reversals, changed_folders)

    async def files(folders: Sequence[WorkspacePath]) -> Sequence[File | None]:
        return [path_state.file for path_state in await tree.lookup_all(folders, past_links=True)]

    async def versions(ids: Sequence[VersionId]) -> Mapping[VersionId, Version]:
        return {id_: await tree.services.files.version(tree.tenant, id_) for id_ in ids}

    found = await find_read_only(await tree.disks(), {folder for _, folder in entries}, files, versions)
    return {id_: f"Its directory {folder.display} {found[folder]}" for id_, folder in entries if folder in found}


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
    tree: WorkspaceTree, reversals: Sequence[FileRevert], freed: Set[WorkspacePath]
) -> dict[FileId, str]:
    """Find reverts to a path where a folder that moves back brings untracked content."""

    def looked_for() -> list[tuple[FileRevert, WorkspacePath, bool]]:
        moves = [(r.file.state, r.state.path) for r in reversals if r.leaves and r.state is not None]
        goals = {state.path: goal for state, goal in moves}
        folders = {state.path for state, _ in moves if state.kind is EntryKind.FOLDER}
        turns = RenameOrder(goals, folders)
        origins = {goals[folder]: folder for folder in folders}
        comers = [r for r in reversals if r.state and not (r.leaves and turns.carrier(r.file.state.path))]
        found = ((comer, *source) for comer in comers for source in _sources(comer, origins, folders))
        return [one for one in found if one[1] not in freed]

    asked = await off_loop(reversals, looked_for)
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
            if next((folder for folder in reversed(source.ancestors) if folder in movers), None) == origins[above]:
                yield source, path != goal or comer.state.kind is EntryKind.FOLDER


async def _occupied(
    tree: WorkspaceTree, folders: Set[WorkspacePath], leaving: Set[FileId], carriers: Set[WorkspacePath]
) -> set[WorkspacePath]:
    """Return those of the leaving folders in which something stays. ``carriers`` take their untracked content along."""
    tops = sorted(folder for folder in folders if not _is_below(folder, folders))
    if not tops:
        return set()
    known = await FileHistory(tree).below(*tops)
    staying = [file.state.path for file in known if file.id not in leaving]
    names = {file.state.path for file in known}
    disks = await tree.disks()
    walked = [top for top in tops if top not in carriers]

    def untracked() -> list[WorkspacePath]:
        entries = (path for top in walked for path, _ in disks(top).walk(top))
        return [path for path in entries if path not in names and not _is_below(path, carriers)]

    if walked:
        staying += await in_thread(untracked)
    return {folder for path in staying for folder in path.ancestors if folder in folders}


async def _taken(tree: WorkspaceTree, reversals: Sequence[FileRevert], freed: Set[WorkspacePath]) -> set[FileId]:
    """Find reverts whose target path is occupied, or is below something that is not a folder."""

    def goals() -> tuple[list[tuple[FileId, WorkspacePath]], list[WorkspacePath]]:
        arriving = [(r.file.id, r.state.path) for r in reversals if r.state and (r.file.deleted or r.leaves)]
        return arriving, in_order(path for _, goal in arriving for path in (*goal.ancestors, goal))

    arriving, asked = await off_loop(reversals, goals)
    found = await tree.lookup_all(asked, past_links=True) if asked else []

    def not_free() -> set[FileId]:
        there = {asked_path: state for asked_path, state in zip(asked, found, strict=True) if state.exists}
        blocked = {path for path, state in there.items() if not state.is_folder and state.path not in freed}
        return {
            file_id
            for file_id, goal in arriving
            if (goal in there and there[goal].path not in freed) or not blocked.isdisjoint(goal.ancestors)
        }

    return await off_loop(arriving, not_free)


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
