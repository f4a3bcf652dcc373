"""What a program made and the history shall not keep, on its way into the tree: by way of the trash, as one piece.

What ignore rules name, or is too large, is moved and not read. A state of such a thing bears a token; under
it the thing lies in the trash until its change is applied. So a proposed change finds it, and undo puts it there again.
"""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from toolcrib.domain.errors import ToolFailed
from toolcrib.domain.files import NodeKind, NodeState
from toolcrib.domain.ids import FileId
from toolcrib.storage.trash import Displaced
from toolcrib.workspace.disk import Disk
from toolcrib.workspace.paths import shown
from toolcrib.workspace.residue import Residue
from toolcrib.workspace.trash import Trash, token_of, unkept_state

# The marks of the copy-on-write view; where a thing ends up they mean nothing, or the wrong thing.
_MARKS: Final = "user.overlay."


@dataclass(frozen=True, slots=True)
class Unit:
    """A thing that is moved as one piece: a file, or a new folder with all that the program made in it."""

    top: Residue
    inner: tuple[Residue, ...] = ()

    @property
    def size(self) -> int:
        return sum(residue.size for residue in (self.top, *self.inner) if residue.open is not None)


class Bulk:
    """Where a program's own bytes lie: for each of a workspace's trees, the directory in which it wrote."""

    def __init__(self, written: Mapping[str, Path]) -> None:
        self._written = written

    def states(self, units: Iterable[Unit]) -> list[NodeState]:
        """The state of each unit as it will stand in the tree. Moves nothing yet."""
        return [self._state(unit) for unit in units]

    def move(self, trash: Trash, units: Sequence[Unit], states: Sequence[NodeState]) -> None:
        """Puts the units into the trash, each under its token."""
        for unit, state in zip(units, states, strict=True):
            token = token_of(state)
            assert token is not None
            with Disk(self._written[state.place.tree]) as disk:
                if not trash.reaches(disk):
                    raise ToolFailed(
                        f"{shown(state.place)} is not kept in the history and lies on another file system than the "
                        "trash, so it cannot be moved. Nothing was changed. Let the operator put both on one."
                    )
                _clean(self._written[state.place.tree], unit)
                trash.take(disk, state.place, token)

    def _state(self, unit: Unit) -> NodeState:
        with Disk(self._written[unit.top.place.tree]) as disk:
            node = disk.look(unit.top.place)
        if node is None or node.kind is not unit.top.kind:
            raise ToolFailed(f"{shown(unit.top.place)} is gone from the command's view. Nothing was changed.")
        return replace(unkept_state(unit.top.place, node, size=unit.size), mode=unit.top.mode)


def displaced(file_id: FileId, state: NodeState) -> Displaced:
    """The row of something that lies in the trash until it is put into the tree."""
    token = token_of(state)
    assert token is not None
    return Displaced(token, file_id, state.place, state.kind, state.mode, state.size)


def _clean(written: Path, unit: Unit) -> None:
    """Takes away the view's marks and special files, and gives back the modes that reading it has changed."""
    top = written / unit.top.place.path[1:]
    if unit.top.kind is NodeKind.FOLDER:
        for folder, _, names in os.walk(top):
            _unmark(folder)
            for name in names:
                place = os.path.join(folder, name)
                if stat.S_IFMT(os.lstat(place).st_mode) not in (stat.S_IFREG, stat.S_IFLNK):
                    os.unlink(place)
    for residue in reversed(unit.inner):
        if residue.kind not in (None, NodeKind.LINK) and residue.mode & 0o700 != 0o700:
            os.chmod(written / residue.place.path[1:], residue.mode, follow_symlinks=True)


def _unmark(folder: str) -> None:
    for name in os.listxattr(folder, follow_symlinks=False):
        if name.startswith(_MARKS):
            os.removexattr(folder, name, follow_symlinks=False)
