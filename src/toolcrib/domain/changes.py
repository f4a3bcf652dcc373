"""Change sets: what a call does to the tree, as data that can be shown, committed and inverted."""

from dataclasses import dataclass, field
from enum import StrEnum

from toolcrib.domain.files import AuthorKind, FileType, NodeState
from toolcrib.domain.ids import (
    AgentId,
    CallId,
    ChangeSetId,
    FileId,
    RunId,
    SessionId,
    UserId,
    VersionId,
    new_id,
)
from toolcrib.domain.places import Place


class ChangeKind(StrEnum):
    MADE = "made"
    CHANGED = "changed"
    MOVED = "moved"
    DELETED = "deleted"
    TOUCHED = "touched"


@dataclass(frozen=True, slots=True)
class Change:
    """One node's step from ``before`` to ``after``.

    ``base`` is the version it was planned on; none means that nothing may stand at the place.
    ``body`` brings new content along; without it the content of ``after`` is already stored.
    """

    file_id: FileId
    version_id: VersionId
    type: FileType
    base: VersionId | None
    before: NodeState | None
    after: NodeState | None
    body: bytes | None = field(default=None, repr=False)

    @property
    def kind(self) -> ChangeKind:
        if self.before is None:
            return ChangeKind.MADE
        if self.after is None:
            return ChangeKind.DELETED
        if self.before.place != self.after.place:
            return ChangeKind.MOVED
        return ChangeKind.TOUCHED if self.before.holds_same_as(self.after) else ChangeKind.CHANGED

    @property
    def leaves(self) -> bool:
        """Whether the file stands at its old place no more."""
        return self.before is not None and (self.after is None or self.after.place != self.before.place)

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the tree is touched: one place, or two for a move."""
        found = {state.place for state in (self.before, self.after) if state is not None}
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class Author:
    """Who is answerable for a change set."""

    kind: AuthorKind
    user_id: UserId | None = None
    agent_id: AgentId | None = None
    session_id: SessionId | None = None
    run_id: RunId | None = None
    call_id: CallId | None = None


EXTERNAL = Author(AuthorKind.EXTERNAL)


class ChangeSetState(StrEnum):
    """``proposed`` sets wait for a decision; ``committed`` ones are history."""

    PROPOSED = "proposed"
    COMMITTED = "committed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """All that one call does to the tree. It is committed whole or not at all."""

    author: Author
    changes: tuple[Change, ...]
    id: ChangeSetId = field(default_factory=lambda: ChangeSetId(new_id()))

    @property
    def places(self) -> tuple[Place, ...]:
        return tuple(sorted({place for change in self.changes for place in change.places}))
