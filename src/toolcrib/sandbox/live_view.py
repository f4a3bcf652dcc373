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

    def __init__(self, zones: Sequence[ViewMount], folder: Path) -> None:
        self._zones = tuple(zones)
        self.folder = folder
        self.owner: Owner | None = mount_owner(zones)
        self._covers: list[tuple[ViewMount, str, os.stat_result]] = []
        self._fixed: list[tuple[ViewMount, str, os.stat_result]] = []

    @classmethod
    async def lay(cls, zones: Sequence[ViewMount], staging: Path) -> Self:
        """Prepare a view of the mounts in a new staging folder."""
        view = cls(zones, make_staging_dir(staging))
        await asyncio.to_thread(view._prepare)
        return view

    @property
    def written(self) -> list[Path]:
        """The folders of the staging directory that the process can write."""
        return [self.folder / name for name in WRITTEN]

    @property
    def worked_on(self) -> list[Path]:
        """The live trees that are writable."""
        return [zone.root for zone in self._zones if zone.writable]

    def working_directory(self, wanted: str | None) -> str:
        """Return the working directory. Raises ``ToolFailed`` if it is outside the mounts."""
        cwd = wanted or self._zones[0].target
        if ".." in cwd.split("/") or not any(f"{cwd}/".startswith(f"{zone.target}/") for zone in self._zones):
            raise ToolFailed(f"The working directory {cwd!r} is outside the mounts.")
        return cwd

    def layers(self) -> list[ViewLayer]:
        """Return the trees to mount, without overlays."""
        return [ViewLayer(zone.root) for zone in self._zones]

    def binds(self) -> list[BindMount]:
        """Return the binds: mounts first, then read-only paths and covers on top of them."""
        base = Path(BASE, "staging") if self.owner else self.folder
        trees = {
            zone.name: Path(BASE, str(number)) if self.owner else zone.root for number, zone in enumerate(self._zones)
        }
        zones = [BindMount(trees[zone.name], zone.target, writable=zone.writable) for zone in self._zones]
        fixed = [BindMount(trees[zone.name] / path, f"{zone.target}/{path}") for zone, path, _ in self._fixed]
        covers = [BindMount(base / _blank(found), f"{zone.target}/{path}") for zone, path, found in self._covers]
        return [*furniture(base), *sorted(zones, key=lambda bind: bind.target), *fixed, *covers]

    def require_laid(self, first: int) -> None:
        """Raise ``ToolFailed`` unless every cover and every read-only bind is at its path in the view.

        ``first`` is a process inside. Someone who swapped a folder for a link meanwhile may have redirected the bind.
        """
        laid = [(zone, path, os.stat(self.folder / _blank(was))) for zone, path, was in self._covers]
        for zone, path, wanted in [*laid, *self._fixed]:
            if not _is_same(_found_below(Path(f"/proc/{first}/root{zone.target}"), path), wanted):
                raise ToolFailed(f"{path} was moved or replaced while the process started. Try again.")

    def uncovered(self) -> str | None:
        """Return the first covered or read-only path that was replaced."""
        for zone, path, was in [*self._covers, *self._fixed]:
            if not _is_same(_found_below(zone.root, path), was):
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
        for zone in self._zones:
            for places, kept in ((zone.masked, self._covers), (zone.fixed, self._fixed)):
                kept += [(zone, path, found) for path in sorted(places) if (found := _found_below(zone.root, path))]


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
