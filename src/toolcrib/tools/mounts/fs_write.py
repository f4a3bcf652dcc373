"""Writes a file whole, new or in place of another, within the caller's limit."""

from typing import Any

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import NotFound, Outdated
from toolcrib.domain.places import Place
from toolcrib.tools.context import ToolContext
from toolcrib.tools.mounts.shapes import done, failed
from toolcrib.tools.mounts.writing import require_within_limit
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.content import encoded
from toolcrib.workspace.paths import MountedPath


class Arguments(ToolArguments):
    path: MountedPath = Field(description="The file, such as @project/notes.md. @pkg is read-only.")
    content: str = Field(description="The whole text.")
    ifMatchSha256: str | None = Field(
        default=None, description="The `sha256` you last read; refused if the file is not that any more."
    )


async def fs_write(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    standing = await context.draft.at(arguments.path)
    await context.tree.refuse_link(standing)
    body, kind = encoded(arguments.content)
    require_within_limit(body, context)
    if arguments.ifMatchSha256 is not None:
        await _require_match(arguments.path, arguments.ifMatchSha256, context)
    if standing.exists and not standing.is_folder:
        standing = await context.draft.known(standing)
    change = await context.draft.put(standing, body, content=kind)
    assert change.after is not None and change.after.sha256 is not None
    return done(arguments.path, bytesWritten=len(body), sha256After=change.after.sha256.hex())


async def _require_match(place: Place, wanted: str, context: ToolContext) -> None:
    try:
        reading = await context.tree.read(place)
    except NotFound:
        raise Outdated(f"{place} does not exist (any more). Write it without ifMatchSha256 to create it.") from None
    await context.tree.require_unchanged(reading, wanted)


tool = Tool(
    name="fs.write",
    toolset="mounts",
    description=(
        "Write a whole text file, new or in place of another; folders above it are made. Give `ifMatchSha256` from "
        "fs.read so that nobody's change is lost."
    ),
    category=Category.FILE,
    danger=Danger.DANGEROUS,
    arguments=Arguments,
    effects=lambda arguments: Effects(writes=(arguments.path,)),
    function=fs_write,
    failure=failed,
)
