"""Change sets: what a call does to the tree, as data that can be shown, committed and reverted."""

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
    CREATED = "created"
    MODIFIED = "modified"
    MOVED = "moved"
    DELETED = "deleted"
    TOUCHED = "touched"


@dataclass(frozen=True, slots=True)
class FileChange:
    """The change of one file from ``before`` to ``after``.

    Attributes:
        base: The version it was planned on. ``None`` means that the path must be free.
        body: New content. Without it, the content of ``after`` is already stored.
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
        """The kind of the change. Same path, mode and content means that the file was only touched."""
        if self.before is None:
            return ChangeKind.CREATED
        if self.after is None:
            return ChangeKind.DELETED
        if self.before.path != self.after.path:
            return ChangeKind.MOVED
        return ChangeKind.TOUCHED if self.before.holds_same_as(self.after) else ChangeKind.MODIFIED

    @property
    def vacates_path(self) -> bool:
        """Whether the file leaves its path."""
        return self.before is not None and (self.after is None or self.after.path != self.before.path)

    @property
    def paths(self) -> tuple[WorkspacePath, ...]:
        """The affected paths: one, or two for a move."""
        found = {state.path for state in (self.before, self.after) if state is not None}
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a change set."""

    kind: AuthorKind
    user_id: UserId | None = None
    agent_id: AgentId | None = None
    session_id: SessionId | None = None
    run_id: RunId | None = None
    call_id: CallId | None = None


EXTERNAL = Author(AuthorKind.EXTERNAL)


class ChangeSetState(StrEnum):
    """``proposed`` sets wait for a decision; ``committed`` ones are in the history."""

    PROPOSED = "proposed"
    COMMITTED = "committed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Everything that one call does to the tree. It is committed atomically."""

    author: Author
    changes: tuple[FileChange, ...]
    id: ChangeSetId = field(default_factory=lambda: ChangeSetId(new_id()))

    @property
    def paths(self) -> tuple[WorkspacePath, ...]:
        return tuple(sorted({path for change in self.changes for path in change.paths}))

    @property
    def folders_on_the_way(self) -> frozenset[WorkspacePath]:
        """Created folders with content. The call does not name them; it needs them for the content."""
        above = {folder for path in self.paths for folder in path.ancestors}
        made = (change for change in self.changes if change.before is None and change.type is FileType.FOLDER)
        return frozenset(above.intersection(path for change in made for path in change.paths))


@dataclass(frozen=True, slots=True)
class UndoCall:
    """An undo that changed files: its id, and the arguments that say what it reverts."""

    id: CallId
    arguments: Mapping[str, Any]


@dataclass(slots=True)
class UndoneCalls:
    """Which calls have been undone. An undo that was itself undone does not count."""

    _calls: dict[str, CallId] = field(default_factory=dict)
    _runs: dict[str, CallId] = field(default_factory=dict)
    _sessions: dict[str, CallId] = field(default_factory=dict)

    @classmethod
    def by(cls, undos: Iterable[UndoCall]) -> "UndoneCalls":
        """Compute from the undos, given newest first."""
        found = cls()
        for undo in undos:
            if str(undo.id) not in found._calls:
                found._add(undo)
        return found

    def taken_back_by(self, call_id: UUID, *, run_id: UUID | None, session_id: UUID | None) -> CallId | None:
        """Return the newest effective undo of a call, or ``None``. An undo never covers itself."""
        for undo in (
            self._calls.get(str(call_id)),
            self._runs.get(str(run_id)),
            self._sessions.get(str(session_id)),
        ):
            # Ids grow with time: an undo does not cover later calls.
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
    """Return those undos, given oldest first, that revert nothing but these calls, runs and sessions, or each other."""
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
