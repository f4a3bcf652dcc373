"""Change sets: what a call does to the tree, as data that can be shown, committed and inverted."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from toolcrib.core.files import AuthorKind, EntryState, FileType
from toolcrib.core.ids import (
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
from toolcrib.core.paths import WorkspacePath


class ChangeKind(StrEnum):
    MADE = "made"
    CHANGED = "changed"
    MOVED = "moved"
    DELETED = "deleted"
    TOUCHED = "touched"


@dataclass(frozen=True, slots=True)
class FileChange:
    """One node's step from ``before`` to ``after``.

    ``base`` is the version it was planned on; none means that nothing may stand at the place.
    ``body`` brings new content along; without it the content of ``after`` is already stored.
    """

    file_id: FileId
    version_id: VersionId
    type: FileType
    base: VersionId | None
    before: EntryState | None
    after: EntryState | None
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
    def vacates_path(self) -> bool:
        """Whether the file stands at its old place no more."""
        return self.before is not None and (self.after is None or self.after.place != self.before.place)

    @property
    def paths(self) -> tuple[WorkspacePath, ...]:
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
    changes: tuple[FileChange, ...]
    id: ChangeSetId = field(default_factory=lambda: ChangeSetId(new_id()))

    @property
    def paths(self) -> tuple[WorkspacePath, ...]:
        return tuple(sorted({place for change in self.changes for place in change.paths}))

    @property
    def folders_on_the_way(self) -> frozenset[WorkspacePath]:
        """Folders that are made with something in them: no call names them, what stands in them is what it wants."""
        above = {folder for place in self.paths for folder in place.ancestors}
        made = (change for change in self.changes if change.before is None and change.type is FileType.FOLDER)
        return frozenset(above.intersection(place for change in made for place in change.paths))


# Which calls have been taken back, told from the undos that came after. An undo that was undone counts no more.


@dataclass(frozen=True, slots=True)
class UndoCall:
    """An undo that changed files: its id, and what it was asked to take back."""

    id: CallId
    arguments: Mapping[str, Any]


@dataclass(slots=True)
class UndoneCalls:
    """What stands and what does not. Undos are given the newest first."""

    _calls: dict[str, CallId] = field(default_factory=dict)
    _runs: dict[str, CallId] = field(default_factory=dict)
    _sessions: dict[str, CallId] = field(default_factory=dict)

    @classmethod
    def by(cls, undos: Iterable[UndoCall]) -> "UndoneCalls":
        found = cls()
        for undo in undos:
            if str(undo.id) not in found._calls:
                found._add(undo)
        return found

    def taken_back_by(self, call_id: UUID, *, run_id: UUID | None, session_id: UUID | None) -> CallId | None:
        """The newest undo that took a call back and stands; none if the call stands. An undo is no part of its own."""
        for undo in (
            self._calls.get(str(call_id)),
            self._runs.get(str(run_id)),
            self._sessions.get(str(session_id)),
        ):
            # Ids grow with time: what came after an undo was not taken back by it.
            if undo is not None and undo > call_id:
                return undo
        return None

    def _add(self, undo: UndoCall) -> None:
        for call_id in undo.arguments.get("calls") or ():
            self._calls.setdefault(str(call_id), undo.id)
        for name, known in (("run_id", self._runs), ("session_id", self._sessions)):
            if meant := undo.arguments.get(name):
                known.setdefault(str(meant), undo.id)


def within(undos: Iterable[UndoCall], calls: Collection[UUID], scopes: Collection[UUID]) -> set[CallId]:
    """Those undos, the oldest first, that took back nothing but these calls, these runs and sessions, or each other."""
    theirs = {str(call_id) for call_id in calls}
    whole = {str(scope) for scope in scopes}
    found: set[CallId] = set()
    for undo in undos:
        named = undo.arguments.get("calls") or ()
        scope = undo.arguments.get("run_id") or undo.arguments.get("session_id")
        if scope in whole or (named and theirs.issuperset(map(str, named))):
            found.add(undo.id)
            theirs.add(str(undo.id))
    return found
