"""Reads a file of the project, whole."""

from typing import Any

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import NotFound, ToolFailed
from toolcrib.tools.context import ToolContext
from toolcrib.tools.project.shapes import failed, relative, text
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.paths import RelativePath


class Arguments(ToolArguments):
    path: RelativePath = Field(description="Relative path to the file from the project root.")


async def read_file(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    name = relative(arguments.path)
    standing = await context.tree.find(arguments.path)
    if standing.is_folder:
        raise ToolFailed(f"'{name}' is a directory, not a file. Use list_directory instead.")
    try:
        reading = await context.tree.read(arguments.path)
    except NotFound:
        raise NotFound(f"file not found: {name}") from None
    return text(reading.body.decode("utf-8", "replace"))


tool = Tool(
    name="read_file",
    toolset="project",
    description="Read the contents of a file. The path is relative to the project root.",
    category=Category.FILE,
    danger=Danger.SAFE,
    arguments=Arguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=read_file,
    failure=failed,
)
