"""Creates a folder, and those above it."""

from typing import Any

from pydantic import Field

from toolcrib.core.errors import BadArguments
from toolcrib.core.paths import AbsolutePath, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments


class MkdirArguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path of the folder.")


async def mkdir(arguments: MkdirArguments, context: ToolContext) -> dict[str, Any]:
    if arguments.path.is_root:
        raise BadArguments({"path": "The root directory already exists. Use a path inside it."})
    path_state = await context.draft.lookup(arguments.path)
    file_id = await context.draft.mkdir(path_state)
    return {"path": shown(arguments.path), "file_id": str(file_id)}


tool = Tool(
    name="mkdir",
    toolset="workspace",
    description="Create a folder and any missing parent folders. Succeeds if the folder exists.",
    category=ToolCategory.FILE,
    danger=Danger.DANGEROUS,
    arguments=MkdirArguments,
    effects=lambda arguments: Effects(writes=(arguments.path,)),
    function=mkdir,
)
