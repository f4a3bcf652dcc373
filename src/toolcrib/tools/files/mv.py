"""Move, rename and delete files and folders. What is deleted stays in the history."""

from typing import Annotated, NamedTuple

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from toolcrib.core.errors import BadArguments, Conflict, NotFound
from toolcrib.core.files import PathState
from toolcrib.core.paths import AbsolutePath, WorkspacePath, parse_absolute
from toolcrib.core.tool_calls import Danger, Effects
from toolcrib.tools.context import ToolContext
from toolcrib.tools.files.write import PathResult
from toolcrib.tools.tool import ToolArguments, built_in
from toolcrib.tools.tool_results import ToolResult


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


class MvResult(ToolResult):
    from_path: str
    to_path: str


def _effects(arguments: MvArguments) -> Effects:
    destination = arguments.destination.path
    inside = () if arguments.source.is_root else (destination.child(arguments.source.name),)
    if destination.is_root:
        return Effects(writes=(arguments.source, *inside))
    return Effects(writes=(arguments.source, destination, *inside), requires=destination.ancestors[-1:])


@built_in("workspace", danger=Danger.DANGEROUS, effects=_effects)
async def mv(arguments: MvArguments, context: ToolContext) -> MvResult:
    """Move or rename a file or folder.

    If the destination is a folder or ends with `/`, the source is moved into it. An existing file is never overwritten.
    """
    source = await context.tree.view(arguments.source)
    if source.path.is_root:
        raise BadArguments({"source": "The root folder cannot be moved."})
    if not source.exists:
        raise NotFound(f"File not found: {arguments.source.display}")
    if source.is_virtual:
        raise BadArguments({"source": f"{source.path.display} is managed by the system and cannot be moved."})
    destination = await _destination(arguments, context)
    await context.draft.move(source, destination)
    return {"from_path": source.path.display, "to_path": destination.path.display}


async def _destination(arguments: MvArguments, context: ToolContext) -> PathState:
    """Return the exact new path, which must be free and whose folder must exist."""
    target = await context.tree.view(arguments.destination.path)
    into = target.is_folder or arguments.destination.is_folder
    path = target.path.child(arguments.source.name) if into else target.path
    parent = target if into else await context.tree.lookup(path.parent)
    if not parent.is_folder or parent.is_virtual:
        raise BadArguments({"destination": f"Folder not found: {parent.path.display}. Create it with `mkdir` first."})
    if parent.file is None and not parent.path.is_root:
        await context.history.track([parent.path])
    destination = await context.tree.lookup(path)
    if destination.exists:
        raise Conflict(f"Destination already exists: {path.display}. Choose another name, or delete it first.")
    return destination


class RmArguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path to the file or empty folder.")


@built_in("workspace", danger=Danger.DANGEROUS, effects=lambda arguments: Effects(writes=(arguments.path,)))
async def rm(arguments: RmArguments, context: ToolContext) -> PathResult:
    """Delete a file or an empty folder. It stays in the history and can be restored."""
    path = arguments.path
    if path.is_root:
        raise BadArguments({"path": "The root folder cannot be deleted."})
    path_state = await context.tree.view(path)
    if not path_state.exists:
        raise NotFound(f"File not found: {path.display}")
    if path_state.is_virtual:
        raise BadArguments({"path": f"{path.display} is managed by the system. Use its own API to delete it."})
    if path_state.is_folder and not await context.tree.is_empty(path_state):
        raise Conflict(f"Folder is not empty: {path.display}. Delete what is in it first.")
    await context.draft.remove(path_state)
    # An untracked file is imported so that it can be restored; it had no id of its own.
    return {"path": path.display, "file_id": str(path_state.file.id) if path_state.file else None}
