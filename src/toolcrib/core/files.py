"""Files, folders and links in the history: states, versions and fingerprints."""

import stat
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from os import stat_result
from typing import Self
from uuid import UUID

from toolcrib.core.ids import AgentId, CallId, ChangeSetId, FileId, RunId, UserId, VersionId
from toolcrib.core.paths import WorkspacePath


class FileType(StrEnum):
    """The purpose of a file, chosen by its author and independent of its bytes."""

    DOCUMENT = "document"
    FOLDER = "folder"
    CANVAS = "canvas"
    CHAT = "chat"
    WHITEBOARD = "whiteboard"
    AGENT = "agent"
    SKILL = "skill"
    PLAN = "plan"


class EntryKind(StrEnum):
    """What is on disk."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"


class ContentKind(StrEnum):
    """How a file's bytes are shown: as text, as a JSON value, or not at all."""

    TEXT = "text"
    JSON = "json"
    BINARY = "binary"


FILE_MODE = 0o644
FOLDER_MODE = 0o755


@dataclass(frozen=True, slots=True)
class EntryState:
    """Everything that a version records about an entry: path, kind, mode and content."""

    path: WorkspacePath
    kind: EntryKind
    mode: int
    sha256: bytes | None = None
    size: int = 0
    line_count: int | None = None
    content_kind: ContentKind = ContentKind.TEXT
    link_target: str | None = None
    # Of untracked content, which the history does not store: its id once it is in the trash, and its identity, which a
    # rename keeps.
    trash_id: UUID | None = None
    inode: int | None = None
    # In a proposed change: the hash of untracked content, as a person saw it.
    unkept_sha256: bytes | None = None

    @property
    def is_untracked(self) -> bool:
        """Whether the history does not store the content, because it is ignored or too large."""
        return self.trash_id is not None

    def holds_same_as(self, other: "EntryState") -> bool:
        """Whether bytes, mode and kind are the same. The path may differ."""
        return self._held == other._held

    @property
    def _held(self) -> tuple[object, ...]:
        return (self.kind, self.mode, self.sha256, self.link_target, self.trash_id)


# A change this soon after the stat could have the same timestamps (a kernel tick is up to 10 ms).
_TICK_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The stat result of an entry when it last had a known version."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    checked_ns: int

    @property
    def values(self) -> tuple[int, int, int, int, int]:
        return (self.inode, self.size, self.mtime_ns, self.ctime_ns, self.checked_ns)

    def matches(self, now: "Fingerprint") -> bool:
        """Whether both stat results are the same."""
        return self.values[:-1] == now.values[:-1]

    def is_proof_of(self, now: "Fingerprint") -> bool:
        """Whether an entry that looks like ``now`` certainly has the same content as when this was taken."""
        return self.matches(now) and self.ctime_ns + _TICK_NS < self.checked_ns


@dataclass(frozen=True, slots=True)
class DirEntry:
    """A name in a folder. ``kind`` is ``None`` for a special file: a FIFO, a socket or a device."""

    name: str
    kind: EntryKind | None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS = {stat.S_IFREG: EntryKind.FILE, stat.S_IFDIR: EntryKind.FOLDER, stat.S_IFLNK: EntryKind.LINK}
_BIGGEST = 2**63 - 1
# Spreads a time over all bits, so that it does not cancel the bits of an inode.
_ODD = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class DiskEntry:
    """The entry at a path on disk. ``kind`` is ``None`` for a special file; ``target`` is where a link points."""

    kind: EntryKind | None
    mode: int
    fingerprint: Fingerprint
    links: int
    target: str | None = None
    # When it was created, where the file system knows. An inode is used again, at another time.
    born_ns: int | None = None

    @classmethod
    def from_stat(
        cls, seen: stat_result, *, seen_ns: int, target: str | None = None, born_ns: int | None = None
    ) -> Self:
        """Convert a stat result. ``seen_ns`` is the time just before the stat call."""
        return cls(
            kind=_KINDS.get(stat.S_IFMT(seen.st_mode)),
            mode=seen.st_mode & 0o777,
            fingerprint=Fingerprint(
                # The database stores signed 64-bit numbers.
                inode=seen.st_ino if seen.st_ino <= _BIGGEST else seen.st_ino - 2**64,
                size=seen.st_size,
                mtime_ns=_clamped(seen.st_mtime_ns),
                ctime_ns=_clamped(seen.st_ctime_ns),
                checked_ns=seen_ns,
            ),
            links=seen.st_nlink,
            target=target,
            born_ns=born_ns,
        )

    @property
    def identity(self) -> int:
        """A number that no other entry has had at this place. A rename keeps it."""
        inode = self.fingerprint.inode
        return inode if self.born_ns is None else (inode ^ (self.born_ns * _ODD)) & _BIGGEST

    @property
    def mtime(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.fingerprint.mtime_ns // 1000)


def _clamped(time_ns: int) -> int:
    """Clamp a timestamp.

    Files can be dated past 2262, where nanoseconds overflow; their ctime still identifies them.
    """
    return max(-_BIGGEST, min(time_ns, _BIGGEST))


@dataclass(frozen=True, slots=True)
class File:
    """A file, folder or link of the history at its head version, or a virtual file, which has no versions."""

    id: FileId
    type: FileType
    state: EntryState
    version_id: VersionId
    version_number: int
    deleted: bool
    # Committed, but not known to be on disk yet; ``base_version_id`` is what the disk had before.
    pending: bool
    base_version_id: VersionId | None
    fingerprint: Fingerprint | None
    created_at: datetime
    updated_at: datetime
    # A chat, an agent or a folder of them: derived from its own rows, neither in the history nor on disk.
    is_virtual: bool = False
    # A name for people, if it differs from the one in the path.
    display_name: str | None = None

    def differs_by_stat(self, node: DiskEntry | None) -> bool:
        """Whether what is on disk may differ from the history, judged without reading it."""
        if node is None or node.kind is not self.state.kind:
            return True
        if node.kind is EntryKind.LINK:
            return node.target != self.state.link_target
        if node.mode != self.state.mode:
            return True
        return node.kind is EntryKind.FILE and not (self.fingerprint and self.fingerprint.matches(node.fingerprint))


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
        if self.path.path == "/":
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


class AuthorKind(StrEnum):
    USER = "user"
    AGENT = "agent"
    EXTERNAL = "external"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a file."""

    id: VersionId
    file_id: FileId
    version_number: int
    change_set_id: ChangeSetId
    parent_id: VersionId | None
    state: EntryState
    deleted: bool
    author_kind: AuthorKind
    user_id: UserId | None
    agent_id: AgentId | None
    run_id: RunId | None
    call_id: CallId | None
    created_at: datetime
