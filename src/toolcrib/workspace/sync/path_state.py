"""The state of a path in the history and on disk, and whether the two agree."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import assert_never

from toolcrib.core.callers import Caller
from toolcrib.core.errors import PathOutsideMount, SymlinkNotFollowed
from toolcrib.core.files import FOLDER_MODE, AuthorKind, ContentKind, EntryKind, EntryState, File, FileType, Version
from toolcrib.core.paths import WorkspacePath
from toolcrib.storage.blobs import digest
from toolcrib.storage.files import PathLookup
from toolcrib.workspace.fs.disk_entries import DiskEntry
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.fs.trash import is_same_inode, token_of, untracked_state
from toolcrib.workspace.text.content import decode_content, file_state


@dataclass(frozen=True, slots=True)
class PathState:
    """What is at a path: in the history, on disk, in both or in neither."""

    path: WorkspacePath
    file: File | None
    node: DiskEntry | None

    @property
    def exists(self) -> bool:
        """Whether a file, folder or link is there. Special files do not count."""
        return self.file is not None or (self.node is not None and self.node.kind is not None)

    @property
    def kind(self) -> EntryKind | None:
        """The kind in the history or, for an untracked path, on disk."""
        if self.file is not None:
            return self.file.state.kind
        if self.path.is_root:
            return EntryKind.FOLDER
        return self.node.kind if self.node else None

    @property
    def is_folder(self) -> bool:
        return self.kind is EntryKind.FOLDER

    @property
    def is_special(self) -> bool:
        """Whether it is a FIFO, socket or device: neither readable nor replaceable, and not listed."""
        return self.node is not None and self.node.kind is None

    @property
    def synced(self) -> bool:
        """Whether the path is tracked."""
        return self.file is not None

    @property
    def type(self) -> FileType:
        if self.file is not None:
            return self.file.type
        return FileType.FOLDER if self.is_folder else FileType.DOCUMENT

    @property
    def is_virtual(self) -> bool:
        return self.file is not None and self.file.is_virtual

    @property
    def display_name(self) -> str:
        """The name for people. Only for virtual files it differs from the name in the path."""
        return (self.file.display_name if self.file else None) or self.path.name

    @property
    def updated_at(self) -> datetime:
        if self.file is not None:
            return self.file.updated_at
        assert self.node is not None
        return self.node.mtime


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file's whole content with its path state."""

    path_state: PathState
    body: bytes
    sha256: bytes


def author_in_words(version: Version, caller: Caller) -> str:
    """Describe who made a version, and how long ago."""
    match version.author_kind:
        case AuthorKind.AGENT:
            who = f"run {version.run_id}" if version.run_id else f"agent {version.agent_id}"
        case AuthorKind.USER:
            who = "you" if version.user_id == caller.user_id and not caller.is_agent else f"user {version.user_id}"
        case AuthorKind.EXTERNAL:
            who = "a program outside Toolcrib"
        case AuthorKind.SYSTEM:
            who = "the system"
        case _:
            assert_never(version.author_kind)
    seconds = max(0, int((datetime.now(UTC) - version.created_at).total_seconds()))
    return f"{who}, {seconds} s ago"


def is_stale(path_state: PathState, seen: PathLookup, asked_about: set[WorkspacePath]) -> bool:
    """Whether history and disk must be reconciled before the state is returned."""
    file, node = path_state.file, path_state.node
    if file is None:
        # After a crash, it may be left over from a move or a deletion. Reconcile it once.
        return seen.any_pending and node is not None and path_state.path not in asked_about
    if file.is_virtual:
        return False
    return file.pending or differs_by_stat(file, node)


def differs_by_stat(file: File, node: DiskEntry | None) -> bool:
    """Whether the file on disk may differ from the history, judged without reading it."""
    if node is None or node.kind is not file.state.kind:
        return True
    if node.kind is EntryKind.LINK:
        return node.target != file.state.target
    if node.mode != file.state.mode:
        return True
    return node.kind is EntryKind.FILE and not (file.fingerprint and file.fingerprint.matches(node.fingerprint))


# The largest file that the history stores. A larger one goes into the trash when it is displaced.
MOST_BYTES = 256_000_000

_NOTHING = (None, None, None)


def disk_matches_head(disk: MountWriter, file: File, node: DiskEntry | None) -> bool:
    """Whether the disk has a file's head. Compares fingerprints first, and content where they prove nothing."""
    if node is not None and node.kind is EntryKind.FILE and file.fingerprint is not None:
        if file.fingerprint.is_proof_of(node.fingerprint):
            return file.state.kind is EntryKind.FILE
        if not file.fingerprint.matches(node.fingerprint):
            return False
    return disk_matches_state(disk, file.state, node)


def disk_matches_state(disk: MountWriter, state: EntryState, node: DiskEntry | None) -> bool:
    """Whether the disk has a state, compared by content where there is any."""
    if node is None or node.kind is not state.kind:
        return False
    if state.kind is EntryKind.LINK:
        return node.target == state.target
    if node.mode != state.mode:
        return False
    if state.kind is EntryKind.FOLDER:
        return True
    if node.fingerprint.size != state.size:
        return False
    if token_of(state) is not None:
        # The content exists only on disk. If it changed, it is still kept when it is displaced.
        return is_same_inode(state, node)
    body, _ = disk.read(state.path, limit=MOST_BYTES)
    return digest(body) == state.sha256


def stat_no_symlinks(disk: MountWriter, path: WorkspacePath) -> DiskEntry | None:
    """Stat a path before a change. Returns ``None`` if a link is on the way."""
    try:
        return disk.stat(path)
    except (SymlinkNotFollowed, PathOutsideMount):
        return None


def observe_entry(
    disk: MountWriter, path: WorkspacePath, known: EntryState | None
) -> tuple[EntryState | None, bytes | None, DiskEntry | None]:
    """Read what is on disk as a state with its content. Returns nothing for special files, which cannot be tracked."""
    node = disk.stat(path)
    if node is None or node.kind is None:
        return _NOTHING
    if node.kind is EntryKind.FOLDER:
        return _folder(path, node, known), None, node
    if node.kind is EntryKind.LINK:
        # A target that is not printable text cannot be stored.
        is_readable = node.target is not None and node.target.isprintable()
        return (
            (EntryState(path, EntryKind.LINK, node.mode, target=node.target), None, node) if is_readable else _NOTHING
        )
    if node.fingerprint.size > MOST_BYTES:
        return untracked_state(path, node), None, node
    body, node = disk.read(path, limit=MOST_BYTES)
    state = file_state(path, body, mode=node.mode, content=known.content_kind if known else ContentKind.TEXT)
    if state.content_kind is ContentKind.JSON and isinstance(decode_content(body, ContentKind.JSON), str):
        state = replace(state, content_kind=ContentKind.TEXT)
    return state, body, node


def observed_whole(disk: MountWriter, path: WorkspacePath) -> tuple[EntryState | None, DiskEntry | None]:
    """Read what is on disk as an untracked state; a folder with everything in it."""
    node = disk.stat(path)
    if node is None or node.kind not in (EntryKind.FILE, EntryKind.FOLDER):
        return None, None
    size = None if node.kind is EntryKind.FILE else size_below(disk, path)
    return untracked_state(path, node, size=size), node


def _folder(path: WorkspacePath, node: DiskEntry, known: EntryState | None) -> EntryState:
    state = EntryState(path, EntryKind.FOLDER, node.mode or FOLDER_MODE)
    # A folder recorded as a whole stays so: a stat does not reveal its content.
    return replace(state, size=known.size, target=known.target) if known and token_of(known) else state


def size_below(disk: MountWriter, folder: WorkspacePath) -> int:
    """Return the total size of all files in a folder, at any depth."""
    nodes = (disk.stat(path) for path, entry in disk.walk(folder) if entry.kind is EntryKind.FILE)
    return sum(node.fingerprint.size for node in nodes if node is not None)
