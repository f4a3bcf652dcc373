"""Creates a folder, and those above it."""

from typing import Any

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import BadArguments
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.paths import AbsolutePath, shown


class Arguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path of the folder.")


async def mkdir(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    if arguments.path.is_root:
        raise BadArguments({"path": "The root folder exists already. Name a folder inside it."})
    standing = await context.draft.at(arguments.path)
    file_id = await context.draft.make_folder(standing)
    return {"path": shown(arguments.path), "file_id": str(file_id)}


tool = Tool(
    name="mkdir",
    toolset="workspace",
    description="Create a folder and all folders above it. An existing folder is fine.",
    category=Category.FILE,
    danger=Danger.DANGEROUS,
    arguments=Arguments,
    effects=lambda arguments: Effects(writes=(arguments.path,)),
    function=mkdir,
)
