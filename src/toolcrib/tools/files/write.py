"""Creates a file, or replaces it as a whole."""

from typing import Any

from pydantic import Field

from toolcrib.core.errors import BadArguments
from toolcrib.core.files import FileType
from toolcrib.core.paths import AbsolutePath, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.content import encode_content


class WriteArguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path to the file.")
    content: Any = Field(description="The full content: text, or any JSON value.")
    file_type: FileType = Field(default=FileType.DOCUMENT, description="Type of the file.")
    overwrite: bool = Field(default=False, description="Replace the file if it exists.")


async def write(arguments: WriteArguments, context: ToolContext) -> dict[str, Any]:
    path_state = await context.draft.lookup(arguments.path)
    if arguments.file_type is FileType.FOLDER:
        if arguments.content not in ("", None):
            raise BadArguments({"file_type": "A folder has no content. Leave it empty, or use `mkdir`."})
        file_id = await context.draft.mkdir(path_state)
        return {"path": shown(arguments.path), "file_id": str(file_id), "version_id": None, "hash": None}
    if path_state.is_folder:
        raise BadArguments({"path": f"Cannot write to a folder: {shown(arguments.path)}"})
    if path_state.exists:
        _reject_unless_asked(arguments)
        path_state = await context.draft.ensure_tracked(path_state)
    body, kind = encode_content(arguments.content)
    if len(body) > context.tree.max_file_bytes:
        raise BadArguments({"content": f"Has {len(body):,} bytes; the limit is {context.tree.max_file_bytes:,}."})
    change = await context.draft.write(path_state, body, content=kind, type=arguments.file_type)
    assert change.after is not None and change.after.sha256 is not None
    return {
        "path": shown(arguments.path),
        "file_id": str(change.file_id),
        "version_id": str(change.version_id),
        "hash": change.after.sha256.hex(),
    }


def _reject_unless_asked(arguments: WriteArguments) -> None:
    if not arguments.overwrite:
        raise BadArguments(
            {
                "path": f"File already exists: {shown(arguments.path)}. To overwrite, set overwrite=true. However, for "
                "modifying existing files, the 'edit' tool is recommended instead of overwriting."
            }
        )


tool = Tool(
    name="write",
    toolset="workspace",
    description=(
        "Create a file and any missing parent folders. Set `overwrite` to replace the whole content of an "
        "existing file. To change part of a file, use `edit`."
    ),
    category=ToolCategory.FILE,
    danger=Danger.DANGEROUS,
    arguments=WriteArguments,
    effects=lambda arguments: Effects(writes=(arguments.path,)),
    function=write,
)
