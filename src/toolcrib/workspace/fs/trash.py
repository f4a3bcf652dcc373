"""Keeps displaced content that the history does not store. Moves it aside and back by rename.

The content of a file that is too large or ignored exists only once: in the tree or in the trash. Its state has a
*token* as target, and the trash stores the content under that token. The target also records the inode, which a rename
keeps. So the states and the disk are enough to finish a half-done change.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from toolcrib.core.change_sets import ChangeSet, FileChange
from toolcrib.core.files import ContentKind, EntryKind, EntryState
from toolcrib.core.paths import Mount, WorkspacePath, mount_root
from toolcrib.storage.trash import TrashedFile, TrashEntry
from toolcrib.workspace.effects.tree_hash import TreeHash
from toolcrib.workspace.fs.disk_entries import DiskEntry
from toolcrib.workspace.fs.mount_writer import MountWriter

_PREFIX = "trash:"


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

    def holds(self, token: UUID) -> bool:
        """Whether the trash has content under a token."""
        return self._root.exists() and self._disk.stat(_lying(token)) is not None

    def move_in(self, disk: MountWriter, path: WorkspacePath, token: UUID) -> None:
        """Move ``path`` into the trash. A rename: the content is always complete, there or here."""
        disk.rename(path, _lying(token), into=self._disk)

    def move_out(self, disk: MountWriter, token: UUID, path: WorkspacePath) -> None:
        """Move content back to a free path. Strips set-id bits and the like."""
        self._disk.normalize(_lying(token), imported=False, setgid_folders=disk.gives_group(path))
        self._disk.rename(_lying(token), path, into=disk)

    def hashed(self, token: UUID, *, room: int = 0) -> list[TreeHash]:
        """Hash the content under a token, and everything below it."""
        return self._disk.hashed(_lying(token), room=room)

    def delete(self, token: UUID) -> None:
        """Delete the content under a token for good. A missing token is not an error."""
        if self._root.exists():
            self._disk.remove_whole(_lying(token))

    @property
    def _disk(self) -> MountWriter:
        if self._opened is None:
            self._make()
            self._opened = MountWriter(self._root, openat2=self._openat2)
        return self._opened


def _lying(token: UUID) -> WorkspacePath:
    # The mount does not matter: the trash has its own disk.
    return mount_root(Mount.STATE).child(str(token))


def token_of(state: EntryState | None) -> UUID | None:
    """Return the trash token of a state, or ``None`` if the history stores its content."""
    if state is None or state.kind is EntryKind.LINK or state.target is None:
        return None
    return UUID(state.target.removeprefix(_PREFIX).partition(":")[0])


def is_same_inode(state: EntryState, node: DiskEntry | None) -> bool:
    """Whether a disk entry is the very file or folder that an untracked state describes."""
    assert state.target is not None
    inode = int(state.target.rpartition(":")[2])
    return node is not None and node.kind is state.kind and node.fingerprint.inode == inode


def untracked_state(path: WorkspacePath, node: DiskEntry, *, size: int | None = None) -> EntryState:
    """Build the state of a file, or of a whole folder, whose content the history does not store."""
    assert node.kind in (EntryKind.FILE, EntryKind.FOLDER)
    return EntryState(
        path=path,
        kind=node.kind,
        mode=node.mode,
        size=node.fingerprint.size if size is None else size,
        content_kind=ContentKind.BINARY,
        target=f"{_PREFIX}{uuid4()}:{node.fingerprint.inode}",
    )


def list_trashed(change_set: ChangeSet) -> list[TrashedFile]:
    """List what a change set moves into the trash."""
    return [
        TrashedFile(token, change.file_id, state.path, state.kind, state.mode, state.size)
        for change in change_set.changes
        for token, state in _displaced(change)
    ]


def list_restored(change_set: ChangeSet) -> list["RestoredFromTrash"]:
    """List what a change set restores from the trash."""
    return [
        RestoredFromTrash(token, change.after.path)
        for change in change_set.changes
        if change.after is not None and (token := token_of(change.after)) and token != token_of(change.before)
    ]


def trash_unavailable_reason(entry: TrashEntry | None) -> str | None:
    """Explain why content cannot be restored from the trash. Returns ``None`` if it can."""
    if entry is None:
        return "Its content is neither in the history nor in the trash."
    if entry.expired_at is None:
        return None
    if not entry.was_kept:
        return f"Its {entry.size:,} bytes were too large for the trash, so it was not stored."
    return f"It has expired: it was in the trash until {entry.expired_at:%Y-%m-%d %H:%M} UTC."


@dataclass(frozen=True, slots=True)
class RestoredFromTrash:
    """Content that leaves the trash, and the path where it goes."""

    token: UUID
    path: WorkspacePath


def _displaced(change: FileChange) -> Iterator[tuple[UUID, EntryState]]:
    token = token_of(change.before)
    if token is not None and token != token_of(change.after):
        assert change.before is not None
        yield token, change.before
