"""Lists a folder: history and disk merged, folders first."""

from typing import Any

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.places import Mount, Place
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.tools.workspace.shapes import timestamp
from toolcrib.workspace.paths import AbsolutePath, shown
from toolcrib.workspace.standing import Standing


class Arguments(ToolArguments):
    path: AbsolutePath = Field(default=Place(Mount.PROJECT, "/"), description="Directory path to list.")
    recursive: bool = Field(default=False, description="List everything below, not only what is directly in it.")
    limit: int = Field(default=50, ge=0, description="Maximum entries to return; 0 for all.")


async def ls(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    found = await context.tree.listing(arguments.path, recursive=arguments.recursive, limit=arguments.limit or None)
    return {"path": shown(arguments.path), "entries": [_entry(standing) for standing in found]}


def _entry(standing: Standing) -> dict[str, Any]:
    return {
        "id": str(standing.file.id) if standing.file else None,
        "synced": standing.synced,
        "name": standing.place.name,
        "display_name": standing.place.name,
        "path": shown(standing.place),
        "file_type": standing.type.capitalize(),
        "is_virtual": standing.is_virtual,
        "updated_at": timestamp(standing.updated_at),
    }


tool = Tool(
    name="ls",
    toolset="workspace",
    description="List files and folders in a directory, folders first. Set `recursive` for everything below it.",
    category=Category.FILE,
    danger=Danger.SAFE,
    arguments=Arguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=ls,
)
