"""Shows what calls, a run or a session did to files, with diffs."""

from typing import Any, Self
from uuid import UUID

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from toolcrib.core.errors import ProtectedPath, TooCostly
from toolcrib.core.files import Version
from toolcrib.core.paths import shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.storage.file_history import FileTimeline, UndoScope
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.comparison import compared
from toolcrib.workspace.text.content import is_binary
from toolcrib.workspace.text.text_diff import MOST_BYTES


class ChangesArguments(ToolArguments):
    calls: list[UUID] = Field(default=[], max_length=1000, description="Ids of the calls.")
    run_id: UUID | None = Field(default=None, description="Id of a run: all its calls.")
    session_id: UUID | None = Field(default=None, description="Id of a session: all its calls.")
    limit: int = Field(default=50, ge=1, le=500, description="Maximum number of files.")

    @model_validator(mode="after")
    def _something_is_meant(self) -> Self:
        if sum((bool(self.calls), self.run_id is not None, self.session_id is not None)) != 1:
            raise PydanticCustomError("changes_of_what", "Give exactly one of calls, run_id and session_id")
        return self


async def changes(arguments: ChangesArguments, context: ToolContext) -> dict[str, Any]:
    scope = UndoScope(tuple(arguments.calls), arguments.run_id, arguments.session_id)
    histories = await context.tree.history.histories(scope)
    return {
        "changes": [await _change(history, context) for history in histories[: arguments.limit]],
        "total": len(histories),
    }


async def _change(history: FileTimeline, context: ToolContext) -> dict[str, Any]:
    """Compare the file before the first of these calls with the result of the last."""
    first, after = history.versions[0], next(v for v in reversed(history.versions) if v.id in history.ours)
    before = None if first.id in history.ours or first.deleted else first
    gone = after.deleted
    moved = before is not None and not gone and before.state.path != after.state.path
    kind = "deleted" if gone else "created" if before is None else "moved" if moved else "modified"
    return {
        "path": shown(after.state.path),
        "from_path": shown(before.state.path) if before is not None and moved else None,
        "change": kind,
        "kind": str(after.state.kind),
        "file_id": str(history.file.id),
        **await _diff(before, None if gone else after, context),
    }


async def _diff(before: Version | None, after: Version | None, context: ToolContext) -> dict[str, Any]:
    """Return the diff. Empty for folders, protected paths, and content that is not text or too large."""
    try:
        for version in (before, after):
            if version is not None:
                await context.tree.history.version(version.id)
    except ProtectedPath:
        return {}
    bodies = [await _body(version, context) for version in (before, after)]
    if any(body is None or is_binary(body) for body in bodies) or bodies[0] == bodies[1]:
        return {}
    names = tuple(shown((version or after or before).state.path) for version in (before, after))  # type: ignore[union-attr]
    try:
        found = await compared(bodies[0] or b"", bodies[1] or b"", (names[0], names[1]))
    except TooCostly:
        return {}
    return {"added": found.added, "removed": found.removed, "diff": found.text}


async def _body(version: Version | None, context: ToolContext) -> bytes | None:
    if version is None:
        return b""
    if version.state.sha256 is None or version.state.size > MOST_BYTES:
        return None
    return await context.tree.history.body(version)


tool = Tool(
    name="changes",
    toolset="history",
    description="Show the files that calls, a run or a session changed, with a unified diff of each. Pass one of "
    "`calls`, `run_id` and `session_id`.",
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=ChangesArguments,
    effects=lambda _: Effects(),
    function=changes,
)
