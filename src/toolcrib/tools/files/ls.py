"""Lists a folder: history and disk merged, folders first."""

from typing import Any

from pydantic import Field

from toolcrib.core.paths import AbsolutePath, Mount, WorkspacePath, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.files.file_results import timestamp
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.sync.path_state import PathState


class LsArguments(ToolArguments):
    path: AbsolutePath = Field(default=WorkspacePath(Mount.PROJECT, "/"), description="Directory path to list.")
    recursive: bool = Field(default=False, description="Include all subfolders.")
    limit: int = Field(default=50, ge=0, description="Maximum entries to return; 0 for all.")


async def ls(arguments: LsArguments, context: ToolContext) -> dict[str, Any]:
    found = await context.tree.list_directory(
        arguments.path, recursive=arguments.recursive, limit=arguments.limit or None, virtual=True
    )
    return {"path": shown(arguments.path), "entries": [_entry(path_state) for path_state in found]}


def _entry(path_state: PathState) -> dict[str, Any]:
    return {
        "id": str(path_state.file.id) if path_state.file else None,
        "synced": path_state.synced,
        "name": path_state.path.name,
        "display_name": path_state.display_name,
        "path": shown(path_state.path),
        "file_type": path_state.type.capitalize(),
        "is_virtual": path_state.is_virtual,
        "updated_at": timestamp(path_state.updated_at),
    }


tool = Tool(
    name="ls",
    toolset="workspace",
    description="List files and folders in a directory, folders first. Set `recursive` to include subfolders.",
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=LsArguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=ls,
)
