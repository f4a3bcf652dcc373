"""Show and undo what calls, a run or a session did to files."""

from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Annotated, Final, Literal, NotRequired, Self
from uuid import UUID

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from toolcrib.core.change_sets import LastUndoable, UndoScope
from toolcrib.core.errors import NotFound, ProtectedPath, TooCostly
from toolcrib.core.files import EntryKind, Version
from toolcrib.core.ids import CallId
from toolcrib.core.tool_calls import Danger
from toolcrib.storage.file_history import FileTimeline
from toolcrib.tools.context import ToolContext
from toolcrib.tools.history.file_versions import VersionEntry, version_entry
from toolcrib.tools.tool import ToolArguments, built_in, no_effects, no_time_limit
from toolcrib.tools.tool_results import IdText, ToolResult
from toolcrib.workspace.changes.undo_plan import FileRevert, UndoConflict, UndoPlan, draft_undo, plan_undo
from toolcrib.workspace.text.content import is_binary
from toolcrib.workspace.text.text_diff import MOST_BYTES, TextDiff
from toolcrib.workspace.text.worker_calls import compared

# The most files that a result lists.
MOST_LISTED: Final = 1_000
# How many files the note to the model names.
_MOST_NAMED: Final = 20
# An undo of fewer files takes no time that is worth a line.
_MANY: Final = 1_000
_PACE_SECONDS: Final = 0.25

ChangeWord = Literal["created", "modified", "moved", "deleted"]


class ChangesArguments(ToolArguments):
    calls: list[UUID] = Field(default=[], max_length=1000, description="Ids of the calls.")
    run_id: UUID | None = Field(default=None, description="Id of a run: all its calls.")
    session_id: UUID | None = Field(default=None, description="Id of a session: all its calls.")
    limit: int = Field(default=50, ge=1, le=500, description="Maximum number of files.")

    @model_validator(mode="after")
    def _something_is_meant(self) -> Self:
        if sum(map(bool, (self.calls, self.run_id, self.session_id))) != 1:
            raise PydanticCustomError("changes_of_what", "Give exactly one of calls, run_id and session_id")
        return self


class UndoArguments(ToolArguments):
    calls: list[UUID] = Field(default=[], max_length=1000, description="Ids of the calls to undo.")
    run_id: UUID | None = Field(default=None, description="Undo all calls of this run.")
    session_id: UUID | None = Field(default=None, description="Undo all calls of this session.")
    last: LastUndoable | None = Field(
        default=None,
        description=(
            "Undo the newest change that is still in effect: its call, its whole run or its whole session. "
            "`undo` undoes the last undo, if nothing has changed since."
        ),
    )
    dry_run: bool = Field(default=False, description="Show the changes without applying them.")
    force: bool = Field(default=False, description="Also undo changes to files that others changed since.")

    @model_validator(mode="after")
    def _something_is_meant(self) -> Self:
        if sum(map(bool, (self.calls, self.run_id, self.session_id, self.last))) != 1:
            raise PydanticCustomError("undo_what", "Give exactly one of calls, run_id, session_id and last")
        return self


class ChangedFile(ToolResult):
    path: str
    from_path: str | None
    change: ChangeWord
    kind: EntryKind
    file_id: IdText
    added: NotRequired[Annotated[int | None, Field(default=None)]]
    removed: NotRequired[Annotated[int | None, Field(default=None)]]
    diff: NotRequired[
        Annotated[
            str | None,
            Field(
                default=None,
                description="Unified diff. Absent for folders, protected paths, and content that is binary or too "
                "large.",
            ),
        ]
    ]


class ChangesResult(ToolResult):
    """What calls, a run or a session changed, per file: from before the first change to after the last one."""

    changes: list[ChangedFile]
    total: int


@built_in("history", effects=no_effects)
async def changes(arguments: ChangesArguments, context: ToolContext) -> ChangesResult:
    """Show the files that calls, a run or a session changed, with a unified diff of each.

    Pass one of `calls`, `run_id` and `session_id`.
    """
    scope = UndoScope(tuple(arguments.calls), arguments.run_id, arguments.session_id)
    histories = await context.history.histories(scope)
    return {
        "changes": [await _changed_file(history, context) for history in histories[: arguments.limit]],
        "total": len(histories),
    }


async def _changed_file(history: FileTimeline, context: ToolContext) -> ChangedFile:
    """Compare the file before the first of these calls with the result of the last."""
    first, after = history.versions[0], next(v for v in reversed(history.versions) if v.id in history.ours)
    before = None if first.id in history.ours or first.deleted else first
    moved = before is not None and not after.deleted and before.state.path != after.state.path
    changed: ChangedFile = {
        "path": after.state.path.display,
        "from_path": before.state.path.display if before is not None and moved else None,
        "change": "deleted" if after.deleted else "created" if before is None else "moved" if moved else "modified",
        "kind": after.state.kind,
        "file_id": str(history.file.id),
    }
    found = await _diff(before, None if after.deleted else after, context)
    if found is None:
        return changed
    return {**changed, "added": found.added, "removed": found.removed, "diff": found.text}


async def _diff(before: Version | None, after: Version | None, context: ToolContext) -> TextDiff | None:
    """Return the diff. ``None`` for folders, protected paths, and content that is not text or too large."""
    try:
        for version in (before, after):
            if version is not None:
                await context.history.version(version.id)
    except ProtectedPath:
        return None
    old, new = await _body(before, context), await _body(after, context)
    if old is None or new is None or is_binary(old) or is_binary(new) or old == new:
        return None
    names = [known.state.path.display for known in (before or after, after or before) if known is not None]
    try:
        return await compared(old, new, (names[0], names[1]))
    except TooCostly:
        return None


async def _body(version: Version | None, context: ToolContext) -> bytes | None:
    if version is None:
        return b""
    if version.state.sha256 is None or version.state.size > MOST_BYTES:
        return None
    return await context.history.body(version)


class RevertedFile(ToolResult):
    path: str
    from_path: str | None
    change: ChangeWord
    kind: EntryKind
    file_id: IdText
    current_version_id: Annotated[IdText, Field(description="The current version. For a deleted file, its deletion.")]
    restored_version_id: Annotated[
        IdText | None, Field(description="The restored version; null if the file did not exist before.")
    ]
    current_hash: str | None
    restored_hash: str | None


class UndoConflictEntry(ToolResult):
    path: str
    reason: str
    ours: VersionEntry
    theirs: VersionEntry | None


class UndoneCallIds(ToolResult):
    calls: NotRequired[Annotated[list[IdText] | None, Field(default=None)]]
    run_id: NotRequired[Annotated[IdText | None, Field(default=None)]]
    session_id: NotRequired[Annotated[IdText | None, Field(default=None)]]


class ReopenedReviewEntry(ToolResult):
    path: str
    file_id: IdText
    session_id: IdText
    expected: Annotated[int, Field(description="Up to which version the file was reviewed.")]
    version_number: Annotated[int, Field(description="Up to which version it is reviewed now; 0 for none.")]


class UndoResult(ToolResult):
    dry_run: bool
    call_id: Annotated[IdText, Field(description="The id of this undo. Undo it to redo the changes.")]
    undone: Annotated[UndoneCallIds, Field(description="What was undone, as arguments of `undo`.")]
    changes: Annotated[list[RevertedFile], Field(description=f"The first {MOST_LISTED:,} files.")]
    total_changes: Annotated[int, Field(description="How many files are changed.")]
    conflicts: Annotated[
        list[UndoConflictEntry],
        Field(description=f"Files that were not changed because of a conflict; the first {MOST_LISTED:,}."),
    ]
    total_conflicts: Annotated[int, Field(description="How many files were not changed because of a conflict.")]
    reopened: Annotated[
        list[ReopenedReviewEntry],
        Field(description="Files that wait for a review again, because a decision about them was undone."),
    ]
    note: Annotated[str, Field(description="What the agent whose changes these were is told with the next message.")]


@built_in("history", danger=Danger.DANGEROUS, effects=no_effects, drafts=True, timeout=no_time_limit)
async def undo(arguments: UndoArguments, context: ToolContext) -> UndoResult:
    """Undo the changes that calls, a run or a session made to files.

    Files that others changed since are reported as conflicts and skipped, unless `force` is set. `dry_run` only shows
    the changes. To redo, undo the undo: pass its `call_id` in `calls`. What an undone review decision kept or reverted
    waits for a review again.
    """
    scope = UndoScope(tuple(arguments.calls), arguments.run_id, arguments.session_id)
    if arguments.last is not None:
        scope = await _last(arguments.last, context)
    # A file that cannot be read is a conflict; it does not keep the others from being undone.
    context.tree.denied = set()
    show = partial(_UndoProgress, context.emit)
    histories = await context.history.histories(scope, show("Checked"))
    # What an agent changed is reviewed by people, and an agent takes none of their decisions back.
    reopened = [] if context.caller.is_agent else await context.history.reopened([CallId(one) for one in scope.calls])
    if not histories and not reopened:
        raise NotFound("These calls changed no file that is still in the history.")
    found = await plan_undo(context.tree, histories, force=arguments.force)
    left_alone = {clash.file.id for clash in found.clashes}
    if not arguments.dry_run:
        await draft_undo(context.tree, context.draft, found, show("Prepared"))
        context.remarks.progress = show("Restored")
        context.remarks.decides = bool(reopened)
    return {
        "dry_run": arguments.dry_run,
        "call_id": str(context.caller.call_id),
        "undone": _undone(scope),
        "changes": [_reverted_file(reversal) for reversal in found.reversals[:MOST_LISTED]],
        "total_changes": len(found.reversals),
        "conflicts": [_conflict(clash) for clash in found.clashes[:MOST_LISTED]],
        "total_conflicts": len(found.clashes),
        "reopened": [
            {
                "path": one.path.display,
                "file_id": str(one.file_id),
                "session_id": str(one.session_id),
                "expected": one.reviewed_to,
                "version_number": one.reopened_from,
            }
            for one in reopened
            if one.file_id not in left_alone
        ],
        "note": _note(found, again=arguments.last is LastUndoable.UNDO),
    }


def _note(found: UndoPlan, *, again: bool) -> str:
    """Return what the model is told: otherwise it goes on as if its changes were still there."""
    changed = _named([(reversal.state or reversal.file.state).path.display for reversal in found.reversals])
    left = _named([clash.file.state.path.display for clash in found.clashes])
    parts = [f"The person has {'redone' if again else 'undone'} changes to {changed or 'no file'}."]
    if left:
        parts.append(f"Left as they are, because of a conflict: {left}.")
    if changed:
        parts.append("Read these files again before you edit them.")
    return " ".join(parts)


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


class _UndoProgress:
    """Emits lines such as "Restored 12,000 of 100,000 files", a few per second; none for an undo of few files."""

    def __init__(self, emit: Callable[[str], None], done: str) -> None:
        self._emit = emit
        self._done = done
        self._due = 0.0

    def __call__(self, count: int, total: int) -> None:
        now = monotonic()
        if total >= _MANY and now >= self._due:
            self._due = now + _PACE_SECONDS
            self._emit(f"{self._done} {count:,} of {total:,} files\n")


async def _last(last: LastUndoable, context: ToolContext) -> UndoScope:
    scope = await context.history.last_undoable(last)
    if scope is None and last is LastUndoable.UNDO:
        raise NotFound("Nothing to redo: the last change was not an undo.")
    if scope is None:
        raise NotFound("Nothing to undo: no call has changed a file.")
    return scope


def _undone(scope: UndoScope) -> UndoneCallIds:
    """Return the arguments that mean the same calls at any time."""
    if scope.calls:
        return {"calls": [str(call_id) for call_id in scope.calls]}
    return {"run_id": str(scope.run_id)} if scope.run_id else {"session_id": str(scope.session_id)}


def _reverted_file(reversal: FileRevert) -> RevertedFile:
    """Describe the revert of a file as a change from its current state."""
    now, then, gone = reversal.file.state, reversal.state, reversal.file.deleted
    moved = then is not None and not gone and then.path != now.path
    return {
        "path": (then or now).path.display,
        "from_path": now.path.display if moved else None,
        "change": "deleted" if then is None else "created" if gone else "moved" if moved else "modified",
        "kind": (then or now).kind,
        "file_id": str(reversal.file.id),
        "current_version_id": str(reversal.file.version_id),
        "restored_version_id": str(reversal.version.id) if reversal.version else None,
        "current_hash": now.sha256.hex() if now.sha256 and not gone else None,
        "restored_hash": then.sha256.hex() if then and then.sha256 else None,
    }


def _conflict(clash: UndoConflict) -> UndoConflictEntry:
    return {
        "path": clash.file.state.path.display,
        "reason": clash.reason,
        "ours": version_entry(clash.ours),
        "theirs": version_entry(clash.theirs) if clash.theirs else None,
    }
