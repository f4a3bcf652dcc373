"""What a program did to places, told without knowing the program or the history. Values only."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from toolcrib.core.errors import ToolFailed
from toolcrib.core.files import EntryKind, EntryState
from toolcrib.core.ids import FileId
from toolcrib.core.paths import WorkspacePath, shown
from toolcrib.storage.trash import TrashedFile
from toolcrib.workspace.fs.gitignore import GitignoreRules
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.fs.trash import TrashDirectory, token_of, untracked_state


@dataclass(frozen=True, slots=True)
class PathEffect:
    """What a program left at one place. ``kind`` is none if nothing stands there any more.

    ``was_there``: something stood there when the program began; ``was_folder``: a folder did, and is gone. ``open``
    gives a file's bytes, for as long as whoever tells of it keeps them; without it the bytes are those that stood there
    before.
    """

    place: WorkspacePath
    kind: EntryKind | None
    was_there: bool
    mode: int = 0
    size: int = 0
    target: str | None = None
    open: Callable[[], BinaryIO] | None = None
    was_folder: bool = False

    @property
    def is_gone(self) -> bool:
        return self.kind is None


# What a program made and the history shall not keep, on its way into the tree: by way of the trash, as one piece.


@dataclass(frozen=True, slots=True)
class EffectUnit:
    """A thing that is moved as one piece: a file, or a new folder with all that the program made in it."""

    top: PathEffect
    inner: tuple[PathEffect, ...] = ()

    @property
    def size(self) -> int:
        return sum(residue.size for residue in (self.top, *self.inner) if residue.open is not None)


class UntrackedFiles:
    """Where a program's own bytes lie: for each of a workspace's trees, the directory in which it wrote."""

    def __init__(self, written: Mapping[str, Path]) -> None:
        self._written = written

    def states(self, units: Iterable[EffectUnit]) -> list[EntryState]:
        """The state of each unit as it will stand in the tree. Moves nothing yet."""
        return [self._state(unit) for unit in units]

    def move(self, trash: TrashDirectory, units: Sequence[EffectUnit], states: Sequence[EntryState]) -> None:
        """Puts the units into the trash, each under its token."""
        for unit, state in zip(units, states, strict=True):
            token = token_of(state)
            assert token is not None
            with MountWriter(self._written[state.place.mount_key]) as disk:
                if not trash.can_rename_from(disk):
                    raise ToolFailed(
                        f"{shown(state.place)} is not kept in the history and lies on another file system than the "
                        "trash, so it cannot be moved. Nothing was changed. Let the operator put both on one."
                    )
                disk.normalize(state.place, imported=True)
                _lock_again(self._written[state.place.mount_key], unit)
                trash.move_in(disk, state.place, token)

    def _state(self, unit: EffectUnit) -> EntryState:
        with MountWriter(self._written[unit.top.place.mount_key]) as disk:
            node = disk.stat(unit.top.place)
        if node is None or node.kind is not unit.top.kind:
            raise ToolFailed(f"{shown(unit.top.place)} is gone from the command's view. Nothing was changed.")
        return replace(untracked_state(unit.top.place, node, size=unit.size), mode=unit.top.mode)


def displaced(file_id: FileId, state: EntryState) -> TrashedFile:
    """The row of something that lies in the trash until it is put into the tree."""
    token = token_of(state)
    assert token is not None
    return TrashedFile(token, file_id, state.place, state.kind, state.mode, state.size)


def _lock_again(written: Path, unit: EffectUnit) -> None:
    """Gives back the modes that reading has changed."""
    for residue in reversed(unit.inner):
        if residue.kind not in (None, EntryKind.LINK) and residue.mode & 0o700 != 0o700:
            os.chmod(written / residue.place.path[1:], residue.mode, follow_symlinks=True)


# Shares out what a program left: what the history keeps, and what is moved unread. Decides by rules and sizes only.


@dataclass(frozen=True, slots=True)
class EffectClassification:
    """``kept`` with their content, ``made`` moved into the tree and ``gone`` moved out of it, each as one piece."""

    kept: list[PathEffect] = field(default_factory=list)
    made: list[EffectUnit] = field(default_factory=list)
    gone: list[PathEffect] = field(default_factory=list)


def classify(
    last: Mapping[WorkspacePath, PathEffect],
    after: GitignoreRules,
    before: GitignoreRules,
    max_file_bytes: int,
    known: Collection[WorkspacePath],
) -> EffectClassification:
    """By the rules as the program left them; of what it removed, as it found them.

    ``known`` are places whose content the history has: there the rules do not count.
    """
    shares = EffectClassification()
    whole: dict[WorkspacePath, list[PathEffect]] = {}
    for place in sorted(last):
        residue = last[place]
        above = next((folder for folder in place.ancestors if folder in whole), None)
        if above is not None:
            whole[above].append(residue)
        elif _is_too_large(residue, max_file_bytes):
            shares.made.append(EffectUnit(residue))
        elif place in known or not _ignores(residue, after, before):
            shares.kept.append(residue)
        elif residue.is_gone:
            whole[place] = []
            shares.gone.append(residue)
        elif residue.kind is EntryKind.FOLDER and not residue.was_there:
            whole[place] = []
        elif residue.kind is EntryKind.FILE and residue.open is not None:
            shares.made.append(EffectUnit(residue))
        else:
            shares.kept.append(residue)
    gone = {residue.place for residue in shares.gone}
    shares.made.extend(EffectUnit(last[top], tuple(inner)) for top, inner in whole.items() if top not in gone)
    return shares


def _is_too_large(residue: PathEffect, max_file_bytes: int) -> bool:
    return residue.kind is EntryKind.FILE and residue.open is not None and residue.size > max_file_bytes


def _ignores(residue: PathEffect, after: GitignoreRules, before: GitignoreRules) -> bool:
    if residue.is_gone:
        return before.ignores(residue.place, folder=residue.was_folder)
    return after.ignores(residue.place, folder=residue.kind is EntryKind.FOLDER)
