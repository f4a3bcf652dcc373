"""Turns what a program did elsewhere into changes of a draft, in bulk. Asks no guard and commits nothing.

What stood on disk only, and is changed or deleted, is taken in first, so that undo can bring it back; what a program
outside did before is booked as such first. There is one trip to the database for thousands of places, never one each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Final

from toolcrib.domain.errors import Conflict, Refused, TooLarge, ToolFailed
from toolcrib.domain.files import ContentKind, File, NodeKind, NodeState
from toolcrib.domain.places import Place
from toolcrib.workspace.base import Base
from toolcrib.workspace.bulk import Bulk, Unit, displaced
from toolcrib.workspace.content import decoded, file_state
from toolcrib.workspace.disk import is_temporary
from toolcrib.workspace.draft import Draft
from toolcrib.workspace.ignoring import Ignoring
from toolcrib.workspace.mounts import Disks
from toolcrib.workspace.paths import is_sayable_path, shown
from toolcrib.workspace.residue import Residue
from toolcrib.workspace.shares import Shares, share_out
from toolcrib.workspace.standing import Standing
from toolcrib.workspace.threads import in_thread
from toolcrib.workspace.trash import token_of
from toolcrib.workspace.tree import Tree

# What one effect may bring into the history: it passes through memory on its way.
MOST_BYTES: Final = 200_000_000
_CHUNK: Final = 2_000
_MOST_RULES: Final = 100_000
_LINK_MODE: Final = 0o777


@dataclass(frozen=True, slots=True)
class _Step:
    """A file's next state, and its bytes if they are new."""

    file: File | None
    after: NodeState | None
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Adopted:
    """What the history does not keep of what was adopted: places, with their sizes."""

    unkept: tuple[tuple[Place, int], ...] = ()


async def adopt(tree: Tree, draft: Draft, residues: Iterable[Residue], base: Base, bulk: Bulk) -> Adopted:
    """Puts the residues into the draft. Conflict if others changed one of the places since ``base``."""
    last = _last(residues)
    shares, found = await _shared_out(tree, last)
    wanted = shares.kept + [unit.top for unit in shares.made] + shares.gone
    for residue in wanted:
        _refuse_unsayable(residue)
    _refuse_too_much(shares.kept)
    above = {folder for residue in wanted if not residue.is_gone for folder in residue.place.ancestors} - found.keys()
    found |= await _found(tree, above, ())
    await base.require(tree, wanted, found)
    found |= await _taken_in(tree, [*above, *_to_keep(shares.kept)], found)
    found |= await _taken_in(tree, _to_keep(unit.top for unit in shares.made), found, whole=True)
    _refuse_unless_folders(above, found)
    for step in await in_thread(_steps, shares.kept, found):
        draft.step(step.file, step.after, body=step.body)
    await _displace(tree, draft, shares.gone)
    return Adopted(await _move(tree, draft, bulk, shares.made, found))


async def _shared_out(tree: Tree, last: Mapping[Place, Residue]) -> tuple[Shares, dict[Place, Standing]]:
    """What the history keeps and what it does not, and what stands at those places now.

    What it knows by its content already it goes on keeping, whatever the rules say.
    """
    disks = await tree.disks()
    after, before = Ignoring(partial(_rules, last, disks)), Ignoring(partial(_rules, {}, disks))
    known: set[Place] = set()
    found: dict[Place, Standing] = {}
    while True:
        shares = await in_thread(share_out, last, after, before, tree.max_file_bytes, known)
        tops = shares.kept + [unit.top for unit in shares.made] + shares.gone
        found |= await _found(tree, (), [residue for residue in tops if residue.place not in found])
        doubtful = [unit.top for unit in shares.made if unit.top.size <= tree.max_file_bytes] + shares.gone
        kept = {residue.place for residue in doubtful if _is_kept(found[residue.place])} - known
        if not kept:
            return shares, found
        known |= kept


def _is_kept(standing: Standing) -> bool:
    return standing.file is not None and token_of(standing.file.state) is None


def _rules(last: Mapping[Place, Residue], disk_of: Disks, place: Place) -> bytes | None:
    """The ignore rules at a place, as the program left them."""
    residue = last.get(place)
    if residue is not None and (residue.is_gone or residue.kind is not NodeKind.FILE):
        return None
    if residue is not None and residue.open is not None:
        with residue.open() as opened:
            return opened.read(_MOST_RULES)
    try:
        return disk_of(place).read(place, limit=_MOST_RULES)[0]
    except (ToolFailed, Refused):
        return None


async def _displace(tree: Tree, draft: Draft, gone: Sequence[Residue]) -> None:
    """Into the trash goes what the program removed and the history does not keep, folders as one piece."""
    if not gone:
        return
    for standing in await tree.take_in([residue.place for residue in gone], whole=True, aliases=True):
        if standing.file is None:
            continue
        draft.step(standing.file, None, whatever_its_size=True)
        for child in await tree.known_below(standing.place) if standing.is_folder else ():
            draft.step(child, None, whatever_its_size=True)


async def _move(
    tree: Tree, draft: Draft, bulk: Bulk, units: Sequence[Unit], found: Mapping[Place, Standing]
) -> tuple[tuple[Place, int], ...]:
    """By way of the trash comes what the program made and the history does not keep."""
    if not units:
        return ()
    states = await in_thread(bulk.states, units)
    rows = []
    for unit, state in zip(units, states, strict=True):
        file = found[unit.top.place].file
        if file is not None and file.state.kind is not state.kind:
            draft.step(file, None, whatever_its_size=True)
            file = None
        rows.append(displaced(draft.step(file, state, whatever_its_size=True).file_id, state))
    # Written down first: what a crash leaves in the trash without a row would never be removed.
    trash = await tree.stage(rows)
    await in_thread(bulk.move, trash, units, states)
    return tuple((state.place, state.size) for state in states)


def _last(residues: Iterable[Residue]) -> dict[Place, Residue]:
    """What is left in the end where something was removed and something else put in its place."""
    last: dict[Place, Residue] = {}
    for residue in residues:
        was_there = residue.was_there or (residue.place in last and last[residue.place].was_there)
        last[residue.place] = replace(residue, was_there=was_there)
    return last


def _to_keep(residues: Iterable[Residue]) -> list[Place]:
    """Where something stood, of which undo will be asked."""
    return [residue.place for residue in residues if residue.was_there]


async def _found(tree: Tree, above: Iterable[Place], residues: Iterable[Residue]) -> dict[Place, Standing]:
    """What stands at all these places now. In a folder that is not there yet nothing does: nobody need look."""
    folders = {residue.place for residue in residues if residue.kind is NodeKind.FOLDER}
    missing: set[Place] = set()
    found: dict[Place, Standing] = {}
    for _, level in groupby(sorted({*above, *(residue.place for residue in residues)}, key=_depth), key=_depth):
        places = list(level)
        found |= {place: Standing(place, None, None) for place in places if place.parent in missing}
        found |= await _looked_at(tree, [place for place in places if place.parent not in missing])
        missing.update(place for place in places if place in folders and not found[place].is_folder)
    return found


def _depth(place: Place) -> int:
    return len(place.parts)


async def _looked_at(tree: Tree, places: Sequence[Place]) -> dict[Place, Standing]:
    found: dict[Place, Standing] = {}
    for start in range(0, len(places), _CHUNK):
        chunk = places[start : start + _CHUNK]
        found |= zip(chunk, await tree.find_all(chunk, aliases=True, past_links=True), strict=True)
    return found


async def _taken_in(
    tree: Tree, places: Iterable[Place], found: Mapping[Place, Standing], *, whole: bool = False
) -> dict[Place, Standing]:
    """Those of these places that are on disk only, brought into the history."""
    unknown = sorted(place for place in places if found[place].file is None and found[place].exists)
    taken: dict[Place, Standing] = {}
    for start in range(0, len(unknown), _CHUNK):
        chunk = unknown[start : start + _CHUNK]
        taken |= zip(chunk, await tree.take_in(chunk, whole=whole, aliases=True), strict=True)
    return taken


def _steps(residues: Sequence[Residue], found: Mapping[Place, Standing]) -> list[_Step]:
    return [step for residue in residues for step in _steps_of(residue, found[residue.place])]


def _steps_of(residue: Residue, standing: Standing) -> list[_Step]:
    if standing.is_virtual:
        raise Conflict(
            f"{shown(residue.place)} is kept by the system and was not changed, nor was anything else. "
            "Let the command leave it alone."
        )
    if standing.is_special:
        raise Conflict(
            f"{shown(residue.place)} is a special file (a FIFO, socket or device), which cannot be brought back once "
            "it is removed. Nothing was changed. Let the command leave it alone, or remove it outside Toolcrib."
        )
    file = standing.file
    if residue.is_gone:
        return [_Step(file, None)] if file is not None else []
    step = _next(residue, file)
    assert step.after is not None
    if file is None:
        return [step]
    if step.after.kind is not file.state.kind and NodeKind.FOLDER in (step.after.kind, file.state.kind):
        # Others may stand in a folder, so it does not become something else: it goes, and another thing comes.
        return [_Step(file, None), replace(step, file=None)]
    return [] if step.after.holds_same_as(file.state) else [step]


def _next(residue: Residue, file: File | None) -> _Step:
    match residue.kind:
        case NodeKind.FOLDER:
            known = file.state if file is not None and file.state.kind is NodeKind.FOLDER else None
            folder = NodeState(residue.place, NodeKind.FOLDER, residue.mode)
            return _Step(file, replace(known, mode=residue.mode) if known else folder)
        case NodeKind.LINK:
            return _Step(file, NodeState(residue.place, NodeKind.LINK, _LINK_MODE, target=residue.target))
    if residue.open is None:
        assert file is not None
        return _Step(file, replace(file.state, mode=residue.mode))
    with residue.open() as opened:
        body = opened.read(residue.size + 1)
    state = file_state(residue.place, body, mode=residue.mode, content=file.state.content if file else ContentKind.TEXT)
    if state.content is ContentKind.JSON and isinstance(decoded(body, ContentKind.JSON), str):
        state = replace(state, content=ContentKind.TEXT)
    is_new = file is None or file.state.sha256 != state.sha256
    return _Step(file, state, body if is_new else None)


def _refuse_unless_folders(above: Iterable[Place], found: Mapping[Place, Standing]) -> None:
    for folder in above:
        if found[folder].file is None or not found[folder].is_folder:
            raise Conflict(
                f"The folder {shown(folder)} was removed while the command ran. None of its effect was kept. "
                "Look at what is there now, then run the command again."
            )


def _refuse_too_much(residues: Iterable[Residue]) -> None:
    size = sum(residue.size for residue in residues if residue.open is not None)
    if size > MOST_BYTES:
        raise TooLarge(
            f"The command wrote {size:,} bytes to files that the history keeps; {MOST_BYTES:,} are the most at once. "
            "Nothing was changed. Do it in smaller steps, or let a .gitignore name what can be made again."
        )


def _refuse_unsayable(residue: Residue) -> None:
    if not is_sayable_path(residue.place.path) or any(map(is_temporary, residue.place.parts)):
        raise ToolFailed(
            f"The command made or removed {residue.place.path!r}, a name that the history cannot hold: it is not text, "
            "has control characters or outer spaces, or is too long. Nothing was changed. Use another name."
        )
    if residue.target is not None and not residue.target.isprintable():
        raise ToolFailed(
            f"The command made the link {shown(residue.place)} to {residue.target!r}, which is not text. "
            "Nothing was changed. Let it point elsewhere."
        )
