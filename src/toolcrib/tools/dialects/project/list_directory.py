"""Lists the entries of a directory of the project."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from toolcrib.core.errors import NotFound, ToolFailed
from toolcrib.core.paths import Mount, RelativePath, WorkspacePath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.dialects.project.project_results import failed, relative, text
from toolcrib.tools.tool import Tool, ToolArguments


def _or_root(path: object) -> object:
    return "." if path == "" else path


class ListDirectoryArguments(ToolArguments):
    path: Annotated[RelativePath, BeforeValidator(_or_root)] = Field(
        default=WorkspacePath(Mount.PROJECT, "/"),
        description="Relative path to the directory from the project root. Defaults to '.' (project root).",
    )


async def list_directory(arguments: ListDirectoryArguments, context: ToolContext) -> dict[str, Any]:
    name = relative(arguments.path)
    path_state = await context.tree.lookup(arguments.path)
    await context.tree.reject_symlink(path_state)
    if not path_state.exists and not path_state.path.is_root:
        raise NotFound(f"directory not found: {name}")
    if not path_state.is_folder:
        raise ToolFailed(f"'{name}' is not a directory")
    found = await context.tree.list_directory(arguments.path, recursive=False, limit=None)
    return text("\n".join(entry.path.name + ("/" if entry.is_folder else "") for entry in found))


tool = Tool(
    name="list_directory",
    toolset="project",
    description=(
        "List the contents of a directory. The path is relative to the project root. Defaults to the project root if "
        "path is omitted."
    ),
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=ListDirectoryArguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=list_directory,
    encode_error=failed,
)
