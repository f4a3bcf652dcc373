"""Change sets: what a call does to the tree, as data that can be shown, committed and reverted."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
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
from toolcrib.core.paths import WorkspacePath, folders_above, in_order


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
        if self.moves:
            return ChangeKind.MOVED
        return ChangeKind.TOUCHED if self.before.holds_same_as(self.after) else ChangeKind.MODIFIED

    @property
    def states(self) -> tuple[EntryState, ...]:
        return tuple(state for state in (self.before, self.after) if state is not None)

    @property
    def moves(self) -> bool:
        return self.before is not None and self.after is not None and self.before.path != self.after.path

    @property
    def vacates_path(self) -> bool:
        """Whether the file leaves its path."""
        return self.moves or (self.before is not None and self.after is None)

    @property
    def trashed(self) -> EntryState | None:
        """The untracked content that the change moves into the trash, if any."""
        kept = self.after.trash_id if self.after else None
        return self.before if self.before and self.before.trash_id not in (None, kept) else None

    @property
    def restored(self) -> EntryState | None:
        """The untracked content that the change moves out of the trash, if any."""
        had = self.before.trash_id if self.before else None
        return self.after if self.after and self.after.trash_id not in (None, had) else None

    @property
    def paths(self) -> tuple[WorkspacePath, ...]:
        """The affected paths: one, or two for a move."""
        return tuple(sorted({state.path for state in self.states}))


@dataclass(frozen=True, slots=True)
class TrashedFile:
    """Untracked content in the trash: the file that it belongs to, and the state that the file had or will have."""

    file_id: FileId
    state: EntryState

    @property
    def trash_id(self) -> UUID:
        assert self.state.trash_id is not None
        return self.state.trash_id


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
SYSTEM = Author(AuthorKind.SYSTEM)


class ChangeSetState(StrEnum):
    """``proposed`` sets wait for a decision; ``committed`` ones are in the history."""

    PROPOSED = "proposed"
    COMMITTED = "committed"
    DROPPED = "dropped"


# Without slots: what is derived from the changes is computed once, however often a loop over paths asks for it.
@dataclass(frozen=True)
class ChangeSet:
    """Everything that one call does to the tree. It is committed atomically."""

    author: Author
    changes: tuple[FileChange, ...]
    id: ChangeSetId = field(default_factory=lambda: ChangeSetId(new_id()))

    @cached_property
    def paths(self) -> tuple[WorkspacePath, ...]:
        return tuple(in_order(state.path for change in self.changes for state in change.states))

    @cached_property
    def trashed(self) -> tuple[TrashedFile, ...]:
        """What the set moves into the trash."""
        return tuple(TrashedFile(change.file_id, state) for change in self.changes if (state := change.trashed))

    @cached_property
    def restored(self) -> tuple[TrashedFile, ...]:
        """What the set moves out of the trash."""
        return tuple(TrashedFile(change.file_id, state) for change in self.changes if (state := change.restored))

    @cached_property
    def folders_on_the_way(self) -> frozenset[WorkspacePath]:
        """Created folders with content. The call does not name them; it needs them for the content."""
        made = {
            path
            for change in self.changes
            if change.before is None and change.type is FileType.FOLDER
            for path in change.paths
        }
        return frozenset(made.intersection(folders_above(self.paths))) if made else frozenset()


class LastUndoable(StrEnum):
    """What the newest change that is still in effect belongs to, or the newest undo, whose undo is a redo."""

    CALL = "call"
    RUN = "run"
    SESSION = "session"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class UndoCall:
    """An undo that changed files: its id, and the ids of what it reverted: ``calls``, ``run_id`` or ``session_id``."""

    id: CallId
    reverted: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UndoScope:
    """Selects calls: by their ids, or all of a run or a session; and those of the child runs that they started."""

    calls: tuple[UUID, ...] = ()
    run_id: UUID | None = None
    session_id: UUID | None = None
    child_runs: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangingCall:
    """A call that changed files. ``undo`` is set if it was an undo.

    Of a call in a child run, ``run_id`` and ``session_id`` are those that people see, and ``within`` are the ids of all
    calls, runs and sessions that it belongs to.
    """

    id: CallId
    run_id: RunId | None
    session_id: SessionId | None
    undo: UndoCall | None = None
    within: frozenset[UUID | None] = frozenset()


@dataclass(slots=True)
class UndoneCalls:
    """Which calls have been undone. An undo that was itself undone does not count."""

    # By the id of a call, a run or a session.
    _undos: dict[str, CallId] = field(default_factory=dict)

    @classmethod
    def by(cls, undos: Iterable[UndoCall]) -> "UndoneCalls":
        """Compute from the undos, given newest first."""
        found = cls()
        for undo in undos:
            if str(undo.id) not in found._undos:
                found._add(undo)
        return found

    def taken_back_by(self, call_id: UUID, within: Iterable[UUID | None]) -> CallId | None:
        """Return the newest effective undo of a call, or ``None``. An undo never covers itself.

        Args:
            within: The runs and sessions that the call belongs to, and the calls that started them.
        """
        for id_ in (call_id, *within):
            undo = self._undos.get(str(id_))
            # Ids grow with time: an undo does not cover later calls.
            if undo is not None and undo > call_id:
                return undo
        return None

    def _add(self, undo: UndoCall) -> None:
        named = (*(undo.reverted.get("calls") or ()), undo.reverted.get("run_id"), undo.reverted.get("session_id"))
        for id_ in named:
            if id_ is not None:
                self._undos.setdefault(str(id_), undo.id)


def last_undoable(calls: Sequence[ChangingCall], last: LastUndoable) -> UndoScope | None:
    """Return what an undo of the last call, run or session, or of the last undo, reverts. None if there is nothing.

    ``calls`` are given newest first. A call outside runs or sessions is undone by itself. An undo can be undone as long
    as nothing has changed since.
    """
    undos = {str(call.id) for call in calls if call.undo}
    undone = UndoneCalls.by(call.undo for call in calls if call.undo)
    for call in calls:
        if undone.taken_back_by(call.id, (call.run_id, call.session_id, *call.within)) is not None:
            continue
        if call.undo is None and last is LastUndoable.UNDO:
            return None
        if call.undo is None and last is LastUndoable.SESSION and call.session_id is not None:
            return UndoScope(session_id=call.session_id)
        if call.undo is None and last is LastUndoable.RUN and call.run_id is not None:
            return UndoScope(run_id=call.run_id)
        is_redo = call.undo is not None and not undos.isdisjoint(map(str, call.undo.reverted.get("calls") or ()))
        if call.undo is None or (last is LastUndoable.UNDO and not is_redo):
            return UndoScope(calls=(call.id,))
    return None


def within(undos: Iterable[UndoCall], calls: Collection[UUID], scopes: Collection[UUID]) -> set[CallId]:
    """Return those undos, given oldest first, that revert nothing but these calls, runs and sessions, or each other."""
    theirs = {str(call_id) for call_id in calls}
    whole = {str(scope) for scope in scopes}
    found: set[CallId] = set()
    for undo in undos:
        named = undo.reverted.get("calls") or ()
        scope = undo.reverted.get("run_id") or undo.reverted.get("session_id")
        if scope in whole or (named and theirs.issuperset(map(str, named))):
            found.add(undo.id)
            theirs.add(str(undo.id))
    return found
