"""Returns metadata of a file without its content."""

from dataclasses import replace
from typing import Any

from pydantic import Field

from toolcrib.core.errors import NotFound
from toolcrib.core.files import EntryKind, File
from toolcrib.core.paths import AbsolutePath, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.files.file_results import timestamp
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.sync.path_state import PathState
from toolcrib.workspace.text.content import file_state


class FileInfoArguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path to the file.")


async def file_info(arguments: FileInfoArguments, context: ToolContext) -> dict[str, Any]:
    path_state = await context.tree.view(arguments.path)
    if not path_state.exists and not path_state.path.is_root:
        raise NotFound(f"File not found: {shown(arguments.path)}")
    file = path_state.file
    if file is not None and path_state.is_virtual and path_state.kind is EntryKind.FILE:
        # A virtual file has no version with its size and hash.
        file = replace(file, state=file_state(path_state.path, (await context.tree.read(path_state.path)).body))
    about = _known(file) if file else await _unknown(path_state, context)
    return {
        "path": shown(arguments.path),
        "file_type": str(path_state.type),
        "synced": path_state.synced,
        "is_virtual": path_state.is_virtual,
        **about,
    }


def _known(file: File) -> dict[str, Any]:
    is_file = file.state.kind is EntryKind.FILE
    return {
        "size": file.state.size if is_file else None,
        "line_count": file.state.line_count,
        "created_at": timestamp(file.created_at),
        "updated_at": timestamp(file.updated_at),
        "hash": file.state.sha256.hex() if file.state.sha256 else None,
    }


async def _unknown(path_state: PathState, context: ToolContext) -> dict[str, Any]:
    """Return the metadata of an untracked file, read from disk."""
    state = None
    if path_state.kind is EntryKind.FILE:
        reading = await context.tree.read(path_state.path)
        state = file_state(path_state.path, reading.body)
    at = timestamp(path_state.updated_at)
    return {
        "size": state.size if state else None,
        "line_count": state.line_count if state else None,
        "created_at": at,
        "updated_at": at,
        "hash": state.sha256.hex() if state and state.sha256 else None,
    }


tool = Tool(
    name="file_info",
    toolset="workspace",
    description="Get a file's type, size, line count, timestamps and content hash without reading its content.",
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=FileInfoArguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=file_info,
)
