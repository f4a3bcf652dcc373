"""Finds what can be undone or redone in a workspace, by its audit log. The `undo` tool does the work."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.client import AuditRecordData
from toolcrib.core.errors import NotFound
from toolcrib.sdk.workspace_location import WorkspaceLocation

_PAGE = 200
_MOST_RECORDS = 5_000


@dataclass(frozen=True, slots=True)
class UndoTarget:
    """What to undo, as the arguments of `undo`."""

    arguments: Mapping[str, Any]


@dataclass(slots=True)
class _UndoneRecords:
    """What the undos met so far have reverted, going back in time."""

    calls: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)

    def covers(self, record: AuditRecordData) -> bool:
        """Return whether the record's change was undone."""
        return (
            str(record.call_id) in self.calls
            or str(record.run_id) in self.runs
            or str(record.session_id) in self.sessions
        )

    def add(self, undo: AuditRecordData) -> None:
        """Add what an undo reverted."""
        self.calls.update(map(str, undo.arguments.get("calls") or ()))
        self.runs.update(str(undo.arguments[name]) for name in ("run_id",) if undo.arguments.get(name))
        self.sessions.update(str(undo.arguments[name]) for name in ("session_id",) if undo.arguments.get(name))


def last_undo_target(location: WorkspaceLocation, *, whole: str = "run") -> UndoTarget:
    """Return the newest change of files that is still in effect: its run or session if that is ``whole``, or its call.

    Raises:
        NotFound: There is nothing to undo.
    """
    for record in _undoable_records(location):
        if record.tool != "undo":
            return UndoTarget(_arguments(record, whole))
    raise NotFound("Nothing to undo: no call has changed a file.")


def last_undo(location: WorkspaceLocation) -> UndoTarget:
    """Return the newest undo that is still in effect, if nothing has changed since.

    Raises:
        NotFound: There is nothing to redo.
    """
    records = list(records_of(location))
    undos = {str(record.call_id) for record in records if record.tool == "undo"}
    for record in _undoable_records(location):
        if record.tool != "undo":
            break
        if not undos & set(map(str, record.arguments.get("calls") or ())):
            return UndoTarget({"calls": [str(record.call_id)]})
    raise NotFound("Nothing to redo: the last change was not an undo.")


def run_undo(
    location: WorkspaceLocation, target: UndoTarget, *, dry_run: bool = False, force: bool = False
) -> dict[str, Any]:
    """Undo it, or return what undoing would do."""
    arguments = {**target.arguments, "dry_run": dry_run, "force": force}
    found: dict[str, Any] = location.client.call(location.id, "undo", arguments)
    return found


def records_of(location: WorkspaceLocation) -> Iterator[AuditRecordData]:
    """Yield the audit records that changed files, newest first."""
    before, read = None, 0
    while read < _MOST_RECORDS:
        page = location.client.audit(location.id, limit=_PAGE, before=before)
        yield from (record for record in page if record.files and record.outcome == "done")
        if len(page) < _PAGE:
            return
        before, read = page[-1].position, read + len(page)


def _undoable_records(location: WorkspaceLocation) -> Iterator[AuditRecordData]:
    undone = _UndoneRecords()
    for record in records_of(location):
        if undone.covers(record):
            continue
        if record.tool == "undo":
            undone.add(record)
        yield record


def _arguments(record: AuditRecordData, whole: str) -> dict[str, Any]:
    if whole == "session" and record.session_id is not None:
        return {"session_id": str(record.session_id)}
    if whole == "run" and record.run_id is not None:
        return {"run_id": str(record.run_id)}
    return {"calls": [str(record.call_id)]}
