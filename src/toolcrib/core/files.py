"""Files, folders and links in the history: states, versions and fingerprints."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

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
    target: str | None = None
    # In a proposed change: the hash of untracked content, as a person saw it.
    unkept_sha256: bytes | None = None

    def holds_same_as(self, other: "EntryState") -> bool:
        """Whether bytes, mode and kind are the same. The path may differ."""
        return (self.kind, self.mode, self.sha256, self.target) == (
            other.kind,
            other.mode,
            other.sha256,
            other.target,
        )


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
