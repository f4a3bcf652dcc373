"""Reads a file of the project, whole."""

from typing import Any

from pydantic import Field

from toolcrib.core.errors import NotFound, ToolFailed
from toolcrib.core.paths import RelativePath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.dialects.project.project_results import failed, relative, text
from toolcrib.tools.tool import Tool, ToolArguments


class ReadFileArguments(ToolArguments):
    path: RelativePath = Field(description="Relative path to the file from the project root.")


async def read_file(arguments: ReadFileArguments, context: ToolContext) -> dict[str, Any]:
    name = relative(arguments.path)
    path_state = await context.tree.lookup(arguments.path)
    if path_state.is_folder:
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
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=ReadFileArguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=read_file,
    encode_error=failed,
)
