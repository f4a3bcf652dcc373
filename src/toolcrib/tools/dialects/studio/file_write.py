"""Creates or replaces a whole file."""

from typing import Any

from pydantic import Field

from toolcrib.core.errors import TooLarge
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.dialects.studio.studio_paths import ZonePath, located, places_of, written
from toolcrib.tools.text_result import failed, text
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.content import encode_content


class FileWriteArguments(ToolArguments):
    path: ZonePath = Field(description="Absolute or relative path to write.")
    content: str = Field(description="The full content.")


async def file_write(arguments: FileWriteArguments, context: ToolContext) -> dict[str, Any]:
    place = await located(arguments.path, context)
    standing = await context.draft.lookup(place)
    await context.tree.reject_symlink(standing)
    body, kind = encode_content(arguments.content)
    if len(body) > context.tree.max_file_bytes:
        raise TooLarge(f"The content has {len(body):,} bytes; the limit is {context.tree.max_file_bytes:,}.")
    if standing.exists and not standing.is_folder:
        standing = await context.draft.ensure_tracked(standing)
    change = await context.draft.write(standing, body, content=kind)
    assert change.after is not None and change.after.sha256 is not None
    return text(
        f"wrote {len(body)} bytes to {written(place)}",
        path=written(place),
        bytes=len(body),
        sha256=change.after.sha256.hex(),
        file_id=str(change.file_id),
        version_id=str(change.version_id),
    )


tool = Tool(
    name="file_write",
    toolset="studio",
    description="Create a file or replace its whole content. Missing directories are created.",
    category=ToolCategory.FILE,
    danger=Danger.DANGEROUS,
    arguments=FileWriteArguments,
    effects=lambda arguments: Effects(writes=places_of(arguments.path)),
    function=file_write,
    encode_error=failed,
)
