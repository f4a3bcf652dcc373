"""Reads a file, or some of its lines."""

from typing import Any

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.tools.workspace.shapes import content_window
from toolcrib.workspace.paths import AbsolutePath, shown


class Arguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path to the file.")
    offset: int = Field(
        default=0,
        description="First line, counted from 0. Negative counts from the end: -100 reads the last 100 lines.",
    )
    limit: int = Field(default=500, ge=1, description="Maximum number of lines.")


async def read(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    reading = await context.tree.read(arguments.path)
    return {
        "path": shown(arguments.path),
        **content_window(reading, offset=arguments.offset, limit=arguments.limit),
        "hash": reading.sha256.hex(),
        "synced": reading.standing.synced,
    }


tool = Tool(
    name="read",
    toolset="workspace",
    description=(
        "Read a file's latest content, by default its first 500 lines. `hash` is of the whole file: give it to `edit` "
        "as `last_read_hash`."
    ),
    category=Category.FILE,
    danger=Danger.SAFE,
    arguments=Arguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=read,
)
