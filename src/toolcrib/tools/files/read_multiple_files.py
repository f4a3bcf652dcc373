"""Reads several files in one call; an unreadable one does not affect the others."""

from typing import Any

from pydantic import Field

from toolcrib.core.errors import CallDenied, ToolFailed, error_text
from toolcrib.core.paths import AbsolutePath, WorkspacePath, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.files.file_results import content_window
from toolcrib.tools.tool import Tool, ToolArguments


class ReadMultipleFilesArguments(ToolArguments):
    paths: list[AbsolutePath] = Field(min_length=1, max_length=50, description="Files to read.")
    limit: int = Field(default=500, ge=1, description="Maximum number of lines from each file.")


async def read_multiple_files(arguments: ReadMultipleFilesArguments, context: ToolContext) -> dict[str, Any]:
    return {"files": [await _read(path, arguments.limit, context) for path in arguments.paths]}


async def _read(path: WorkspacePath, limit: int, context: ToolContext) -> dict[str, Any]:
    try:
        reading = await context.tree.read(path)
    except (ToolFailed, CallDenied) as error:
        nothing = dict.fromkeys(("content", "hash", "synced", "total_lines", "truncated"))
        return {"path": shown(path), "success": False, **nothing, "error": error_text(error)}
    part = content_window(reading, offset=0, limit=limit)
    return {
        "path": shown(path),
        "success": True,
        "content": part["content"],
        "hash": reading.sha256.hex(),
        "synced": reading.path_state.synced,
        "error": None,
        "total_lines": part["total_lines"],
        "truncated": part["truncated"],
    }


tool = Tool(
    name="read_multiple_files",
    toolset="workspace",
    description="Read up to 50 files in one call. Each result has its own `success` and `error`.",
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=ReadMultipleFilesArguments,
    effects=lambda arguments: Effects(reads_batch=tuple(arguments.paths)),
    function=read_multiple_files,
)
