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
    return {"path": shown(arguments.path), "entries": [_entry(standing) for standing in found]}


def _entry(standing: PathState) -> dict[str, Any]:
    return {
        "id": str(standing.file.id) if standing.file else None,
        "synced": standing.synced,
        "name": standing.place.name,
        "display_name": standing.display_name,
        "path": shown(standing.place),
        "file_type": standing.type.capitalize(),
        "is_virtual": standing.is_virtual,
        "updated_at": timestamp(standing.updated_at),
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
