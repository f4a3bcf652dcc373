"""What stands at a place, in the history and on disk, and whether the two agree. Looks at nothing itself."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never

from toolcrib.domain.callers import Caller
from toolcrib.domain.files import AuthorKind, File, FileType, NodeKind, Version
from toolcrib.domain.places import Place
from toolcrib.storage.files import Seen
from toolcrib.workspace.nodes import Node


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands at a place: in the history, on disk, in both or in neither."""

    place: Place
    file: File | None
    node: Node | None

    @property
    def exists(self) -> bool:
        return self.file is not None or (self.node is not None and self.node.kind is not None)

    @property
    def kind(self) -> NodeKind | None:
        if self.file is not None:
            return self.file.state.kind
        if self.place.is_root:
            return NodeKind.FOLDER
        return self.node.kind if self.node else None

    @property
    def is_folder(self) -> bool:
        return self.kind is NodeKind.FOLDER

    @property
    def is_special(self) -> bool:
        """A FIFO, socket or device: neither readable nor replaceable, and in no listing."""
        return self.node is not None and self.node.kind is None

    @property
    def synced(self) -> bool:
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
    def updated_at(self) -> datetime:
        if self.file is not None:
            return self.file.updated_at
        assert self.node is not None
        return self.node.mtime


@dataclass(frozen=True, slots=True)
class Reading:
    """A file's whole content, and where it stands."""

    standing: Standing
    body: bytes
    sha256: bytes


def author_in_words(version: Version, caller: Caller) -> str:
    """Who made a version, and how long ago, in words."""
    match version.author:
        case AuthorKind.AGENT:
            who = f"run {version.run_id}" if version.run_id else f"agent {version.agent_id}"
        case AuthorKind.USER:
            who = "you" if version.user_id == caller.user_id and not caller.is_agent else f"user {version.user_id}"
        case AuthorKind.EXTERNAL:
            who = "a program outside Toolcrib"
        case AuthorKind.SYSTEM:
            who = "the system"
        case _:
            assert_never(version.author)
    seconds = max(0, int((datetime.now(UTC) - version.created_at).total_seconds()))
    return f"{who}, {seconds} s ago"


def is_stale(standing: Standing, seen: Seen, asked_about: set[Place]) -> bool:
    """Whether history and disk must be brought together before anyone is told."""
    file, node = standing.file, standing.node
    if file is None:
        # It may be the old end of a move, or a deletion, that a crash left on disk: worth one question.
        return seen.any_pending and node is not None and standing.place not in asked_about
    if file.is_virtual:
        return False
    return file.pending or looks_different(file, node)


def looks_different(file: File, node: Node | None) -> bool:
    """Whether what stands on disk may not be what the history says, told without reading it."""
    if node is None or node.kind is not file.state.kind:
        return True
    if node.kind is NodeKind.LINK:
        return node.target != file.state.target
    if node.mode != file.state.mode:
        return True
    return node.kind is NodeKind.FILE and not (file.fingerprint and file.fingerprint.looks_like(node.fingerprint))
