"""Tells about a file without its content."""

from typing import Any

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import NotFound
from toolcrib.domain.files import File, NodeKind
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.tools.workspace.shapes import timestamp
from toolcrib.workspace.content import file_state
from toolcrib.workspace.paths import AbsolutePath, shown
from toolcrib.workspace.standing import Standing


class Arguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path to the file.")


async def file_info(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    standing = await context.tree.find(arguments.path)
    if not standing.exists and not standing.place.is_root:
        raise NotFound(f"File not found: {shown(arguments.path)}")
    about = _known(standing.file) if standing.file else await _unknown(standing, context)
    return {
        "path": shown(arguments.path),
        "file_type": str(standing.type),
        "synced": standing.synced,
        "is_virtual": standing.is_virtual,
        **about,
    }


def _known(file: File) -> dict[str, Any]:
    is_file = file.state.kind is NodeKind.FILE
    return {
        "size": file.state.size if is_file else None,
        "line_count": file.state.lines,
        "created_at": timestamp(file.created_at),
        "updated_at": timestamp(file.updated_at),
        "hash": file.state.sha256.hex() if file.state.sha256 else None,
    }


async def _unknown(standing: Standing, context: ToolContext) -> dict[str, Any]:
    """Only the disk knows it: what can be told is read from there."""
    state = None
    if standing.kind is NodeKind.FILE:
        reading = await context.tree.read(standing.place)
        state = file_state(standing.place, reading.body)
    at = timestamp(standing.updated_at)
    return {
        "size": state.size if state else None,
        "line_count": state.lines if state else None,
        "created_at": at,
        "updated_at": at,
        "hash": state.sha256.hex() if state and state.sha256 else None,
    }


tool = Tool(
    name="file_info",
    toolset="workspace",
    description="Get a file's type, size, number of lines, dates and content hash without its content.",
    category=Category.FILE,
    danger=Danger.SAFE,
    arguments=Arguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=file_info,
)
