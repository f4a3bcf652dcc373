"""Hashes a file tree even if its owner locked parts of it. Follows no links and restores every mode."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from toolcrib.core.files import EntryKind
from toolcrib.core.paths import WorkspacePath
from toolcrib.workspace.fs.confined_open import OPEN_DIR_FLAGS, OPEN_FILE_FLAGS, OPEN_PATH_FLAGS, ConfinedRoot
from toolcrib.workspace.fs.mount_reader import held

# Larger files are not kept in memory, because they are not shown as a diff.
LARGEST_KEPT: Final = 200_000
_CHUNK: Final = 1 << 20
_OPEN: Final = 0o700
_KINDS: Final = {stat.S_IFREG: EntryKind.FILE, stat.S_IFDIR: EntryKind.FOLDER, stat.S_IFLNK: EntryKind.LINK}


@dataclass(frozen=True, slots=True)
class TreeHash:
    """One entry: its path below the top (empty for the top itself), kind, mode and content hash."""

    path: str
    kind: EntryKind | None
    mode: int
    size: int = 0
    sha256: bytes | None = None
    target: str | None = None
    body: bytes | None = field(default=None, repr=False)


def digest_of(found: Sequence[TreeHash]) -> bytes:
    """Hash a file's bytes or, for a folder, the names, kinds, modes and contents of everything in it."""
    top, *inside = found
    if top.kind is not EntryKind.FOLDER:
        return top.sha256 or sha256(os.fsencode(top.target or "")).digest()
    whole = sha256()
    for one in inside:
        held_there = one.sha256.hex() if one.sha256 else one.target or ""
        # Names and targets contain no NUL, so different folders never produce the same input.
        whole.update(os.fsencode("\0".join((one.path, one.kind or "", f"{one.mode:o}", held_there, ""))))
    return whole.digest()


class TreeHasher:
    """Hashes one entry and everything below it. Keeps the bytes of small files while ``room`` lasts."""

    def __init__(self, confined_root: ConfinedRoot, *, room: int) -> None:
        self._confined_root = confined_root
        self._room = room
        self._locked: list[tuple[WorkspacePath, int]] = []

    def hashed(self, workspace_path: WorkspacePath) -> list[TreeHash]:
        """Return the top first, then the others sorted by path. Raises ``OSError`` if something cannot be read."""
        with held(self._confined_root.open(workspace_path, OPEN_PATH_FLAGS)) as node:
            seen = os.fstat(node)
            target = os.readlink("", dir_fd=node) if stat.S_ISLNK(seen.st_mode) else None
        with self._locking_again():
            found = [self._hashed("", workspace_path, seen, target)]
            folders = [("", workspace_path)] if stat.S_ISDIR(seen.st_mode) else []
            for path, folder in folders:
                for name, seen, target in self._within(folder):
                    below = f"{path}/{name}"
                    found.append(self._hashed(below, folder.child(name), seen, target))
                    if stat.S_ISDIR(seen.st_mode):
                        folders.append((below, folder.child(name)))
        return sorted(found, key=lambda one: os.fsencode(one.path))

    def _within(self, folder: WorkspacePath) -> list[tuple[str, os.stat_result, str | None]]:
        found = []
        with held(self._open(folder, OPEN_DIR_FLAGS)) as opened, os.scandir(opened) as entries:
            for entry in entries:
                target = os.readlink(entry.name, dir_fd=opened) if entry.is_symlink() else None
                found.append((entry.name, entry.stat(follow_symlinks=False), target))
        return found

    def _hashed(self, path: str, workspace_path: WorkspacePath, seen: os.stat_result, target: str | None) -> TreeHash:
        kind, mode = _KINDS.get(stat.S_IFMT(seen.st_mode)), stat.S_IMODE(seen.st_mode)
        if kind is not EntryKind.FILE:
            return TreeHash(path, kind, mode, target=target)
        whole, size, kept = sha256(), 0, bytearray()
        keeps = seen.st_size <= min(LARGEST_KEPT, self._room)
        with held(self._open(workspace_path, OPEN_FILE_FLAGS)) as file:
            while piece := os.read(file, _CHUNK):
                whole.update(piece)
                size += len(piece)
                keeps = keeps and size <= min(LARGEST_KEPT, self._room)
                if keeps:
                    kept += piece
        if keeps:
            self._room -= size
        return TreeHash(path, kind, mode, size, whole.digest(), body=bytes(kept) if keeps else None)

    def _open(self, path: WorkspacePath, flags: int) -> int:
        """Open a path, unlocking its mode first if its owner has locked it."""
        try:
            return self._confined_root.open(path, flags)
        except PermissionError:
            with held(self._confined_root.open(path, OPEN_PATH_FLAGS)) as node:
                mode = stat.S_IMODE(os.fstat(node).st_mode)
                os.chmod(f"/proc/self/fd/{node}", mode | _OPEN)
            self._locked.append((path, mode))
            return self._confined_root.open(path, flags)

    @contextmanager
    def _locking_again(self) -> Iterator[None]:
        """Restore the modes of unlocked entries after everything below them was read."""
        try:
            yield
        finally:
            for path, mode in reversed(self._locked):
                with held(self._confined_root.open(path, OPEN_PATH_FLAGS)) as node:
                    os.chmod(f"/proc/self/fd/{node}", mode)
