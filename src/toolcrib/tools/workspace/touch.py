"""Dates a file as changed now, or creates an empty one."""

from typing import Any

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.paths import AbsolutePath, shown


class Arguments(ToolArguments):
    path: AbsolutePath = Field(description="Path to the file.")


async def touch(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    standing = await context.draft.at(arguments.path)
    file_id = await context.draft.touch(standing)
    return {"path": shown(arguments.path), "file_id": str(file_id)}


tool = Tool(
    name="touch",
    toolset="workspace",
    description="Update a file's modification time, or create an empty file and the folders above it.",
    category=Category.FILE,
    danger=Danger.DANGEROUS,
    arguments=Arguments,
    effects=lambda arguments: Effects(writes=(arguments.path,)),
    function=touch,
)
