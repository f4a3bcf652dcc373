"""Moves or renames a file, or a folder with everything in it."""

from typing import Annotated, Any, NamedTuple

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from toolcrib.core.errors import BadArguments, Conflict, NotFound
from toolcrib.core.paths import AbsolutePath, WorkspacePath, parse_absolute, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.sync.path_state import PathState


class MoveTarget(NamedTuple):
    """The destination: the path itself or, with a trailing slash, a folder to move into."""

    path: WorkspacePath
    is_folder: bool


def _target(text: object) -> MoveTarget:
    if not isinstance(text, str):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    return MoveTarget(parse_absolute(text), text.rstrip().endswith("/"))


class MvArguments(ToolArguments):
    source: AbsolutePath = Field(description="Current path.")
    destination: Annotated[MoveTarget, PlainValidator(_target), WithJsonSchema({"type": "string"})] = Field(
        description="New path, or an existing folder to move into."
    )


async def mv(arguments: MvArguments, context: ToolContext) -> dict[str, Any]:
    source = await context.tree.view(arguments.source)
    if source.path.is_root:
        raise BadArguments({"source": "The root folder cannot be moved."})
    if not source.exists:
        raise NotFound(f"File not found: {shown(arguments.source)}")
    if source.is_virtual:
        raise BadArguments({"source": f"{shown(source.path)} is managed by the system and cannot be moved."})
    destination = await _destination(arguments, context)
    await context.draft.move(source, destination)
    return {"from_path": shown(source.path), "to_path": shown(destination.path)}


async def _destination(arguments: MvArguments, context: ToolContext) -> PathState:
    """Return the exact new path, which must be free and whose folder must exist."""
    target = await context.tree.view(arguments.destination.path)
    into = target.is_folder or arguments.destination.is_folder
    path = target.path.child(arguments.source.name) if into else target.path
    parent = target if into else await context.tree.lookup(path.parent)
    if not parent.is_folder or parent.is_virtual:
        raise BadArguments({"destination": f"Folder not found: {shown(parent.path)}. Create it with `mkdir` first."})
    if parent.file is None and not parent.path.is_root:
        await context.tree.track([parent.path])
    destination = await context.tree.lookup(path)
    if destination.exists:
        raise Conflict(f"Destination already exists: {shown(path)}. Choose another name, or delete it first.")
    return destination


def _effects(arguments: MvArguments) -> Effects:
    destination = arguments.destination.path
    inside = () if arguments.source.is_root else (destination.child(arguments.source.name),)
    if destination.is_root:
        return Effects(writes=(arguments.source, *inside))
    return Effects(writes=(arguments.source, destination, *inside), requires=destination.ancestors[-1:])


tool = Tool(
    name="mv",
    toolset="workspace",
    description=(
        "Move or rename a file or folder. If the destination is a folder or ends with `/`, the source is "
        "moved into it. An existing file is never overwritten."
    ),
    category=ToolCategory.FILE,
    danger=Danger.DANGEROUS,
    arguments=MvArguments,
    effects=_effects,
    function=mv,
)
