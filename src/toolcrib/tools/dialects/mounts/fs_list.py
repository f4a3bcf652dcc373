"""Lists the entries of a folder, without hidden entries and links."""

from typing import Any

from pydantic import Field

from toolcrib.core.files import EntryKind
from toolcrib.core.paths import MountPath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.dialects.mounts.mount_results import done, failed, is_hidden
from toolcrib.tools.tool import Tool, ToolArguments

_MOST_ENTRIES = 200


class FsListArguments(ToolArguments):
    path: MountPath = Field(description="Path of the folder, such as @project/src. @project is the root.")


async def fs_list(arguments: FsListArguments, context: ToolContext) -> dict[str, Any]:
    await context.tree.reject_symlink(await context.tree.lookup(arguments.path))
    found = await context.tree.list_directory(arguments.path, recursive=False, limit=None)
    entries = [
        path_state.path.name + ("/" if path_state.is_folder else "")
        for path_state in found
        if path_state.kind is not EntryKind.LINK and not is_hidden(path_state.path.name)
    ]
    if len(entries) <= _MOST_ENTRIES:
        return done(arguments.path, entries=entries, truncated=False)
    return done(
        arguments.path,
        entriesPreview=entries[:_MOST_ENTRIES],
        truncated=True,
        hint=f"{_MOST_ENTRIES} of {len(entries):,} entries. List a subdirectory, or search with fs.search.",
    )


tool = Tool(
    name="fs.list",
    toolset="mounts",
    description=(
        "List the entries of a folder, not of its subfolders. Folders come first and end with `/`. Hidden "
        "entries and symbolic links are omitted."
    ),
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=FsListArguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=fs_list,
    encode_error=failed,
)
