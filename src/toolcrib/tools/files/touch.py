"""Updates a file's modification time, or creates an empty file."""

from typing import Any

from pydantic import Field

from toolcrib.core.paths import AbsolutePath, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments


class TouchArguments(ToolArguments):
    path: AbsolutePath = Field(description="Path to the file.")


async def touch(arguments: TouchArguments, context: ToolContext) -> dict[str, Any]:
    path_state = await context.draft.lookup(arguments.path)
    file_id = await context.draft.touch(path_state)
    return {"path": shown(arguments.path), "file_id": str(file_id)}


tool = Tool(
    name="touch",
    toolset="workspace",
    description="Update a file's modification time, or create an empty file and any missing parent folders.",
    category=ToolCategory.FILE,
    danger=Danger.DANGEROUS,
    arguments=TouchArguments,
    effects=lambda arguments: Effects(writes=(arguments.path,)),
    function=touch,
)
