"""Lists what was deleted and can be restored."""

from typing import Any

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.tools.context import ToolContext
from toolcrib.tools.history.shapes import file_shape
from toolcrib.tools.tool import Tool, ToolArguments


class Arguments(ToolArguments):
    limit: int = Field(default=50, ge=1, le=500, description="Maximum number of files.")


async def deleted_files(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    return {"files": [file_shape(file) for file in await context.tree.past.deleted(limit=arguments.limit)]}


tool = Tool(
    name="deleted_files",
    toolset="history",
    description="List deleted files, the latest first.",
    category=Category.FILE,
    danger=Danger.SAFE,
    arguments=Arguments,
    effects=lambda _: Effects(),
    function=deleted_files,
)
