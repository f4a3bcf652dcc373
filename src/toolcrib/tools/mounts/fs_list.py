"""Lists what is directly in a folder, without hidden entries and links."""

from typing import Any

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.files import NodeKind
from toolcrib.tools.context import ToolContext
from toolcrib.tools.mounts.shapes import done, failed, is_hidden
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.paths import MountedPath

_MOST_ENTRIES = 200


class Arguments(ToolArguments):
    path: MountedPath = Field(description="The folder, such as @project/src; @project alone is its root.")


async def fs_list(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    await context.tree.refuse_link(await context.tree.find(arguments.path))
    found = await context.tree.listing(arguments.path, recursive=False, limit=None)
    entries = [
        standing.place.name + ("/" if standing.is_folder else "")
        for standing in found
        if standing.kind is not NodeKind.LINK and not is_hidden(standing.place.name)
    ]
    if len(entries) <= _MOST_ENTRIES:
        return done(arguments.path, entries=entries, truncated=False)
    return done(
        arguments.path,
        entriesPreview=entries[:_MOST_ENTRIES],
        truncated=True,
        hint=f"{_MOST_ENTRIES} of {len(entries):,} entries. List a folder inside it, or look for text with fs.search.",
    )


tool = Tool(
    name="fs.list",
    toolset="mounts",
    description=(
        "List what is directly in a folder; folders end with `/` and come first. Hidden entries and links are left out."
    ),
    category=Category.FILE,
    danger=Danger.SAFE,
    arguments=Arguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=fs_list,
    failure=failed,
)
