"""The ``project`` toolset: the project's files by relative path, results as text that is marked if it is an error."""

from typing import Annotated, NotRequired

from pydantic import BeforeValidator, Field

from toolcrib.core.errors import NotFound, SandboxViolation, ToolcribError, ToolFailed
from toolcrib.core.files import EntryKind
from toolcrib.core.paths import Mount, RelativePath, WorkspacePath
from toolcrib.core.tool_calls import Effects
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import ToolArguments, built_in
from toolcrib.tools.tool_results import ToolResult


class ProjectOutput(ToolResult):
    output: str
    is_error: NotRequired[bool]


def _failed(error: ToolcribError) -> ProjectOutput:
    """Encode any failure or denial. The text of a sandbox violation always contains "outside"."""
    words = "; ".join(f"'{field}': {flaw}" for field, flaw in error.fields.items()) or error.message
    if isinstance(error, SandboxViolation) and "outside" not in words:
        words = f"outside what may be touched here. {words}"
    return {"output": f"Error: {words}", "is_error": True}


class ReadFileArguments(ToolArguments):
    path: RelativePath = Field(description="Relative path to the file from the project root.")


@built_in("project", effects=lambda arguments: Effects(reads=(arguments.path,)), encode_error=_failed)
async def read_file(arguments: ReadFileArguments, context: ToolContext) -> ProjectOutput:
    """Read the contents of a file. The path is relative to the project root."""
    name = arguments.path.relative
    if (await context.tree.lookup(arguments.path)).is_folder:
        raise ToolFailed(f"'{name}' is a directory, not a file. Use list_directory instead.")
    try:
        body = await context.files.read_bytes(arguments.path)
    except NotFound:
        raise NotFound(f"file not found: {name}") from None
    return {"output": body.decode("utf-8", "replace")}


def _or_root(path: object) -> object:
    return "." if path == "" else path


class ListDirectoryArguments(ToolArguments):
    path: Annotated[RelativePath, BeforeValidator(_or_root)] = Field(
        default=WorkspacePath(Mount.PROJECT, "/"),
        description="Relative path to the directory from the project root. Defaults to '.' (project root).",
    )


@built_in("project", effects=lambda arguments: Effects(reads=(arguments.path,)), encode_error=_failed)
async def list_directory(arguments: ListDirectoryArguments, context: ToolContext) -> ProjectOutput:
    """List the contents of a directory.

    The path is relative to the project root. Defaults to the project root if path is omitted.
    """
    name = arguments.path.relative
    path_state = await context.tree.lookup(arguments.path)
    await context.tree.reject_symlink(path_state)
    if not path_state.exists and not path_state.path.is_root:
        raise NotFound(f"directory not found: {name}")
    if not path_state.is_folder:
        raise ToolFailed(f"'{name}' is not a directory")
    entries = await context.files.list(arguments.path)
    return {"output": "\n".join(entry.name + ("/" if entry.kind is EntryKind.FOLDER else "") for entry in entries)}
