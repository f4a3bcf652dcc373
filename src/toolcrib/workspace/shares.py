"""Shares out what a program left: what the history keeps, and what is moved unread. Decides by rules and sizes only."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from toolcrib.domain.files import NodeKind
from toolcrib.domain.places import Place
from toolcrib.workspace.bulk import Unit
from toolcrib.workspace.ignoring import Ignoring
from toolcrib.workspace.residue import Residue


@dataclass(frozen=True, slots=True)
class Shares:
    """``kept`` with their content, ``made`` moved into the tree and ``gone`` moved out of it, each as one piece."""

    kept: list[Residue] = field(default_factory=list)
    made: list[Unit] = field(default_factory=list)
    gone: list[Residue] = field(default_factory=list)


def share_out(
    last: Mapping[Place, Residue], after: Ignoring, before: Ignoring, max_file_bytes: int, known: Collection[Place]
) -> Shares:
    """By the rules as the program left them; of what it removed, as it found them.

    ``known`` are places whose content the history has: there the rules do not count.
    """
    shares = Shares()
    whole: dict[Place, list[Residue]] = {}
    for place in sorted(last):
        residue = last[place]
        above = next((folder for folder in place.ancestors if folder in whole), None)
        if above is not None:
            whole[above].append(residue)
        elif _is_too_large(residue, max_file_bytes):
            shares.made.append(Unit(residue))
        elif place in known or not _ignores(residue, after, before):
            shares.kept.append(residue)
        elif residue.is_gone:
            whole[place] = []
            shares.gone.append(residue)
        elif residue.kind is NodeKind.FOLDER and not residue.was_there:
            whole[place] = []
        elif residue.kind is NodeKind.FILE and residue.open is not None:
            shares.made.append(Unit(residue))
        else:
            shares.kept.append(residue)
    gone = {residue.place for residue in shares.gone}
    shares.made.extend(Unit(last[top], tuple(inner)) for top, inner in whole.items() if top not in gone)
    return shares


def _is_too_large(residue: Residue, max_file_bytes: int) -> bool:
    return residue.kind is NodeKind.FILE and residue.open is not None and residue.size > max_file_bytes


def _ignores(residue: Residue, after: Ignoring, before: Ignoring) -> bool:
    if residue.is_gone:
        return before.ignores(residue.place, folder=residue.was_folder)
    return after.ignores(residue.place, folder=residue.kind is NodeKind.FOLDER)
