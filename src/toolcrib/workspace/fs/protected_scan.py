"""Finds the paths of a tree that an agent's programs may not read or write. Rescans only what changed.

A path is protected by its name, or as another name (a hard link) of a protected file. A folder that cannot be read is
hidden as a whole.
"""

import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.policy.protected_paths import ProtectedPaths, is_suspect

_TREES: Final = 64
# A change this soon after the scan could have the same timestamps (a kernel tick is up to 10 ms).
_TICK_NS: Final = 20_000_000
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_EVERYTHING: Final = ProtectedPaths()

Protects = Callable[[WorkspacePath], str | None]


@dataclass(frozen=True, slots=True)
class _ScannedFolder:
    """A scanned folder: its subfolders, its protected entries and its links as paths, and its files by inode."""

    dates: tuple[int, int, int]
    seen_ns: int
    folders: tuple[str, ...]
    closed: tuple[str, ...]
    links: tuple[str, ...]
    inodes: dict[int, str]

    def still_is(self, found: os.stat_result) -> bool:
        return self.dates == _dates(found) and self.seen_ns > found.st_ctime_ns + _TICK_NS


class ProtectedPathScanner:
    """Caches scans folder by folder, so that an unchanged tree costs one stat per folder."""

    def __init__(self) -> None:
        self._trees: OrderedDict[Path, _ScannedTree] = OrderedDict()
        self._lock = threading.Lock()

    def below(self, root: Path, path: WorkspacePath, protects: Protects, *, aliases: bool = True) -> frozenset[str]:
        """Return the protected paths below ``root``, which is mounted at ``path``. ``aliases`` includes hard links."""
        return self._tree(root).scan(root, path, protects, aliases=aliases)[0]

    def with_links(self, root: Path, path: WorkspacePath, protects: Protects) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the protected paths below ``root``, without hard links, and the symbolic links."""
        return self._tree(root).scan(root, path, protects, aliases=False)

    def _tree(self, root: Path) -> "_ScannedTree":
        with self._lock:
            tree = self._trees.setdefault(root, _ScannedTree())
            self._trees.move_to_end(root)
            if len(self._trees) > _TREES:
                self._trees.popitem(last=False)
            return tree


class _ScannedTree:
    def __init__(self) -> None:
        self._folders: dict[str, _ScannedFolder] = {}
        self._lock = threading.Lock()

    def scan(
        self, root: Path, path: WorkspacePath, protects: Protects, *, aliases: bool
    ) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the protected paths, and the links outside them."""
        with self._lock:
            opened = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
            try:
                hidden = self._hidden(opened, path, protects, aliases=aliases)
                return hidden, tuple(link for folder in self._folders.values() for link in folder.links)
            finally:
                os.close(opened)

    def _hidden(self, root: int, workspace_path: WorkspacePath, protects: Protects, *, aliases: bool) -> frozenset[str]:
        fresh: dict[str, _ScannedFolder] = {}
        hidden: set[str] = set()
        linked: set[int] = set()
        pending = [""]
        while pending:
            path = pending.pop()
            folder = self._folder(root, path)
            if folder is None:
                hidden.add(path)
                continue
            fresh[path] = folder
            if not folder.closed:
                pending += folder.folders
                continue
            closed = {
                name
                for name in folder.closed
                if protects(WorkspacePath(workspace_path.mount, f"/{name}", workspace_path.scope))
            }
            hidden |= closed
            if aliases:
                linked.update(inode for name in closed for inode in _several_names(root, name))
            pending += [child for child in folder.folders if child not in closed]
        self._folders = fresh
        return frozenset(hidden | set(_aliases(fresh, linked)) - {""})

    def _folder(self, root: int, path: str) -> _ScannedFolder | None:
        """Return the folder's current scan, or ``None`` if it cannot be read or is gone."""
        try:
            found = os.stat(path or ".", dir_fd=root, follow_symlinks=False)
            known = self._folders.get(path)
            if known is not None and known.still_is(found):
                return known
            return _seen(root, path)
        except OSError:
            return None


def _seen(root: int, path: str) -> _ScannedFolder:
    opened = os.open(path or ".", _FOLDER, dir_fd=root)
    try:
        seen_ns, found = time.time_ns(), os.fstat(opened)
        folders, closed, links, inodes = [], [], [], {}
        inside = any(map(is_suspect, path.split("/")))
        above = f"{path}/" if path else ""
        with os.scandir(opened) as entries:
            for entry in entries:
                name = entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(above + name)
                else:
                    inodes[entry.inode()] = name
                    if entry.is_symlink():
                        links.append(above + name)
                if (inside or is_suspect(name)) and _EVERYTHING.protects_writing(
                    WorkspacePath(Mount.PROJECT, f"/{above}{name}")
                ):
                    closed.append(above + name)
        return _ScannedFolder(_dates(found), seen_ns, tuple(folders), tuple(closed), tuple(links), inodes)
    finally:
        os.close(opened)


def _several_names(root: int, path: str) -> Iterator[int]:
    """Yield the inode of a protected file that has other names."""
    try:
        found = os.stat(path, dir_fd=root, follow_symlinks=False)
    except OSError:
        return
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        yield found.st_ino


def _aliases(folders: dict[str, _ScannedFolder], linked: set[int]) -> Iterator[str]:
    if not linked:
        return
    for path, folder in folders.items():
        for inode in linked & folder.inodes.keys():
            yield f"{path}/{folder.inodes[inode]}" if path else folder.inodes[inode]


def _dates(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns
