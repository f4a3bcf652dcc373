"""The live mounts as a background process sees them: bound directly, masked paths covered, fixed paths read-only.

Covers and read-only binds are mounted by path while others may change the tree. So the result is checked from outside
before the process may run, and repeatedly after that.
"""

import asyncio
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolcrib.core.errors import ToolFailed
from toolcrib.sandbox.bubblewrap import BindMount, ViewMount
from toolcrib.sandbox.contained_process import BASE, Owner, SpawnRequest, ViewLayer
from toolcrib.sandbox.overlay import give, locked, parent_of, stat_in
from toolcrib.sandbox.transaction import (
    WRITTEN,
    furnish,
    furniture,
    make_staging_dir,
    mount_owner,
    remove_staging,
    working_directory,
)


class LiveView:
    """Mounts without an overlay. ``_covers`` and ``_fixed`` are existing paths with their stat results."""

    def __init__(self, mounts: Sequence[ViewMount], staging: Path) -> None:
        self._mounts = tuple(mounts)
        self.folder = make_staging_dir(staging)
        self._owner: Owner | None = mount_owner(mounts)
        self._covers: list[tuple[ViewMount, str, os.stat_result]] = []
        self._substitutes: dict[tuple[str, str], str] = {}
        self._fixed: list[tuple[ViewMount, str, os.stat_result]] = []

    def prepare(self) -> None:
        """Create the staging content, and find what to cover."""
        furnish(self.folder)
        (self.folder / "void").mkdir(mode=0o555)
        (self.folder / "blank").touch(mode=0o444)
        for mount in self._mounts:
            for path, text in mount.substitutes.items():
                name = self._substitutes[mount.name, path] = f"cover{len(self._substitutes)}"
                (self.folder / name).write_bytes(text)
        if self._owner:
            give(self.folder, self._owner)
        try:
            for mount in self._mounts:
                for paths, kept in ((mount.masked, self._covers), (mount.fixed, self._fixed)):
                    kept += [(mount, path, at) for path in sorted(paths) if (at := _found_below(mount.root, path))]
        except PermissionError as error:
            raise locked(error) from None

    @property
    def written(self) -> list[Path]:
        """The folders of the staging directory that the process can write."""
        return [self.folder / name for name in WRITTEN]

    @property
    def worked_on(self) -> list[Path]:
        """The live trees that are writable."""
        return [mount.root for mount in self._mounts if mount.writable]

    def request(
        self, binary: str, argv: Sequence[str], environment: Mapping[str, str], cwd: str | None
    ) -> SpawnRequest:
        """Build the request to start a command. Raises ``ToolFailed`` if ``cwd`` is outside the mounts."""
        here, layers = working_directory(cwd, self._mounts), [ViewLayer(mount.root) for mount in self._mounts]
        return SpawnRequest(binary, argv, environment, here, self._binds(), layers, self.folder, self._owner)

    def _binds(self) -> list[BindMount]:
        """Return the binds: mounts first, then read-only paths and covers on top of them."""
        base = Path(BASE, "staging") if self._owner else self.folder
        trees = {
            mount.name: Path(BASE, str(number)) if self._owner else mount.root
            for number, mount in enumerate(self._mounts)
        }
        mounts = [BindMount(trees[mount.name], mount.target, writable=mount.writable) for mount in self._mounts]
        fixed = [BindMount(trees[mount.name] / path, f"{mount.target}/{path}") for mount, path, _ in self._fixed]
        covers = [BindMount(base / self._cover(*cover), f"{cover[0].target}/{cover[1]}") for cover in self._covers]
        return [*furniture(base), *sorted(mounts, key=lambda bind: bind.target), *fixed, *covers]

    def require_laid(self, first: int) -> None:
        """Raise ``ToolFailed`` unless every cover and every read-only bind is at its path in the view.

        ``first`` is a process inside. Someone who swapped a folder for a link meanwhile may have redirected the bind.
        """
        laid = [(cover[0], cover[1], os.stat(self.folder / self._cover(*cover))) for cover in self._covers]
        for mount, path, wanted in [*laid, *self._fixed]:
            if not _is_at(Path(f"/proc/{first}/root{mount.target}"), path, wanted):
                raise ToolFailed(f"{path} was moved or replaced while the process started. Try again.")

    def _cover(self, mount: ViewMount, path: str, covered: os.stat_result) -> str:
        """Return what is mounted over a path, in the staging folder."""
        if stat.S_ISDIR(covered.st_mode):
            return "void"
        return self._substitutes.get((mount.name, path), "blank")

    def uncovered(self) -> str | None:
        """Return the first covered or read-only path that was replaced."""
        for mount, path, was in [*self._covers, *self._fixed]:
            if not _is_at(mount.root, path, was):
                return path
        return None

    async def discard(self) -> None:
        """Remove the staging folder."""
        await asyncio.to_thread(remove_staging, self.folder)


def _is_at(root: Path, path: str, wanted: os.stat_result) -> bool:
    """Whether the very file is still at its path. A path that cannot be read any more counts as replaced."""
    try:
        found = _found_below(root, path)
    except OSError:
        return False
    return found is not None and (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)


def _found_below(root: Path, path: str) -> os.stat_result | None:
    """Stat a path without following links: a cover is mounted by path, and must be inside the tree."""
    try:
        with parent_of(root, path) as (folder, name):
            found = stat_in(folder, name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if found is None or stat.S_ISLNK(found.st_mode) else found
