"""Reads a file, or some of its lines."""

from typing import Any

from pydantic import Field

from toolcrib.core.paths import AbsolutePath, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.files.file_results import content_window
from toolcrib.tools.tool import Tool, ToolArguments


class ReadArguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path to the file.")
    offset: int = Field(
        default=0,
        description="First line, 0-based. A negative value counts from the end: -100 reads the last 100 lines.",
    )
    limit: int = Field(default=500, ge=1, description="Maximum number of lines.")


async def read(arguments: ReadArguments, context: ToolContext) -> dict[str, Any]:
    reading = await context.tree.read(arguments.path)
    return {
        "path": shown(arguments.path),
        **content_window(reading, offset=arguments.offset, limit=arguments.limit),
        "hash": reading.sha256.hex(),
        "synced": reading.path_state.synced,
    }


tool = Tool(
    name="read",
    toolset="workspace",
    description=(
        "Read a file, by default its first 500 lines. `hash` is the hash of the whole file. Pass it to "
        "`edit` as `last_read_hash`."
    ),
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=ReadArguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=read,
)
