"""The state of a path in the history and on disk, and whether the two agree."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import assert_never
from uuid import uuid4

from toolcrib.core.callers import Caller
from toolcrib.core.files import (
    AuthorKind,
    ContentKind,
    DiskEntry,
    EntryKind,
    EntryState,
    File,
    Version,
)
from toolcrib.core.paths import WorkspacePath
from toolcrib.storage.blobs import digest
from toolcrib.workspace.fs.mount_reader import AccessDenied
from toolcrib.workspace.fs.mount_writer import MountWriter
from toolcrib.workspace.text.content import decode_content, file_state


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
        try:
            return disk_matches_state(disk, file.state, node)
        except AccessDenied:
            # Its version has a mode that lets nobody read it. Then the same stat result must be enough.
            return True
    return disk_matches_state(disk, file.state, node)


def disk_matches_state(disk: MountWriter, state: EntryState, node: DiskEntry | None) -> bool:
    """Whether the disk has a state, compared by content where there is any."""
    if node is None or node.kind is not state.kind:
        return False
    if state.kind is EntryKind.LINK:
        return node.target == state.link_target
    if node.mode != state.mode:
        return False
    if state.kind is EntryKind.FOLDER:
        return True
    if node.fingerprint.size != state.size:
        return False
    if state.is_untracked:
        # The content exists only on disk. If it changed, it is still kept when it is displaced.
        return is_same_inode(state, node)
    body, _ = disk.read(state.path, limit=MOST_BYTES)
    return digest(body) == state.sha256


def is_same_inode(state: EntryState, node: DiskEntry | None) -> bool:
    """Whether a disk entry is the very file or folder that an untracked state describes."""
    return node is not None and node.kind is state.kind and node.identity == state.inode


def untracked_state(path: WorkspacePath, node: DiskEntry, *, size: int | None = None) -> EntryState:
    """Build the state of a file, or of a whole folder, whose content the history does not store."""
    assert node.kind in (EntryKind.FILE, EntryKind.FOLDER)
    return EntryState(
        path=path,
        kind=node.kind,
        mode=node.mode,
        size=node.fingerprint.size if size is None else size,
        content_kind=ContentKind.BINARY,
        trash_id=uuid4(),
        inode=node.identity,
    )


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
        if node.target is None or not node.target.isprintable():
            return _NOTHING
        return EntryState(path, EntryKind.LINK, node.mode, link_target=node.target), None, node
    if node.fingerprint.size > MOST_BYTES:
        return untracked_state(path, node), None, node
    body, node = disk.read(path, limit=MOST_BYTES)
    return observed_state(path, body, node.mode, known), body, node


def observed_state(path: WorkspacePath, body: bytes, mode: int, known: EntryState | None) -> EntryState:
    """Build the state of a file that another program wrote. JSON that it made invalid becomes text."""
    state = file_state(path, body, mode=mode, content=known.content_kind if known else ContentKind.TEXT)
    if state.content_kind is ContentKind.JSON and isinstance(decode_content(body, ContentKind.JSON), str):
        return replace(state, content_kind=ContentKind.TEXT)
    return state


def observed_whole(disk: MountWriter, path: WorkspacePath) -> tuple[EntryState | None, DiskEntry | None]:
    """Read what is on disk as an untracked state; a folder with everything in it. A link is all state, no content."""
    node = disk.stat(path)
    if node is None or node.kind not in (EntryKind.FILE, EntryKind.FOLDER):
        state, _, node = observe_entry(disk, path, None)
        return state, node
    size = None if node.kind is EntryKind.FILE else size_below(disk, path)
    return untracked_state(path, node, size=size), node


def _folder(path: WorkspacePath, node: DiskEntry, known: EntryState | None) -> EntryState:
    state = EntryState(path, EntryKind.FOLDER, node.mode)
    # A folder recorded as a whole stays so: a stat does not reveal its content.
    if known is None or not known.is_untracked:
        return state
    return replace(state, size=known.size, trash_id=known.trash_id, inode=known.inode)


def size_below(disk: MountWriter, folder: WorkspacePath) -> int:
    """Return the total size of all files in a folder, at any depth."""
    nodes = (disk.stat(path) for path, entry in disk.walk(folder) if entry.kind is EntryKind.FILE)
    return sum(node.fingerprint.size for node in nodes if node is not None)
