"""Lists what is directly in a directory of the project."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import NotFound, ToolFailed
from toolcrib.domain.places import Mount, Place
from toolcrib.tools.context import ToolContext
from toolcrib.tools.project.shapes import failed, relative, text
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.paths import RelativePath


def _or_root(path: object) -> object:
    return "." if path == "" else path


class Arguments(ToolArguments):
    path: Annotated[RelativePath, BeforeValidator(_or_root)] = Field(
        default=Place(Mount.PROJECT, "/"),
        description="Relative path to the directory from the project root. Defaults to '.' (project root).",
    )


async def list_directory(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    name = relative(arguments.path)
    standing = await context.tree.find(arguments.path)
    await context.tree.refuse_link(standing)
    if not standing.exists and not standing.place.is_root:
        raise NotFound(f"directory not found: {name}")
    if not standing.is_folder:
        raise ToolFailed(f"'{name}' is not a directory")
    found = await context.tree.listing(arguments.path, recursive=False, limit=None)
    return text("\n".join(entry.place.name + ("/" if entry.is_folder else "") for entry in found))


tool = Tool(
    name="list_directory",
    toolset="project",
    description=(
        "List the contents of a directory. The path is relative to the project root. Defaults to the project root if "
        "path is omitted."
    ),
    category=Category.FILE,
    danger=Danger.SAFE,
    arguments=Arguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=list_directory,
    failure=failed,
)
