"""The effect of a command on single paths, and its classification into tracked and untracked files.

Values and rules only; independent of the sandbox that reports the effects.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from toolcrib.core.errors import ToolFailed
from toolcrib.core.files import EntryKind, EntryState
from toolcrib.core.paths import WorkspacePath
from toolcrib.workspace.fs.gitignore import GitignoreRules
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.fs.trash import TrashDirectory
from toolcrib.workspace.sync.path_state import untracked_state


@dataclass(frozen=True, slots=True)
class PathEffect:
    """What a command left at one path. ``kind`` is ``None`` if nothing is there any more.

    Attributes:
        was_there: Something existed at the path when the command started.
        was_folder: A folder existed there and is gone.
        open: Opens the file's bytes while the reporter keeps them. ``None`` means that the bytes did not change.
    """

    path: WorkspacePath
    kind: EntryKind | None
    was_there: bool
    mode: int = 0
    size: int = 0
    target: str | None = None
    open: Callable[[], BinaryIO] | None = None
    was_folder: bool = False

    @property
    def is_deleted(self) -> bool:
        return self.kind is None


@dataclass(frozen=True, slots=True)
class EffectUnit:
    """A file, or a new folder with everything the command created in it, that moves as one piece."""

    top: PathEffect
    inner: tuple[PathEffect, ...] = ()

    @property
    def size(self) -> int:
        return sum(path_effect.size for path_effect in (self.top, *self.inner) if path_effect.open is not None)


class UntrackedFiles:
    """Access to untracked files that a command wrote: for each mount, the directory it wrote to.

    They move into the tree through the trash, each as one piece.
    """

    def __init__(self, written: Mapping[str, Path]) -> None:
        self._written = written

    def states(self, units: Iterable[EffectUnit]) -> list[EntryState]:
        """Return the state that each unit will have in the tree. Moves nothing yet."""
        states = []
        for unit in units:
            path = unit.top.path
            with MountWriter(self._written[path.mount_key]) as disk:
                node = disk.stat(path)
            if node is None or node.kind is not unit.top.kind:
                raise ToolFailed(f"{path.display} no longer exists in the command's view. Nothing was changed.")
            states.append(replace(untracked_state(path, node, size=unit.size), mode=unit.top.mode))
        return states

    def move(self, trash: TrashDirectory, units: Sequence[EffectUnit], states: Sequence[EntryState]) -> None:
        """Move the units into the trash, each under its id."""
        for unit, state in zip(units, states, strict=True):
            assert state.trash_id is not None
            with MountWriter(self._written[state.path.mount_key]) as disk:
                if not trash.can_rename_from(disk):
                    raise ToolFailed(
                        f"{state.path.display} is not in the history and on another file system than the trash, so "
                        "it cannot be moved. Nothing was changed. Ask the operator to put both on one file system."
                    )
                disk.normalize(state.path, imported=True)
                _lock_again(self._written[state.path.mount_key], unit)
                trash.move_in(disk, state.path, state.trash_id)


def _lock_again(written: Path, unit: EffectUnit) -> None:
    """Restore the modes that reading has changed."""
    for path_effect in reversed(unit.inner):
        if path_effect.kind not in (None, EntryKind.LINK) and path_effect.mode & 0o700 != 0o700:
            os.chmod(written / path_effect.path.path[1:], path_effect.mode, follow_symlinks=True)


@dataclass(frozen=True, slots=True)
class EffectClassification:
    """Effects by treatment: ``kept`` with content, ``made`` moved into the tree and ``gone`` moved out as one piece."""

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
    """Classify by ignore rules and sizes: ``after`` applies to what remains, ``before`` to what the command removed.

    ``known`` are paths whose content the history has; ignore rules do not apply to them.
    """
    shares = EffectClassification()
    whole: dict[WorkspacePath, list[PathEffect]] = {}
    for path in sorted(last):
        path_effect = last[path]
        above = next((folder for folder in path.ancestors if folder in whole), None)
        if above is not None:
            whole[above].append(path_effect)
        elif _is_new_file(path_effect) and path_effect.size > max_file_bytes:
            shares.made.append(EffectUnit(path_effect))
        elif path in known or not _ignores(path_effect, after, before):
            shares.kept.append(path_effect)
        elif path_effect.is_deleted:
            whole[path] = []
            shares.gone.append(path_effect)
        elif path_effect.kind is EntryKind.FOLDER and not path_effect.was_there:
            whole[path] = []
        elif _is_new_file(path_effect):
            shares.made.append(EffectUnit(path_effect))
        else:
            shares.kept.append(path_effect)
    gone = {path_effect.path for path_effect in shares.gone}
    shares.made.extend(EffectUnit(last[top], tuple(inner)) for top, inner in whole.items() if top not in gone)
    return shares


def _is_new_file(path_effect: PathEffect) -> bool:
    return path_effect.kind is EntryKind.FILE and path_effect.open is not None


def _ignores(path_effect: PathEffect, after: GitignoreRules, before: GitignoreRules) -> bool:
    if path_effect.is_deleted:
        return before.ignores(path_effect.path, folder=path_effect.was_folder)
    return after.ignores(path_effect.path, folder=path_effect.kind is EntryKind.FOLDER)
