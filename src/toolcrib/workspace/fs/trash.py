"""Keeps displaced content that the history does not store. Moves it aside and back by rename.

The content of a file that is too large or ignored exists only once: in the tree or in the trash. Its state has the id
under which the trash stores it, and the inode, which a rename keeps. So the states and the disk are enough to finish a
half-done change.
"""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from toolcrib.core.paths import Mount, WorkspacePath, mount_root
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.fs.tree_hash import TreeHash


class TrashDirectory:
    """One workspace's trash on this node. It is outside the mounts, so that no workspace path reaches it."""

    def __init__(self, root: Path, *, make: Callable[[], None], openat2: bool | None = None) -> None:
        """Prepare the trash. ``make`` creates ``root`` before the first use, if it is missing."""
        self._root = root
        self._make = make
        self._openat2 = openat2
        self._opened: MountWriter | None = None

    def can_rename_from(self, disk: MountWriter) -> bool:
        """Whether entries of this disk can be renamed into the trash. Another file system's cannot."""
        return disk.can_rename_into(self._disk)

    def holds(self, trash_id: UUID) -> bool:
        """Whether the trash has content under an id."""
        return self._root.exists() and self._disk.stat(_lying(trash_id)) is not None

    def move_in(self, disk: MountWriter, path: WorkspacePath, trash_id: UUID) -> None:
        """Move ``path`` into the trash. A rename: the content is always complete, there or here."""
        disk.rename(path, _lying(trash_id), into=self._disk)

    def move_out(self, disk: MountWriter, trash_id: UUID, path: WorkspacePath) -> None:
        """Move content back to a free path. Strips set-id bits and the like."""
        self._disk.normalize(_lying(trash_id), imported=False, setgid_folders=disk.gives_group(path))
        self._disk.rename(_lying(trash_id), path, into=disk)

    def hashed(self, trash_id: UUID, *, room: int = 0) -> list[TreeHash]:
        """Hash the content under an id, and everything below it."""
        return self._disk.hashed(_lying(trash_id), room=room)

    def delete(self, trash_id: UUID) -> None:
        """Delete the content under an id for good. A missing id is not an error."""
        if self._root.exists():
            self._disk.remove_whole(_lying(trash_id))

    @property
    def _disk(self) -> MountWriter:
        if self._opened is None:
            self._make()
            self._opened = MountWriter(self._root, openat2=self._openat2)
        return self._opened


def _lying(trash_id: UUID) -> WorkspacePath:
    # The mount does not matter: the trash has its own disk.
    return mount_root(Mount.STATE).child(str(trash_id))
