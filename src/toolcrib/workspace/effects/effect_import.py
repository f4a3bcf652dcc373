"""Turns the file effects of a command into changes of a draft, in bulk. Commits nothing.

Untracked content that the command changed or deleted is imported first, so that undo can restore it. Earlier changes by
outside programs are recorded separately first. One query serves thousands of paths. The caller checks the guard.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Final

from toolcrib.core.change_sets import ChangeSet
from toolcrib.core.errors import CallDenied, Conflict, TooLarge, ToolFailed
from toolcrib.core.files import ContentKind, EntryKind, EntryState, File
from toolcrib.core.ids import VersionId
from toolcrib.core.paths import WorkspacePath, is_valid_path, shown
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.storage.file_history import HistorySnapshot
from toolcrib.workspace.changes.draft import Draft
from toolcrib.workspace.effects.path_effects import (
    EffectClassification,
    EffectUnit,
    PathEffect,
    UntrackedFiles,
    classify,
    displaced,
)
from toolcrib.workspace.fs.gitignore import GitignoreRules
from toolcrib.workspace.fs.mount_writer import is_temporary
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.fs.trash import token_of
from toolcrib.workspace.sync.path_state import PathState
from toolcrib.workspace.text.content import decode_content, file_state
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
        moment = await tree.history.now()
        if moment.any_pending:
            await tree.wait_until_applied()
        return cls(moment, time.time_ns())

    async def wait_for_clock_tick(self) -> None:
        """Wait until the file clock has passed the start."""
        await past(self.began_ns)

    async def require_unchanged(
        self, tree: WorkspaceTree, residues: Sequence[PathEffect], standings: Mapping[WorkspacePath, PathState]
    ) -> None:
        """Raise ``Conflict``, naming files and authors, if a touched path changed since the command started."""
        later = await tree.history.changed_since(self.moment, [residue.place for residue in residues])
        met = [residue for residue in residues if self._is_in_the_way(residue, standings[residue.place], later)]
        if met:
            raise await _conflict(tree, [(residue.place, later.get(residue.place)) for residue in met])

    def _is_in_the_way(self, residue: PathEffect, now: PathState, later: Mapping[WorkspacePath, VersionId]) -> bool:
        if residue.kind is EntryKind.FOLDER and now.is_folder:
            # Files added to the folder meanwhile do not matter, nor who created it first.
            return residue.place in later and now.node is not None and now.node.mode != residue.mode
        if residue.place in later:
            return now.exists or not residue.is_gone
        if not now.exists:
            return residue.was_there and not residue.is_gone
        if not residue.was_there:
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
    places = change_set.paths
    found = {standing.place: standing.file for standing in await tree.lookup_all(places, aliases=True, past_links=True)}
    left = {change.before.place for change in change_set.changes if change.before is not None and change.vacates_path}
    moved_on: list[tuple[WorkspacePath, File | None]] = []
    for change in change_set.changes:
        if change.before is not None:
            head = found[change.before.place]
            if head is None or (head.id, head.version_id) != (change.file_id, change.base):
                moved_on.append((change.before.place, head))
        elif change.after is not None and change.after.place not in left and found[change.after.place] is not None:
            moved_on.append((change.after.place, found[change.after.place]))
    if not moved_on:
        return None
    return await _conflict(tree, [(place, file.version_id if file else None) for place, file in moved_on])


async def _conflict(tree: WorkspaceTree, met: Sequence[tuple[WorkspacePath, VersionId | None]]) -> Conflict:
    words = [f"{shown(place)} (by {await tree.author_of(version)})" for place, version in met[:_NAMED]]
    others = f" and {len(met) - _NAMED} more" if len(met) > _NAMED else ""
    return Conflict(
        f"Changed while the command ran: {', '.join(words)}{others}. The command's changes were discarded. "
        "Check the current state, then run the command again."
    )


# Limit for one import, because the content passes through memory.
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


@dataclass(frozen=True, slots=True)
class ImportResult:
    """Paths whose content the history does not keep, with their sizes."""

    unkept: tuple[tuple[WorkspacePath, int], ...] = ()


async def import_effects(
    tree: WorkspaceTree, draft: Draft, residues: Iterable[PathEffect], base: CommandBase, bulk: UntrackedFiles
) -> ImportResult:
    """Add the path effects to the draft. Raises ``Conflict`` if others changed one of the paths since ``base``."""
    last = _last(residues)
    shares, found = await _shared_out(tree, last)
    wanted = shares.kept + [unit.top for unit in shares.made] + shares.gone
    for residue in wanted:
        _refuse_unsayable(residue)
    # Query virtual files separately: their folder may be missing on disk, so a lookup would not find them.
    _refuse_virtual(await tree.virtual.among(residue.place for residue in wanted))
    _refuse_too_much(shares.kept)
    above = {folder for residue in wanted if not residue.is_gone for folder in residue.place.ancestors} - found.keys()
    found |= await _found(tree, above, ())
    await base.require_unchanged(tree, wanted, found)
    found |= await _taken_in(tree, [*above, *_to_keep(shares.kept)], found)
    found |= await _taken_in(tree, _to_keep(unit.top for unit in shares.made), found, whole=True)
    _refuse_unless_folders(above, found)
    for step in await in_thread(_steps, shares.kept, found):
        draft.add_change(step.file, step.after, body=step.body)
    await _displace(tree, draft, shares.gone)
    return ImportResult(await _move(tree, draft, bulk, shares.made, found))


def _refuse_virtual(places: Collection[WorkspacePath]) -> None:
    for place in places:
        raise Conflict(
            f"{shown(place)} is managed by the system. Nothing was changed. Run a command that does not change it."
        )


async def _shared_out(
    tree: WorkspaceTree, last: Mapping[WorkspacePath, PathEffect]
) -> tuple[EffectClassification, dict[WorkspacePath, PathState]]:
    """Classify effects into tracked and untracked, and load the current path states.

    A file whose content is already in the history stays tracked, whatever the ignore rules say.
    """
    disks = await tree.disks()
    after, before = GitignoreRules(partial(_rules, last, disks)), GitignoreRules(partial(_rules, {}, disks))
    known: set[WorkspacePath] = set()
    found: dict[WorkspacePath, PathState] = {}
    while True:
        shares = await in_thread(classify, last, after, before, tree.max_file_bytes, known)
        tops = shares.kept + [unit.top for unit in shares.made] + shares.gone
        found |= await _found(tree, (), [residue for residue in tops if residue.place not in found])
        doubtful = [unit.top for unit in shares.made if unit.top.size <= tree.max_file_bytes] + shares.gone
        kept = {residue.place for residue in doubtful if _is_kept(found[residue.place])} - known
        if not kept:
            return shares, found
        known |= kept


def _is_kept(standing: PathState) -> bool:
    return standing.file is not None and token_of(standing.file.state) is None


def _rules(last: Mapping[WorkspacePath, PathEffect], disk_of: WorkspaceDisks, place: WorkspacePath) -> bytes | None:
    """Read the ignore rules at a path as the command left them."""
    residue = last.get(place)
    if residue is not None and (residue.is_gone or residue.kind is not EntryKind.FILE):
        return None
    if residue is not None and residue.open is not None:
        with residue.open() as opened:
            return opened.read(_MOST_RULES)
    try:
        return disk_of(place).read(place, limit=_MOST_RULES)[0]
    except (ToolFailed, CallDenied):
        return None


async def _displace(tree: WorkspaceTree, draft: Draft, gone: Sequence[PathEffect]) -> None:
    """Move untracked content that the command removed into the trash, folders as one piece."""
    if not gone:
        return
    for standing in await tree.track([residue.place for residue in gone], whole=True, aliases=True):
        if standing.file is None:
            continue
        draft.add_change(standing.file, None, whatever_its_size=True)
        for child in await tree.tracked_below(standing.place) if standing.is_folder else ():
            draft.add_change(child, None, whatever_its_size=True)


async def _move(
    tree: WorkspaceTree,
    draft: Draft,
    bulk: UntrackedFiles,
    units: Sequence[EffectUnit],
    found: Mapping[WorkspacePath, PathState],
) -> tuple[tuple[WorkspacePath, int], ...]:
    """Move untracked content that the command created through the trash into the tree."""
    if not units:
        return ()
    states = await in_thread(bulk.states, units)
    rows = []
    for unit, state in zip(units, states, strict=True):
        file = found[unit.top.place].file
        if file is not None and file.state.kind is not state.kind:
            draft.add_change(file, None, whatever_its_size=True)
            file = None
        rows.append(displaced(draft.add_change(file, state, whatever_its_size=True).file_id, state))
    # Record the rows first: an entry without a row, left by a crash, would never be removed from the trash.
    trash = await tree.stage(rows)
    await in_thread(bulk.move, trash, units, states)
    return tuple((state.place, state.size) for state in states)


def _last(residues: Iterable[PathEffect]) -> dict[WorkspacePath, PathEffect]:
    """Reduce to the final effect per path, for paths that were removed and then created again."""
    last: dict[WorkspacePath, PathEffect] = {}
    for residue in residues:
        was_there = residue.was_there or (residue.place in last and last[residue.place].was_there)
        last[residue.place] = replace(residue, was_there=was_there)
    return last


def _to_keep(residues: Iterable[PathEffect]) -> list[WorkspacePath]:
    """Return paths with earlier content, which undo must be able to restore."""
    return [residue.place for residue in residues if residue.was_there]


async def _found(
    tree: WorkspaceTree, above: Iterable[WorkspacePath], residues: Iterable[PathEffect]
) -> dict[WorkspacePath, PathState]:
    """Look up all paths, level by level. Skips the content of folders that do not exist yet."""
    folders = {residue.place for residue in residues if residue.kind is EntryKind.FOLDER}
    missing: set[WorkspacePath] = set()
    found: dict[WorkspacePath, PathState] = {}
    for _, level in groupby(sorted({*above, *(residue.place for residue in residues)}, key=_depth), key=_depth):
        places = list(level)
        found |= {place: PathState(place, None, None) for place in places if place.parent in missing}
        found |= await _looked_at(tree, [place for place in places if place.parent not in missing])
        missing.update(place for place in places if place in folders and not found[place].is_folder)
    return found


def _depth(place: WorkspacePath) -> int:
    return len(place.parts)


async def _looked_at(tree: WorkspaceTree, places: Sequence[WorkspacePath]) -> dict[WorkspacePath, PathState]:
    found: dict[WorkspacePath, PathState] = {}
    for start in range(0, len(places), _CHUNK):
        chunk = places[start : start + _CHUNK]
        found |= zip(chunk, await tree.lookup_all(chunk, aliases=True, past_links=True), strict=True)
    return found


async def _taken_in(
    tree: WorkspaceTree,
    places: Iterable[WorkspacePath],
    found: Mapping[WorkspacePath, PathState],
    *,
    whole: bool = False,
) -> dict[WorkspacePath, PathState]:
    """Import those of the paths that exist only on disk."""
    unknown = sorted(place for place in places if found[place].file is None and found[place].exists)
    taken: dict[WorkspacePath, PathState] = {}
    for start in range(0, len(unknown), _CHUNK):
        chunk = unknown[start : start + _CHUNK]
        taken |= zip(chunk, await tree.track(chunk, whole=whole, aliases=True), strict=True)
    return taken


def _steps(residues: Sequence[PathEffect], found: Mapping[WorkspacePath, PathState]) -> list[_EffectStep]:
    return [step for residue in residues for step in _steps_of(residue, found[residue.place])]


def _steps_of(residue: PathEffect, standing: PathState) -> list[_EffectStep]:
    if standing.is_special:
        raise Conflict(
            f"{shown(residue.place)} is a special file (a FIFO, socket or device) and cannot be restored once "
            "it is removed. Nothing was changed. Remove it outside Toolcrib."
        )
    file = standing.file
    if residue.is_gone:
        return [_EffectStep(file, None)] if file is not None else []
    step = _next(residue, file)
    assert step.after is not None
    if file is None:
        return [step]
    if step.after.kind is not file.state.kind and EntryKind.FOLDER in (step.after.kind, file.state.kind):
        # A folder may contain other files, so it does not change its kind: it is deleted and a new file is created.
        return [_EffectStep(file, None), replace(step, file=None)]
    return [] if step.after.holds_same_as(file.state) else [step]


def _next(residue: PathEffect, file: File | None) -> _EffectStep:
    match residue.kind:
        case EntryKind.FOLDER:
            known = file.state if file is not None and file.state.kind is EntryKind.FOLDER else None
            folder = EntryState(residue.place, EntryKind.FOLDER, residue.mode)
            return _EffectStep(file, replace(known, mode=residue.mode) if known else folder)
        case EntryKind.LINK:
            return _EffectStep(file, EntryState(residue.place, EntryKind.LINK, _LINK_MODE, target=residue.target))
    if residue.open is None:
        assert file is not None
        return _EffectStep(file, replace(file.state, mode=residue.mode))
    with residue.open() as opened:
        body = opened.read(residue.size + 1)
    state = file_state(
        residue.place, body, mode=residue.mode, content=file.state.content_kind if file else ContentKind.TEXT
    )
    if state.content_kind is ContentKind.JSON and isinstance(decode_content(body, ContentKind.JSON), str):
        state = replace(state, content_kind=ContentKind.TEXT)
    is_new = file is None or file.state.sha256 != state.sha256
    return _EffectStep(file, state, body if is_new else None)


def _refuse_unless_folders(above: Iterable[WorkspacePath], found: Mapping[WorkspacePath, PathState]) -> None:
    for folder in above:
        if found[folder].file is None or not found[folder].is_folder:
            raise Conflict(
                f"The folder {shown(folder)} was removed while the command ran. The command's changes were discarded. "
                "Check the current state, then run the command again."
            )


def _refuse_too_much(residues: Iterable[PathEffect]) -> None:
    size = sum(residue.size for residue in residues if residue.open is not None)
    if size > MOST_BYTES:
        raise TooLarge(
            f"The command wrote {size:,} bytes to tracked files; the limit is {MOST_BYTES:,}. "
            "Nothing was changed. Use smaller steps, or list generated files in a .gitignore."
        )


def _refuse_unsayable(residue: PathEffect) -> None:
    if not is_valid_path(residue.place.path) or any(map(is_temporary, residue.place.parts)):
        raise ToolFailed(
            f"The command created or removed {residue.place.path!r}, an invalid name: it is not Unicode, has control "
            "characters or leading or trailing spaces, or is too long. Nothing was changed. Use another name."
        )
    if residue.target is not None and not residue.target.isprintable():
        raise ToolFailed(
            f"The command created the link {shown(residue.place)} to {residue.target!r}, which is not Unicode. "
            "Nothing was changed. Use another target."
        )
