"""Which calls have been taken back, told from the undos that came after. An undo that was undone counts no more."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from toolcrib.domain.ids import CallId


@dataclass(frozen=True, slots=True)
class UndoCall:
    """An undo that changed files: its id, and what it was asked to take back."""

    id: CallId
    arguments: Mapping[str, Any]


@dataclass(slots=True)
class Undone:
    """What stands and what does not. Undos are given the newest first."""

    _calls: dict[str, CallId] = field(default_factory=dict)
    _runs: dict[str, CallId] = field(default_factory=dict)
    _sessions: dict[str, CallId] = field(default_factory=dict)

    @classmethod
    def by(cls, undos: Iterable[UndoCall]) -> "Undone":
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
