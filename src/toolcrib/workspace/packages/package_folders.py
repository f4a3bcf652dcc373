"""Stores installed packages on this node: each in its own folder, with a link to the current one.

The link is replaced atomically, so that every process sees either the old or the new package as @pkg.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex

from toolcrib.core.errors import ToolFailed
from toolcrib.core.files import FILE_MODE
from toolcrib.core.ids import WorkspaceId
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.runtime.private_directory import make_private
from toolcrib.workspace.fs.mount_writer import MountWriter

_FOLDERS, _CURRENT = "packages", "package"
# Bytes that stay free on the disk for other users.
_SPARE = 1_000_000


class PackageFolders:
    """The package folders of all workspaces in one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def current(self, workspace_id: WorkspaceId) -> Path | None:
        """Return the folder that @pkg shows."""
        above = self._above(workspace_id)
        try:
            return above / os.readlink(above / _CURRENT)
        except FileNotFoundError:
            return None

    def put(self, workspace_id: WorkspaceId, files: Sequence[tuple[str, bytes]]) -> Path | None:
        """Unpack files and make @pkg show them.

        Returns the previous folder. Call it for one package at a time per workspace.

        The previous folder stays until the next installation, for readers that still use it.
        """
        above, before = self._above(workspace_id), self.current(workspace_id)
        folder = above / _FOLDERS / token_hex(16)
        make_private(folder, self._data_dir)
        try:
            with MountWriter(folder) as disk:
                if disk.free_bytes() < sum(len(body) for _, body in files) + _SPARE:
                    raise ToolFailed("The disk is full: the package does not fit. Nothing was changed.")
                # Not as @pkg, which is read-only.
                disk.write_all([(WorkspacePath(Mount.PROJECT, f"/{path}"), body, FILE_MODE) for path, body in files])
            self.show(workspace_id, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        for other in folder.parent.iterdir():
            if other not in (folder, before):
                # Toolcrib wrote everything in it, and there are no links.
                shutil.rmtree(other, ignore_errors=True)
        return before

    def show(self, workspace_id: WorkspaceId, folder: Path | None) -> None:
        """Make @pkg show a folder, or nothing."""
        above = self._above(workspace_id)
        if folder is None:
            (above / _CURRENT).unlink(missing_ok=True)
            return
        fresh = above / f"{_CURRENT}.{token_hex(8)}"
        fresh.symlink_to(Path(_FOLDERS) / folder.name)
        fresh.rename(above / _CURRENT)

    def _above(self, workspace_id: WorkspaceId) -> Path:
        return self._data_dir / "workspaces" / str(workspace_id)
