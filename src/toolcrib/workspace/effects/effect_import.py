"""Turns the file effects of a command into changes of a draft, in bulk. Commits nothing.

Untracked content that the command changed or deleted is imported first, so that undo can restore it. Earlier changes by
outside programs are recorded separately first. One query serves thousands of paths. The caller checks the guard.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Final

from toolcrib.core.change_sets import ChangeSet, TrashedFile
from toolcrib.core.errors import Conflict, TooLarge, ToolFailed
from toolcrib.core.files import EntryKind, EntryState, File, PathState
from toolcrib.core.ids import VersionId
from toolcrib.core.paths import WorkspacePath, folders_above, in_order, is_valid_path
from toolcrib.runtime.disk_threads import in_thread, off_loop
from toolcrib.storage.file_history import HistorySnapshot
from toolcrib.storage.virtual_files import VIRTUAL_FOLDERS
from toolcrib.workspace.changes.draft import Draft
from toolcrib.workspace.effects.path_effects import (
    EffectClassification,
    EffectUnit,
    PathEffect,
    UntrackedFiles,
    classify,
)
from toolcrib.workspace.file_history import FileHistory
from toolcrib.workspace.fs.gitignore import GitignoreRules, read_rules
from toolcrib.workspace.fs.mount_writer import is_temporary
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.sync.path_state import observed_state
from toolcrib.workspace.tree import WorkspaceTree

_NAMED = 5
# The clock that the kernel uses for file timestamps. Python does not define the constant.
CLOCK_REALTIME_COARSE = 5


@dataclass(frozen=True, slots=True)
class CommandBase:
    """The point in time and history at which a command started."""

    moment: HistorySnapshot
    began_ns: int

    @classmethod
    async def capture(cls, tree: WorkspaceTree) -> "CommandBase":
        """Capture a moment whose history is fully on disk, so that the command sees all earlier changes."""
        moment = await tree.services.since.now(tree.tenant)
        if moment.any_pending:
            await FileHistory(tree).wait_until_applied()
        return cls(moment, time.time_ns())

    async def require_unchanged(
        self, tree: WorkspaceTree, path_effects: Sequence[PathEffect], path_states: Mapping[WorkspacePath, PathState]
    ) -> None:
        """Raise ``Conflict``, naming files and authors, if a touched path changed since the command started."""
        paths = [effect.path for effect in path_effects]
        later = await tree.services.since.changed_since(tree.tenant, self.moment, paths)
        met = [effect.path for effect in path_effects if self._is_in_the_way(effect, path_states[effect.path], later)]
        if met:
            raise await _conflict(tree, [(path, later.get(path)) for path in met])

    def _is_in_the_way(self, path_effect: PathEffect, now: PathState, later: Mapping[WorkspacePath, VersionId]) -> bool:
        if path_effect.kind is EntryKind.FOLDER and now.is_folder:
            # Files added to the folder meanwhile do not matter, nor who created it first.
            return path_effect.path in later and now.node is not None and now.node.mode != path_effect.mode
        if path_effect.path in later:
            return now.exists or not path_effect.is_deleted
        if not now.exists:
            return path_effect.was_there and not path_effect.is_deleted
        if not path_effect.was_there:
            return True
        # A folder gets a new ctime whenever an entry is added. The entry is checked by itself.
        return now.node is not None and not now.is_folder and now.node.fingerprint.ctime_ns > self.began_ns


async def past(moment_ns: int) -> None:
    """Wait a few milliseconds until the kernel's coarse file clock has passed a moment.

    After that, a later timestamp means that the file changed after the moment.
    """
    if time.clock_gettime_ns(CLOCK_REALTIME_COARSE) <= moment_ns:
        await asyncio.sleep(time.clock_getres(CLOCK_REALTIME_COARSE))


async def overtaken(tree: WorkspaceTree, change_set: ChangeSet) -> Conflict | None:
    """Return a conflict if a path of the set is no longer in the state that the set was planned on."""
    paths = change_set.paths
    found = {
        path_state.path: path_state.file for path_state in await tree.lookup_all(paths, aliases=True, past_links=True)
    }
    left = {change.before.path for change in change_set.changes if change.before is not None and change.vacates_path}
    moved_on: list[tuple[WorkspacePath, File | None]] = []
    for change in change_set.changes:
        if change.before is not None:
            head = found[change.before.path]
            if head is None or (head.id, head.version_id) != (change.file_id, change.base):
                moved_on.append((change.before.path, head))
        elif change.after is not None and change.after.path not in left and found[change.after.path] is not None:
            moved_on.append((change.after.path, found[change.after.path]))
    if not moved_on:
        return None
    return await _conflict(tree, [(path, file.version_id if file else None) for path, file in moved_on])


async def without_existing_folders(tree: WorkspaceTree, change_set: ChangeSet) -> ChangeSet:
    """Leave out new folders that are there by now: several calls may have been approved that each make them."""
    new_folders = {
        change.after.path: change
        for change in change_set.changes
        if change.before is None and change.after is not None and change.after.kind is EntryKind.FOLDER
    }
    if not new_folders:
        return change_set
    existing = {
        new_folders[state.path].file_id
        for state in await tree.lookup_all(list(new_folders))
        if state.file is not None and state.file.state.kind is EntryKind.FOLDER
    }
    changes = tuple(change for change in change_set.changes if change.file_id not in existing)
    return replace(change_set, changes=changes) if changes else change_set


async def _conflict(tree: WorkspaceTree, met: Sequence[tuple[WorkspacePath, VersionId | None]]) -> Conflict:
    words = [f"{path.display} (by {await FileHistory(tree).author_of(version)})" for path, version in met[:_NAMED]]
    others = f" and {len(met) - _NAMED} more" if len(met) > _NAMED else ""
    return Conflict(
        f"Changed while the command ran: {', '.join(words)}{others}. The command's changes were discarded. "
        "Check the current state, then run the command again."
    )


# Limit for one import, because the content passes through memory.
# Changes that are added before other calls have their turn.
_AT_ONCE: Final = 200
MOST_BYTES: Final = 200_000_000
_CHUNK: Final = 2_000
_MOST_RULES: Final = 100_000
_LINK_MODE: Final = 0o777


@dataclass(frozen=True, slots=True)
class _EffectStep:
    """A file's next state, with its bytes if they are new."""

    file: File | None
    after: EntryState | None
    body: bytes | None = None


UnkeptPaths = tuple[tuple[WorkspacePath, int], ...]
"""Paths whose content the history does not keep, with their sizes."""


async def import_effects(
    tree: WorkspaceTree, draft: Draft, path_effects: Iterable[PathEffect], base: CommandBase, untracked: UntrackedFiles
) -> UnkeptPaths:
    """Add the path effects to the draft. Raises ``Conflict`` if others changed one of the paths since ``base``."""
    last = await in_thread(_last, list(path_effects))
    shares, found = await _shared_out(tree, last)
    wanted = shares.kept + [unit.top for unit in shares.made] + shares.gone

    def looked_over() -> tuple[list[WorkspacePath], Set[WorkspacePath]]:
        for path_effect in wanted:
            _reject_unsayable(path_effect)
        _reject_too_much(shares.kept)
        # Query virtual files separately: their folder may be missing on disk, so a lookup would not find them.
        perhaps = [effect.path for effect in wanted if effect.path.path.startswith(tuple(VIRTUAL_FOLDERS))]
        return perhaps, folders_above(effect.path for effect in wanted if not effect.is_deleted) - found.keys()

    perhaps, above = await off_loop(wanted, looked_over)
    for path in await tree.services.virtual.at(tree.tenant, perhaps) if perhaps else ():
        raise Conflict(
            f"{path.display} is managed by the system. Nothing was changed. Run a command that does not change it."
        )
    found |= await _found(tree, above, ())
    await base.require_unchanged(tree, wanted, found)
    found |= await _taken_in(tree, [*above, *_to_keep(shares.kept)], found)
    found |= await _taken_in(tree, _to_keep(unit.top for unit in shares.made), found, whole=True)
    _reject_unless_folders(above, found)
    steps = await in_thread(lambda: [one for effect in shares.kept for one in _steps(effect, found[effect.path])])
    for number, step in enumerate(steps):
        if number % _AT_ONCE == 0:
            # Nothing here waits, so that no other call would have its turn.
            await asyncio.sleep(0)
        draft.add_change(step.file, step.after, body=step.body)
    await _displace(tree, draft, shares.gone)
    return await _move(tree, draft, untracked, shares.made, found)


async def _shared_out(
    tree: WorkspaceTree, last: Mapping[WorkspacePath, PathEffect]
) -> tuple[EffectClassification, dict[WorkspacePath, PathState]]:
    """Classify effects into tracked and untracked, and load the current path states.

    A file whose content is already in the history stays tracked, whatever the ignore rules say.
    """
    disks = await tree.disks()
    after, before = GitignoreRules(partial(_rules, last, disks)), GitignoreRules(partial(read_rules, disks))
    known: set[WorkspacePath] = set()
    found: dict[WorkspacePath, PathState] = {}
    while True:
        shares = await in_thread(classify, last, after, before, tree.max_file_bytes, known)
        tops = shares.kept + [unit.top for unit in shares.made] + shares.gone
        found |= await _found(tree, (), [path_effect for path_effect in tops if path_effect.path not in found])
        doubtful = [unit.top for unit in shares.made if unit.top.size <= tree.max_file_bytes] + shares.gone
        kept = {effect.path for effect in doubtful if (f := found[effect.path].file) and not f.state.is_untracked}
        if kept <= known:
            return shares, found
        known |= kept


def _rules(last: Mapping[WorkspacePath, PathEffect], disk_of: WorkspaceDisks, path: WorkspacePath) -> bytes | None:
    """Read the ignore rules at a path as the command left them."""
    path_effect = last.get(path)
    if path_effect is not None and (path_effect.is_deleted or path_effect.kind is not EntryKind.FILE):
        return None
    if path_effect is not None and path_effect.open is not None:
        with path_effect.open() as opened:
            return opened.read(_MOST_RULES)
    return read_rules(disk_of, path)


async def _displace(tree: WorkspaceTree, draft: Draft, gone: Sequence[PathEffect]) -> None:
    """Move untracked content that the command removed into the trash, folders as one piece."""
    if not gone:
        return
    history = FileHistory(tree)
    taken = await history.track([path_effect.path for path_effect in gone], whole=True, aliases=True)
    for path_state in taken:
        _reject_special(path_state)
    there = [path_state for path_state in taken if path_state.file is not None]
    folders = [path_state.path for path_state in there if path_state.is_folder]
    inside = await history.below(*folders) if folders else []
    for file in (*(path_state.file for path_state in there), *inside):
        draft.add_change(file, None, whatever_its_size=True)


async def _move(
    tree: WorkspaceTree,
    draft: Draft,
    untracked: UntrackedFiles,
    units: Sequence[EffectUnit],
    found: Mapping[WorkspacePath, PathState],
) -> UnkeptPaths:
    """Move untracked content that the command created through the trash into the tree."""
    if not units:
        return ()
    states = await in_thread(untracked.states, units)
    rows = []
    for unit, state in zip(units, states, strict=True):
        file = found[unit.top.path].file
        if file is not None and file.state.kind is not state.kind:
            draft.add_change(file, None, whatever_its_size=True)
            file = None
        rows.append(TrashedFile(draft.add_change(file, state, whatever_its_size=True).file_id, state))
    # Record the rows first: an entry without a row, left by a crash, would never be removed from the trash.
    trash = await FileHistory(tree).stage(rows)
    await in_thread(untracked.move, trash, units, states)
    return tuple((state.path, state.size) for state in states)


def _last(path_effects: Iterable[PathEffect]) -> dict[WorkspacePath, PathEffect]:
    """Reduce to the final effect per path, for paths that were removed and then created again."""
    last: dict[WorkspacePath, PathEffect] = {}
    for path_effect in path_effects:
        was_there = path_effect.was_there or (path_effect.path in last and last[path_effect.path].was_there)
        last[path_effect.path] = replace(path_effect, was_there=was_there)
    return last


def _to_keep(path_effects: Iterable[PathEffect]) -> list[WorkspacePath]:
    """Return paths with earlier content, which undo must be able to restore."""
    return [path_effect.path for path_effect in path_effects if path_effect.was_there]


async def _found(
    tree: WorkspaceTree, above: Iterable[WorkspacePath], path_effects: Collection[PathEffect]
) -> dict[WorkspacePath, PathState]:
    """Look up all paths, level by level. Skips the content of folders that do not exist yet."""
    folders = {effect.path for effect in path_effects if effect.kind is EntryKind.FOLDER}
    missing: set[WorkspacePath] = set()
    found: dict[WorkspacePath, PathState] = {}

    def levels() -> list[list[WorkspacePath]]:
        wanted = sorted({*above, *(effect.path for effect in path_effects)}, key=_depth)
        return [list(level) for _, level in groupby(wanted, key=_depth)]

    def unlisted(paths: Sequence[WorkspacePath]) -> list[WorkspacePath]:
        new = {path for path in paths if path.parent in missing} if missing else set()
        found.update((path, PathState(path, None, None)) for path in new)
        return [path for path in paths if path not in new]

    for paths in await off_loop(path_effects, levels):
        there = await off_loop(paths, unlisted, paths)
        for start in range(0, len(there), _CHUNK):
            chunk = there[start : start + _CHUNK]
            found |= zip(chunk, await tree.lookup_all(chunk, aliases=True, past_links=True), strict=True)
        missing.update(path for path in paths if path in folders and not found[path].is_folder)
    return found


def _depth(path: WorkspacePath) -> int:
    return len(path.parts)


async def _taken_in(
    tree: WorkspaceTree,
    paths: Iterable[WorkspacePath],
    found: Mapping[WorkspacePath, PathState],
    *,
    whole: bool = False,
) -> dict[WorkspacePath, PathState]:
    """Import those of the paths that exist only on disk."""
    wanted = list(paths)
    unknown = await off_loop(
        wanted, lambda: in_order(path for path in wanted if found[path].file is None and found[path].exists)
    )
    taken: dict[WorkspacePath, PathState] = {}
    for start in range(0, len(unknown), _CHUNK):
        chunk = unknown[start : start + _CHUNK]
        taken |= zip(chunk, await FileHistory(tree).track(chunk, whole=whole, aliases=True), strict=True)
    return taken


def _steps(path_effect: PathEffect, path_state: PathState) -> list[_EffectStep]:
    _reject_special(path_state)
    file = path_state.file
    if path_effect.is_deleted:
        return [_EffectStep(file, None)] if file is not None else []
    step = _next(path_effect, file)
    assert step.after is not None
    if file is None:
        return [step]
    if step.after.kind is not file.state.kind and EntryKind.FOLDER in (step.after.kind, file.state.kind):
        # A folder may contain other files, so it does not change its kind: it is deleted and a new file is created.
        return [_EffectStep(file, None), replace(step, file=None)]
    return [] if step.after.holds_same_as(file.state) else [step]


def _next(path_effect: PathEffect, file: File | None) -> _EffectStep:
    match path_effect.kind:
        case EntryKind.FOLDER:
            known = file.state if file is not None and file.state.kind is EntryKind.FOLDER else None
            folder = EntryState(path_effect.path, EntryKind.FOLDER, path_effect.mode)
            return _EffectStep(file, replace(known, mode=path_effect.mode) if known else folder)
        case EntryKind.LINK:
            link = EntryState(path_effect.path, EntryKind.LINK, _LINK_MODE, link_target=path_effect.target)
            return _EffectStep(file, link)
    if path_effect.open is None:
        assert file is not None
        return _EffectStep(file, replace(file.state, mode=path_effect.mode))
    with path_effect.open() as opened:
        body = opened.read(path_effect.size + 1)
    state = observed_state(path_effect.path, body, path_effect.mode, file.state if file else None)
    is_new = file is None or file.state.sha256 != state.sha256
    return _EffectStep(file, state, body if is_new else None)


def _reject_special(path_state: PathState) -> None:
    if path_state.is_special:
        raise Conflict(
            f"{path_state.path.display} is a special file (a FIFO, socket or device) and cannot be restored once "
            "it is removed. Nothing was changed. Remove it outside Toolcrib."
        )


def _reject_unless_folders(above: Iterable[WorkspacePath], found: Mapping[WorkspacePath, PathState]) -> None:
    for folder in above:
        if found[folder].file is None or not found[folder].is_folder:
            raise Conflict(
                f"The folder {folder.display} was removed while the command ran. The command's changes were discarded. "
                "Check the current state, then run the command again."
            )


def _reject_too_much(path_effects: Iterable[PathEffect]) -> None:
    size = sum(path_effect.size for path_effect in path_effects if path_effect.open is not None)
    if size > MOST_BYTES:
        raise TooLarge(
            f"The command wrote {size:,} bytes to tracked files; the limit is {MOST_BYTES:,}. "
            "Nothing was changed. Use smaller steps, or list generated files in a .gitignore."
        )


def _reject_unsayable(path_effect: PathEffect) -> None:
    if not is_valid_path(path_effect.path.path) or any(map(is_temporary, path_effect.path.parts)):
        raise ToolFailed(
            f"The command created or removed {path_effect.path.path!r}, an invalid name: it is not Unicode, has "
            "control characters or leading or trailing spaces, or is too long. Nothing was changed. Use another name."
        )
    if path_effect.target is not None and not path_effect.target.isprintable():
        raise ToolFailed(
            f"The command created the link {path_effect.path.display} to {path_effect.target!r}, which is not Unicode. "
            "Nothing was changed. Use another target."
        )
