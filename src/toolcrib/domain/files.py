"""Files, folders and links as the history sees them: states, versions and what the disk was seen to hold."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from toolcrib.domain.ids import AgentId, CallId, ChangeSetId, FileId, RunId, UserId, VersionId
from toolcrib.domain.places import Place


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


class NodeKind(StrEnum):
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
class NodeState:
    """Everything a version fixes about a node: where it is, what it is, what it holds."""

    place: Place
    kind: NodeKind
    mode: int
    sha256: bytes | None = None
    size: int = 0
    lines: int | None = None
    content: ContentKind = ContentKind.TEXT
    target: str | None = None

    def holds_same_as(self, other: "NodeState") -> bool:
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
    seen_ns: int

    @property
    def values(self) -> tuple[int, int, int, int, int]:
        return (self.inode, self.size, self.mtime_ns, self.ctime_ns, self.seen_ns)

    def looks_like(self, now: "Fingerprint") -> bool:
        """Whether ``stat`` says the same of both."""
        return self.values[:-1] == now.values[:-1]

    def proves(self, now: "Fingerprint") -> bool:
        """Whether a node that looks like ``now`` must still hold what it held when this was taken."""
        return self.looks_like(now) and self.ctime_ns + _TICK_NS < self.seen_ns


@dataclass(frozen=True, slots=True)
class File:
    """A file, folder or link that is in the history, at its head version."""

    id: FileId
    type: FileType
    is_virtual: bool
    state: NodeState
    version_id: VersionId
    number: int
    deleted: bool
    # Committed, and not known to be on disk yet; ``base_version_id`` is what the disk held before.
    pending: bool
    base_version_id: VersionId | None
    fingerprint: Fingerprint | None
    created_at: datetime
    updated_at: datetime


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
    state: NodeState
    deleted: bool
    author: AuthorKind
    user_id: UserId | None
    agent_id: AgentId | None
    run_id: RunId | None
    call_id: CallId | None
    created_at: datetime
