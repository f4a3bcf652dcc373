"""Keeps displaced files that the history does not keep. Moves them aside and back; knows no rows and no expiry.

The content of a file too large for the history, or of something that ignore rules keep out of it, is in one place
only: where it stands, or here. A state with such a content bears a *token* as its target, and here the content lies
under that token. Beside it stands the inode, which a rename does not change. So whoever meets a half-done change knows
from its states and the disk alone what is to be moved where.
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
    """One workspace's trash on this node. Beside the mounts, so that no path language reaches it."""

    def __init__(self, root: Path, *, make: Callable[[], None], openat2: bool | None = None) -> None:
        """``make`` makes ``root`` when something is first put there, if it is missing."""
        self._root = root
        self._make = make
        self._openat2 = openat2
        self._opened: MountWriter | None = None

    def can_rename_from(self, disk: MountWriter) -> bool:
        """Whether what stands on this disk can be renamed into here; another file system's cannot."""
        return disk.can_rename_into(self._disk)

    def holds(self, token: UUID) -> bool:
        return self._root.exists() and self._disk.stat(_lying(token)) is not None

    def move_in(self, disk: MountWriter, place: WorkspacePath, token: UUID) -> None:
        """Moves what stands at ``place`` aside. A rename: at every moment it is there or here, and whole."""
        disk.rename(place, _lying(token), into=self._disk)

    def move_out(self, disk: MountWriter, token: UUID, place: WorkspacePath) -> None:
        """Moves it back, to where nothing stands, without set-id bits and the like: whoever made them."""
        self._disk.normalize(_lying(token), imported=False, setgid_folders=disk.gives_group(place))
        self._disk.rename(_lying(token), place, into=disk)

    def hashed(self, token: UUID, *, room: int = 0) -> list[TreeHash]:
        """What lies here under a token, and all in it, by its content."""
        return self._disk.hashed(_lying(token), room=room)

    def delete(self, token: UUID) -> None:
        """Removes it for good, with all that is in it. Nothing there is fine."""
        if self._root.exists():
            self._disk.remove_whole(_lying(token))

    @property
    def _disk(self) -> MountWriter:
        if self._opened is None:
            self._make()
            self._opened = MountWriter(self._root, openat2=self._openat2)
        return self._opened


def _lying(token: UUID) -> WorkspacePath:
    # The mount is of no importance: the disk is the trash's own.
    return mount_root(Mount.STATE).child(str(token))


# States whose content the history does not keep


def token_of(state: EntryState | None) -> UUID | None:
    """What the content lies under if it is displaced; nothing for a state whose content the history keeps."""
    if state is None or state.kind is EntryKind.LINK or state.target is None:
        return None
    return UUID(state.target.removeprefix(_PREFIX).partition(":")[0])


def is_same_inode(state: EntryState, node: DiskEntry | None) -> bool:
    """Whether a node is the very file or folder that a state without kept content speaks of."""
    assert state.target is not None
    inode = int(state.target.rpartition(":")[2])
    return node is not None and node.kind is state.kind and node.fingerprint.inode == inode


def untracked_state(place: WorkspacePath, node: DiskEntry, *, size: int | None = None) -> EntryState:
    """The state of a file, or of a folder with all that is in it, whose content the history shall not keep."""
    assert node.kind in (EntryKind.FILE, EntryKind.FOLDER)
    return EntryState(
        place=place,
        kind=node.kind,
        mode=node.mode,
        size=node.fingerprint.size if size is None else size,
        content=ContentKind.BINARY,
        target=f"{_PREFIX}{uuid4()}:{node.fingerprint.inode}",
    )


def list_trashed(change_set: ChangeSet) -> list[TrashedFile]:
    """What a set puts into the trash."""
    return [
        TrashedFile(token, change.file_id, state.place, state.kind, state.mode, state.size)
        for change in change_set.changes
        for token, state in _displaced(change)
    ]


def list_restored(change_set: ChangeSet) -> list["RestoredFromTrash"]:
    """What a set brings back from the trash."""
    return [
        RestoredFromTrash(token, change.after.place)
        for change in change_set.changes
        if change.after is not None and (token := token_of(change.after)) and token != token_of(change.before)
    ]


def trash_unavailable_reason(entry: TrashEntry | None) -> str | None:
    """Why something cannot be brought back from the trash; nothing if it can."""
    if entry is None:
        return "Its content is neither in the history nor in the trash."
    if entry.gone_at is None:
        return None
    if not entry.was_kept:
        return f"Its {entry.size:,} bytes were too large for the trash, so it was not kept."
    return f"It was kept in the trash until {entry.gone_at:%Y-%m-%d %H:%M} UTC and has expired."


@dataclass(frozen=True, slots=True)
class RestoredFromTrash:
    """Something that leaves the trash, and where it goes."""

    token: UUID
    place: WorkspacePath


def _displaced(change: FileChange) -> Iterator[tuple[UUID, EntryState]]:
    token = token_of(change.before)
    if token is not None and token != token_of(change.after):
        assert change.before is not None
        yield token, change.before
