"""Strips what must not reach the host: set-id bits, devices, capabilities, ACLs and foreign owners.

Works on descriptors and through no link, before the entry is renamed to where others can reach it.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from toolcrib.core.paths import WorkspacePath
from toolcrib.workspace.fs.confined_open import OPEN_DIR_FLAGS, OPEN_PATH_FLAGS, ConfinedRoot
from toolcrib.workspace.fs.mount_reader import held

_SET_ID: Final = stat.S_ISUID | stat.S_ISGID
_DEVICES: Final = frozenset({stat.S_IFCHR, stat.S_IFBLK})
_PLAIN: Final = frozenset({stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK})
# The last one marks overlay entries. Outside the overlay it means nothing, or the wrong thing.
_ATTRIBUTES: Final = ("security.capability", "system.posix_acl_", "user.overlay.")
_OPEN: Final = 0o700


class Normalizer:
    """Normalizes entries below one root.

    Args:
        confined_root: The root to work in.
        imported: The entry was created by a command: it gets the root's owner and keeps regular files only.
            Otherwise it was on the host before: its FIFOs and sockets stay, and entries of other owners are left alone.
        setgid_folders: Folders keep their set-group-ID bit, because the folders around them have it too.
    """

    def __init__(self, confined_root: ConfinedRoot, *, imported: bool, setgid_folders: bool = False) -> None:
        self._confined_root = confined_root
        self._imported = imported
        self._of_folders = stat.S_ISUID if setgid_folders else _SET_ID
        found = os.fstat(confined_root.root)
        self._owner = found.st_uid, found.st_gid

    def normalize(self, path: WorkspacePath) -> None:
        """Normalize ``path`` and everything below. Raises ``OSError`` if an imported entry cannot be made harmless."""
        with held(self._confined_root.open(path.parent, OPEN_DIR_FLAGS)) as above:
            found = os.stat(path.name, dir_fd=above, follow_symlinks=False)
            self._normalize_entry(above, path.name, found)
        folders = [path] if stat.S_ISDIR(found.st_mode) else []
        for folder in folders:
            folders += [folder.child(name) for name in self._within(folder)]

    def _within(self, path: WorkspacePath) -> list[str]:
        """Normalize the entries of a folder and return the names of its subfolders."""
        try:
            with self._opened(path) as folder, os.scandir(folder) as entries:
                found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
                for name, seen in found:
                    self._normalize_entry(folder, name, seen)
        except (PermissionError, FileNotFoundError):
            if self._imported:
                raise
            return []
        return [name for name, seen in found if stat.S_ISDIR(seen.st_mode)]

    def _normalize_entry(self, folder: int, name: str, seen: os.stat_result) -> None:
        kind = stat.S_IFMT(seen.st_mode)
        if kind in _DEVICES or (self._imported and kind not in _PLAIN):
            os.unlink(name, dir_fd=folder)
            return
        denied = self._of_folders if kind == stat.S_IFDIR else _SET_ID
        is_foreign = self._imported and (seen.st_uid, seen.st_gid) != self._owner
        attributes = _attributes(f"/proc/self/fd/{folder}/{name}")
        if not is_foreign and not attributes and (kind == stat.S_IFLNK or not seen.st_mode & denied):
            return
        try:
            if is_foreign:
                os.chown(name, *self._owner, dir_fd=folder, follow_symlinks=False)
            if kind != stat.S_IFLNK:
                with held(os.open(name, OPEN_PATH_FLAGS, dir_fd=folder)) as node:
                    _strip(node, denied, attributes)
        except PermissionError:
            if self._imported:
                raise

    @contextmanager
    def _opened(self, path: WorkspacePath) -> Iterator[int]:
        """Open a folder, unlocking its mode if its owner locked it. Restores the mode afterwards."""
        try:
            opened = self._confined_root.open(path, OPEN_DIR_FLAGS)
        except PermissionError:
            with held(self._confined_root.open(path, OPEN_PATH_FLAGS)) as node:
                handle, mode = f"/proc/self/fd/{node}", stat.S_IMODE(os.fstat(node).st_mode)
                os.chmod(handle, mode | _OPEN)
                try:
                    with held(self._confined_root.open(path, OPEN_DIR_FLAGS)) as opened:
                        yield opened
                finally:
                    os.chmod(handle, mode & ~self._of_folders)
            return
        with held(opened):
            yield opened


def _strip(node: int, denied: int, attributes: list[str]) -> None:
    handle, mode = f"/proc/self/fd/{node}", os.fstat(node).st_mode
    for attribute in attributes:
        os.removexattr(handle, attribute)
    if mode & denied:
        os.chmod(handle, stat.S_IMODE(mode) & ~denied)


def _attributes(path: str) -> list[str]:
    try:
        return [name for name in os.listxattr(path, follow_symlinks=False) if name.startswith(_ATTRIBUTES)]
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.ENOENT):
            return []
        raise
