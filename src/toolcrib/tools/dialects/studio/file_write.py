"""Creates or replaces a whole file."""

from typing import Any

from pydantic import Field

from toolcrib.core.errors import TooLarge
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.dialects.studio.studio_paths import ZonePath, located, paths_of, written
from toolcrib.tools.text_result import failed, text
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.content import encode_content


class FileWriteArguments(ToolArguments):
    path: ZonePath = Field(description="Absolute or relative path to write.")
    content: str = Field(description="The full content.")


async def file_write(arguments: FileWriteArguments, context: ToolContext) -> dict[str, Any]:
    path = await located(arguments.path, context)
    path_state = await context.draft.lookup(path)
    await context.tree.reject_symlink(path_state)
    body, kind = encode_content(arguments.content)
    if len(body) > context.tree.max_file_bytes:
        raise TooLarge(f"The content has {len(body):,} bytes; the limit is {context.tree.max_file_bytes:,}.")
    if path_state.exists and not path_state.is_folder:
        path_state = await context.draft.ensure_tracked(path_state)
    change = await context.draft.write(path_state, body, content=kind)
    assert change.after is not None and change.after.sha256 is not None
    return text(
        f"wrote {len(body)} bytes to {written(path)}",
        path=written(path),
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
    effects=lambda arguments: Effects(writes=paths_of(arguments.path)),
    function=file_write,
    encode_error=failed,
)
