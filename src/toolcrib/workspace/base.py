"""The moment at which a command began, and whether what it touched is still as it was then. Changes nothing.

The history says what calls changed since: by the database's own snapshot, so that no clock decides it. What programs
outside did is told by the disk alone, by the time at which it says that a node was last changed.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolcrib.domain.changes import ChangeSet
from toolcrib.domain.errors import Conflict
from toolcrib.domain.files import File, NodeKind
from toolcrib.domain.ids import VersionId
from toolcrib.domain.places import Place
from toolcrib.storage.since import Moment
from toolcrib.workspace.paths import shown
from toolcrib.workspace.residue import Residue
from toolcrib.workspace.standing import Standing
from toolcrib.workspace.tree import Tree

_NAMED = 5
# CLOCK_REALTIME_COARSE, by which the kernel dates nodes; Python has no name for it.
_KERNELS_CLOCK = 5


@dataclass(frozen=True, slots=True)
class Base:
    """What a command began on."""

    moment: Moment
    began_ns: int

    @classmethod
    async def now(cls, tree: Tree) -> "Base":
        """A moment whose whole history is on disk: a command that begins after it sees all that calls did before."""
        moment = await tree.past.now()
        if moment.any_pending:
            await tree.finish()
        return cls(moment, time.time_ns())

    async def over(self) -> None:
        await past(self.began_ns)

    async def require(self, tree: Tree, residues: Sequence[Residue], standings: Mapping[Place, Standing]) -> None:
        """Conflict, naming the files and who changed them, unless everything that was touched is as it was then."""
        later = await tree.past.changed_since(self.moment, [residue.place for residue in residues])
        met = [residue for residue in residues if self._is_in_the_way(residue, standings[residue.place], later)]
        if met:
            raise await _conflict(tree, [(residue.place, later.get(residue.place)) for residue in met])

    def _is_in_the_way(self, residue: Residue, now: Standing, later: Mapping[Place, VersionId]) -> bool:
        if residue.kind is NodeKind.FOLDER and now.is_folder:
            # What was put into it meanwhile is no matter, nor who made it first.
            return residue.place in later and now.node is not None and now.node.mode != residue.mode
        if residue.place in later:
            return now.exists or not residue.is_gone
        if not now.exists:
            return residue.was_there and not residue.is_gone
        if not residue.was_there:
            return True
        # A folder is dated anew by whatever is put into it; that is looked at for itself.
        return now.node is not None and not now.is_folder and now.node.fingerprint.ctime_ns > self.began_ns


async def past(moment_ns: int) -> None:
    """Waits until a moment is past for the kernel too, which dates nodes by a clock that ticks: a few ms.

    Then whatever bears a later date was changed after, and nothing else was.
    """
    if time.clock_gettime_ns(_KERNELS_CLOCK) <= moment_ns:
        await asyncio.sleep(time.clock_getres(_KERNELS_CLOCK))


async def overtaken(tree: Tree, change_set: ChangeSet) -> Conflict | None:
    """The conflict, if a place of the set is not any more what the set was planned on."""
    places = change_set.places
    found = {standing.place: standing.file for standing in await tree.find_all(places, aliases=True, past_links=True)}
    left = {change.before.place for change in change_set.changes if change.before is not None and change.leaves}
    moved_on: list[tuple[Place, File | None]] = []
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


async def _conflict(tree: Tree, met: Sequence[tuple[Place, VersionId | None]]) -> Conflict:
    words = [f"{shown(place)} (by {await tree.author_of(version)})" for place, version in met[:_NAMED]]
    others = f" and {len(met) - _NAMED} more" if len(met) > _NAMED else ""
    return Conflict(
        f"Changed while the command ran: {', '.join(words)}{others}. None of the command's effect was kept. "
        "Look at what is there now, then run the command again."
    )
