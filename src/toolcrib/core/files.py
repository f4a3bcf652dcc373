"""Files, folders and links as the history sees them: states, versions and what the disk was seen to hold."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from toolcrib.core.ids import AgentId, CallId, ChangeSetId, FileId, RunId, UserId, VersionId
from toolcrib.core.paths import WorkspacePath


class FileType(StrEnum):
    """What a file is for; chosen by its author, not by its bytes."""

    DOCUMENT = "document"
    FOLDER = "folder"
    CANVAS = "canvas"
    CHAT = "chat"
    WHITEBOARD = "whiteboard"
    AGENT = "agent"
    SKILL = "skill"
    PLAN = "plan"


class EntryKind(StrEnum):
    """What stands on disk."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"


class ContentKind(StrEnum):
    """How a file's bytes are shown: as text, as the JSON value they spell, or not at all."""

    TEXT = "text"
    JSON = "json"
    BINARY = "binary"


FILE_MODE = 0o644
FOLDER_MODE = 0o755


@dataclass(frozen=True, slots=True)
class EntryState:
    """Everything a version fixes about a node: where it is, what it is, what it holds."""

    place: WorkspacePath
    kind: EntryKind
    mode: int
    sha256: bytes | None = None
    size: int = 0
    lines: int | None = None
    content: ContentKind = ContentKind.TEXT
    target: str | None = None
    # In a proposed change: the hash of a content that the history does not keep, as a person was shown it.
    unkept_sha256: bytes | None = None

    def holds_same_as(self, other: "EntryState") -> bool:
        """Same bytes, mode and kind; the place may differ."""
        return (self.kind, self.mode, self.sha256, self.target) == (
            other.kind,
            other.mode,
            other.sha256,
            other.target,
        )


# A change within this time of our looking could bear the same timestamps (a kernel tick is up to 10 ms).
_TICK_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What ``stat`` said of a node when it was last seen to hold a known version."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    checked_ns: int

    @property
    def values(self) -> tuple[int, int, int, int, int]:
        return (self.inode, self.size, self.mtime_ns, self.ctime_ns, self.checked_ns)

    def matches(self, now: "Fingerprint") -> bool:
        """Whether ``stat`` says the same of both."""
        return self.values[:-1] == now.values[:-1]

    def is_proof_of(self, now: "Fingerprint") -> bool:
        """Whether a node that looks like ``now`` must still hold what it held when this was taken."""
        return self.matches(now) and self.ctime_ns + _TICK_NS < self.checked_ns


@dataclass(frozen=True, slots=True)
class File:
    """A file, folder or link that is in the history, at its head version; or a virtual one, which has no versions."""

    id: FileId
    type: FileType
    state: EntryState
    version_id: VersionId
    number: int
    deleted: bool
    # Committed, and not known to be on disk yet; ``base_version_id`` is what the disk held before.
    pending: bool
    base_version_id: VersionId | None
    fingerprint: Fingerprint | None
    created_at: datetime
    updated_at: datetime
    # A chat, an agent or a folder of them: derived from its own rows, neither in the history nor on disk.
    is_virtual: bool = False
    # A name for people, if it is not the one in the path.
    display_name: str | None = None


class AuthorKind(StrEnum):
    USER = "user"
    AGENT = "agent"
    EXTERNAL = "external"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Version:
    """One entry of a file's history."""

    id: VersionId
    file_id: FileId
    number: int
    change_set_id: ChangeSetId
    previous_id: VersionId | None
    state: EntryState
    deleted: bool
    author: AuthorKind
    user_id: UserId | None
    agent_id: AgentId | None
    run_id: RunId | None
    call_id: CallId | None
    created_at: datetime
