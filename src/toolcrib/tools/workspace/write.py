"""Creates a file, or replaces one whole."""

from typing import Any

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import BadArguments
from toolcrib.domain.files import FileType
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.content import encoded
from toolcrib.workspace.paths import AbsolutePath, shown


class Arguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path to the file.")
    content: Any = Field(description="The whole content: text, or any JSON value.")
    file_type: FileType = Field(default=FileType.DOCUMENT, description="What the file is for.")
    overwrite: bool = Field(default=False, description="Replace the file if it exists.")


async def write(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    if arguments.file_type is FileType.FOLDER:
        raise BadArguments({"file_type": "A folder has no content. Use `mkdir` to create one."})
    standing = await context.draft.at(arguments.path)
    if standing.is_folder:
        raise BadArguments({"path": f"Cannot write to a folder: {shown(arguments.path)}"})
    if standing.exists:
        _refuse_unless_asked(arguments)
        standing = await context.draft.known(standing)
    body, kind = encoded(arguments.content)
    if len(body) > context.tree.max_file_bytes:
        raise BadArguments({"content": f"Has {len(body):,} bytes; at most {context.tree.max_file_bytes:,} are taken."})
    change = await context.draft.put(standing, body, content=kind, type=arguments.file_type)
    assert change.after is not None and change.after.sha256 is not None
    return {
        "path": shown(arguments.path),
        "file_id": str(change.file_id),
        "version_id": str(change.version_id),
        "hash": change.after.sha256.hex(),
    }


def _refuse_unless_asked(arguments: Arguments) -> None:
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
        "Create a file with the given content, and the folders above it. An existing file is replaced whole, and only "
        "with `overwrite`; to change part of a file use `edit`."
    ),
    category=Category.FILE,
    danger=Danger.DANGEROUS,
    arguments=Arguments,
    effects=lambda arguments: Effects(writes=(arguments.path,)),
    function=write,
)
