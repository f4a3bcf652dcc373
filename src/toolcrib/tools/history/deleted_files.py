"""Lists deleted files, which can be restored."""

from typing import Any

from pydantic import Field

from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.history.version_results import file_shape
from toolcrib.tools.tool import Tool, ToolArguments


class DeletedFilesArguments(ToolArguments):
    limit: int = Field(default=50, ge=1, le=500, description="Maximum number of files.")


async def deleted_files(arguments: DeletedFilesArguments, context: ToolContext) -> dict[str, Any]:
    return {"files": [file_shape(file) for file in await context.tree.history.deleted(limit=arguments.limit)]}


tool = Tool(
    name="deleted_files",
    toolset="history",
    description="List deleted files, most recently deleted first.",
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=DeletedFilesArguments,
    effects=lambda _: Effects(),
    function=deleted_files,
)
