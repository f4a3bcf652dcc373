"""Reads a file, its first megabyte at most."""

from typing import Any

from pydantic import Field

from toolcrib.core.errors import NotFound
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.dialects.studio.studio_paths import ZonePath, located, paths_of, written
from toolcrib.tools.text_result import failed, text
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.content import HeadTailReader

_MOST_BYTES = 1_000_000


class FileReadArguments(ToolArguments):
    path: ZonePath = Field(description="Absolute or relative path to read.")


async def file_read(arguments: FileReadArguments, context: ToolContext) -> dict[str, Any]:
    path = await located(arguments.path, context)
    reader = HeadTailReader(limit=_MOST_BYTES)
    try:
        await context.tree.stream(path, reader.feed)
    except NotFound:
        raise NotFound(f"file not found: {written(path)}") from None
    note = f"\n[truncated: the first {_MOST_BYTES:,} of {reader.size:,} bytes]" if reader.cut else ""
    return text(reader.text + note, path=written(path), bytes=reader.size, sha256=reader.sha256, truncated=reader.cut)


tool = Tool(
    name="file_read",
    toolset="studio",
    description=f"Read a file. Files larger than {_MOST_BYTES:,} bytes are truncated.",
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=FileReadArguments,
    effects=lambda arguments: Effects(reads=paths_of(arguments.path)),
    function=file_read,
    encode_error=failed,
)
