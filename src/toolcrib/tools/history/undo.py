"""Undoes what calls, a run or a session did to files."""

from typing import Any, Self
from uuid import UUID

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from toolcrib.core.errors import NotFound
from toolcrib.core.paths import shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.storage.file_history import UndoScope
from toolcrib.tools.context import ToolContext
from toolcrib.tools.history.version_results import version_shape
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.changes.undo_plan import FileRevert, UndoConflict, draft_undo, plan_undo


class UndoArguments(ToolArguments):
    calls: list[UUID] = Field(default=[], max_length=1000, description="Ids of the calls to undo.")
    run_id: UUID | None = Field(default=None, description="Undo all calls of this run.")
    session_id: UUID | None = Field(default=None, description="Undo all calls of this session.")
    dry_run: bool = Field(default=False, description="Show the changes without applying them.")
    force: bool = Field(default=False, description="Also undo changes to files that others changed since.")

    @model_validator(mode="after")
    def _something_is_meant(self) -> Self:
        if sum((bool(self.calls), self.run_id is not None, self.session_id is not None)) != 1:
            raise PydanticCustomError("undo_what", "Give exactly one of calls, run_id and session_id")
        return self


async def undo(arguments: UndoArguments, context: ToolContext) -> dict[str, Any]:
    scope = UndoScope(tuple(arguments.calls), arguments.run_id, arguments.session_id)
    histories = await context.tree.history.histories(scope)
    if not histories:
        raise NotFound("These calls changed no file that is still in the history.")
    found = await plan_undo(context.tree, histories, force=arguments.force)
    if not arguments.dry_run:
        await draft_undo(context.tree, context.draft, found.reversals)
    return {
        "dry_run": arguments.dry_run,
        "call_id": str(context.caller.call_id),
        "changes": [_change(reversal) for reversal in found.reversals],
        "conflicts": [_conflict(clash) for clash in found.clashes],
    }


def _change(reversal: FileRevert) -> dict[str, Any]:
    """Describe the revert of a file as a change from its current state."""
    now, then = reversal.file.state, reversal.state
    gone = reversal.file.deleted
    kind = "deleted" if then is None else "created" if gone else "moved" if then.path != now.path else "modified"
    return {
        "path": shown((then or now).path),
        "from_path": shown(now.path) if kind == "moved" else None,
        "change": kind,
        "kind": str((then or now).kind),
        "file_id": str(reversal.file.id),
        "current_version_id": str(reversal.file.version_id),
        "restored_version_id": str(reversal.version.id) if reversal.version else None,
        "current_hash": now.sha256.hex() if now.sha256 and not gone else None,
        "restored_hash": then.sha256.hex() if then and then.sha256 else None,
    }


def _conflict(clash: UndoConflict) -> dict[str, Any]:
    return {
        "path": shown(clash.file.state.path),
        "reason": clash.reason,
        "ours": version_shape(clash.ours),
        "theirs": version_shape(clash.theirs) if clash.theirs else None,
    }


tool = Tool(
    name="undo",
    toolset="history",
    description=(
        "Undo the changes that calls, a run or a session made to files. Files that others changed since "
        "are reported as conflicts and skipped, unless `force` is set. `dry_run` only shows the changes. "
        "To redo, undo the undo: pass its `call_id` in `calls`."
    ),
    category=ToolCategory.FILE,
    danger=Danger.DANGEROUS,
    arguments=UndoArguments,
    effects=lambda _: Effects(),
    function=undo,
    drafts=True,
)
