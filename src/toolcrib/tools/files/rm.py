"""Deletes a file or an empty folder. It can be restored."""

from typing import Any

from pydantic import Field

from toolcrib.core.errors import BadArguments, Conflict, NotFound
from toolcrib.core.paths import AbsolutePath, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments


class RmArguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path to the file or empty folder.")


async def rm(arguments: RmArguments, context: ToolContext) -> dict[str, Any]:
    path = arguments.path
    if path.is_root:
        raise BadArguments({"path": "The root folder cannot be deleted."})
    path_state = await context.tree.view(path)
    if not path_state.exists:
        raise NotFound(f"File not found: {shown(path)}")
    if path_state.is_virtual:
        raise BadArguments({"path": f"{shown(path)} is managed by the system. Use its own API to delete it."})
    if path_state.is_folder and not await context.tree.is_empty(path_state):
        raise Conflict(f"Folder is not empty: {shown(path)}. Delete what is in it first.")
    await context.draft.remove(path_state)
    # An untracked file is imported so that it can be restored; it had no id of its own.
    return {"path": shown(path), "file_id": str(path_state.file.id) if path_state.file else None}


tool = Tool(
    name="rm",
    toolset="workspace",
    description="Delete a file or an empty folder. It stays in the history and can be restored.",
    category=ToolCategory.FILE,
    danger=Danger.DANGEROUS,
    arguments=RmArguments,
    effects=lambda arguments: Effects(writes=(arguments.path,)),
    function=rm,
)
