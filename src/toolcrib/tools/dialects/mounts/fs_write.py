"""Creates or replaces a whole file, within the caller's limit."""

from typing import Any

from pydantic import Field

from toolcrib.core.errors import NotFound, PreconditionFailed
from toolcrib.core.paths import MountPath, WorkspacePath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.dialects.mounts.mount_results import done, failed
from toolcrib.tools.dialects.mounts.mount_writes import require_within_limit
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.content import encode_content


class FsWriteArguments(ToolArguments):
    path: MountPath = Field(description="Path of the file, such as @project/notes.md. @pkg is read-only.")
    content: str = Field(description="The full content.")
    ifMatchSha256: str | None = Field(
        default=None, description="The `sha256` from your last read. The call fails if the file has changed since."
    )


async def fs_write(arguments: FsWriteArguments, context: ToolContext) -> dict[str, Any]:
    path_state = await context.draft.lookup(arguments.path)
    await context.tree.reject_symlink(path_state)
    body, kind = encode_content(arguments.content)
    require_within_limit(body, context)
    if arguments.ifMatchSha256 is not None:
        await _require_match(arguments.path, arguments.ifMatchSha256, context)
    if path_state.exists and not path_state.is_folder:
        path_state = await context.draft.ensure_tracked(path_state)
    change = await context.draft.write(path_state, body, content=kind)
    assert change.after is not None and change.after.sha256 is not None
    return done(arguments.path, bytesWritten=len(body), sha256After=change.after.sha256.hex())


async def _require_match(path: WorkspacePath, wanted: str, context: ToolContext) -> None:
    try:
        reading = await context.tree.read(path)
    except NotFound:
        raise PreconditionFailed(f"{path} does not exist. Write it without ifMatchSha256 to create it.") from None
    await context.tree.require_unchanged(reading, wanted)


tool = Tool(
    name="fs.write",
    toolset="mounts",
    description=(
        "Create a text file or replace its whole content. Missing folders are created. Pass "
        "`ifMatchSha256` from fs.read to avoid overwriting newer changes."
    ),
    category=ToolCategory.FILE,
    danger=Danger.DANGEROUS,
    arguments=FsWriteArguments,
    effects=lambda arguments: Effects(writes=(arguments.path,)),
    function=fs_write,
    encode_error=failed,
)
