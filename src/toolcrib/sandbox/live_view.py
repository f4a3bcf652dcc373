"""The live mounts as a background process sees them: bound directly, masked paths covered, fixed paths read-only.

Covers and read-only binds are mounted by path while others may change the tree. So the result is checked from outside
before the process may run, and repeatedly after that.
"""

import asyncio
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from toolcrib.core.errors import ToolFailed
from toolcrib.sandbox.bubblewrap import BindMount, ViewMount
from toolcrib.sandbox.fork_client import BASE, Owner, ViewLayer
from toolcrib.sandbox.overlay import give, stat_in
from toolcrib.sandbox.transaction import WRITTEN, furnish, furniture, make_staging_dir, mount_owner, remove_staging

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class LiveView:
    """Mounts without an overlay. ``_covers`` and ``_fixed`` are existing paths with their stat results."""

    def __init__(self, mounts: Sequence[ViewMount], folder: Path) -> None:
        self._mounts = tuple(mounts)
        self.folder = folder
        self.owner: Owner | None = mount_owner(mounts)
        self._covers: list[tuple[ViewMount, str, os.stat_result]] = []
        self._fixed: list[tuple[ViewMount, str, os.stat_result]] = []

    @classmethod
    async def lay(cls, mounts: Sequence[ViewMount], staging: Path) -> Self:
        """Prepare a view of the mounts in a new staging folder."""
        view = cls(mounts, make_staging_dir(staging))
        await asyncio.to_thread(view._prepare)
        return view

    @property
    def written(self) -> list[Path]:
        """The folders of the staging directory that the process can write."""
        return [self.folder / name for name in WRITTEN]

    @property
    def worked_on(self) -> list[Path]:
        """The live trees that are writable."""
        return [mount.root for mount in self._mounts if mount.writable]

    def working_directory(self, wanted: str | None) -> str:
        """Return the working directory. Raises ``ToolFailed`` if it is outside the mounts."""
        cwd = wanted or self._mounts[0].target
        if ".." in cwd.split("/") or not any(f"{cwd}/".startswith(f"{mount.target}/") for mount in self._mounts):
            raise ToolFailed(f"The working directory {cwd!r} is outside the mounts.")
        return cwd

    def layers(self) -> list[ViewLayer]:
        """Return the trees to mount, without overlays."""
        return [ViewLayer(mount.root) for mount in self._mounts]

    def binds(self) -> list[BindMount]:
        """Return the binds: mounts first, then read-only paths and covers on top of them."""
        base = Path(BASE, "staging") if self.owner else self.folder
        trees = {
            mount.name: Path(BASE, str(number)) if self.owner else mount.root
            for number, mount in enumerate(self._mounts)
        }
        mounts = [BindMount(trees[mount.name], mount.target, writable=mount.writable) for mount in self._mounts]
        fixed = [BindMount(trees[mount.name] / path, f"{mount.target}/{path}") for mount, path, _ in self._fixed]
        covers = [BindMount(base / _blank(found), f"{mount.target}/{path}") for mount, path, found in self._covers]
        return [*furniture(base), *sorted(mounts, key=lambda bind: bind.target), *fixed, *covers]

    def require_laid(self, first: int) -> None:
        """Raise ``ToolFailed`` unless every cover and every read-only bind is at its path in the view.

        ``first`` is a process inside. Someone who swapped a folder for a link meanwhile may have redirected the bind.
        """
        laid = [(mount, path, os.stat(self.folder / _blank(was))) for mount, path, was in self._covers]
        for mount, path, wanted in [*laid, *self._fixed]:
            if not _is_same(_found_below(Path(f"/proc/{first}/root{mount.target}"), path), wanted):
                raise ToolFailed(f"{path} was moved or replaced while the process started. Try again.")

    def uncovered(self) -> str | None:
        """Return the first covered or read-only path that was replaced."""
        for mount, path, was in [*self._covers, *self._fixed]:
            if not _is_same(_found_below(mount.root, path), was):
                return path
        return None

    async def discard(self) -> None:
        """Remove the staging folder."""
        await asyncio.to_thread(remove_staging, self.folder)

    def _prepare(self) -> None:
        furnish(self.folder)
        (self.folder / "void").mkdir(mode=0o555)
        (self.folder / "blank").touch(mode=0o444)
        if self.owner:
            give(self.folder, self.owner)
        for mount in self._mounts:
            for paths, kept in ((mount.masked, self._covers), (mount.fixed, self._fixed)):
                kept += [(mount, path, found) for path in sorted(paths) if (found := _found_below(mount.root, path))]


def _blank(covered: os.stat_result) -> str:
    return "void" if stat.S_ISDIR(covered.st_mode) else "blank"


def _is_same(found: os.stat_result | None, wanted: os.stat_result) -> bool:
    return found is not None and (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)


def _found_below(root: Path, path: str) -> os.stat_result | None:
    """Stat a path without following links: a cover is mounted by path, and must be inside the tree."""
    folder = os.open(root, _FOLDER)
    *parents, name = path.split("/")
    try:
        for parent in parents:
            try:
                below = os.open(parent, _FOLDER, dir_fd=folder)
            except OSError:
                return None
            os.close(folder)
            folder = below
        found = stat_in(folder, name)
    finally:
        os.close(folder)
    return None if found is None or stat.S_ISLNK(found.st_mode) else found
