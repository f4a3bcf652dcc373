"""Create files and folders, and replace a file as a whole."""

from typing import Any

from pydantic import Field

from toolcrib.core.errors import BadArguments
from toolcrib.core.files import ContentKind, EntryKind, FileType, PathState
from toolcrib.core.paths import AbsolutePath
from toolcrib.core.tool_calls import Danger, Effects
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import ToolArguments, built_in
from toolcrib.tools.tool_results import IdText, ToolResult
from toolcrib.workspace.text.content import encode_content


class WriteArguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path to the file.")
    content: Any = Field(description='The full content: text, a JSON value, or {"encoding": "base64", "data": …}.')
    file_type: FileType = Field(default=FileType.DOCUMENT, description="Type of the file.")
    overwrite: bool = Field(default=False, description="Replace the file if it exists.")


class FileChanged(ToolResult):
    path: str
    file_id: IdText
    version_id: IdText
    hash: str


class WriteResult(ToolResult):
    """The result of a write. A folder has no content version and no hash."""

    path: str
    file_id: IdText
    version_id: IdText | None
    hash: str | None


class PathResult(ToolResult):
    path: str
    file_id: IdText | None


@built_in(
    "workspace",
    danger=Danger.DANGEROUS,
    effects=lambda arguments: Effects(writes=(arguments.path,)),
    plan_files_only=True,
)
async def write(arguments: WriteArguments, context: ToolContext) -> WriteResult:
    """Create a file and any missing parent folders.

    Set `overwrite` to replace the whole content of an existing file. To change part of a file, use `edit`.
    """
    path_state = await context.draft.lookup(arguments.path)
    if arguments.file_type is FileType.FOLDER:
        if arguments.content not in ("", None):
            raise BadArguments({"file_type": "A folder has no content. Leave it empty, or use `mkdir`."})
        file_id = await context.draft.mkdir(path_state)
        return {"path": arguments.path.display, "file_id": str(file_id), "version_id": None, "hash": None}
    kind = path_state.kind
    if kind is EntryKind.FOLDER:
        raise BadArguments({"path": f"Cannot write to a folder: {arguments.path.display}"})
    if kind is not None and not arguments.overwrite:
        raise BadArguments(
            {
                "path": f"File already exists: {arguments.path.display}. To overwrite, set overwrite=true. However, "
                "for modifying existing files, the 'edit' tool is recommended instead of overwriting."
            }
        )
    body, content = encode_content(arguments.content)
    if len(body) > context.tree.max_file_bytes:
        raise BadArguments({"content": f"Has {len(body):,} bytes; the limit is {context.tree.max_file_bytes:,}."})
    return {**await write_file(path_state, body, context, content=content, type=arguments.file_type)}


async def write_file(
    path_state: PathState,
    body: bytes,
    context: ToolContext,
    *,
    content: ContentKind,
    type: FileType = FileType.DOCUMENT,
    retype: bool = False,
) -> FileChanged:
    """Add a write to the draft. A file that is only on disk is imported first, so that undo can restore it.

    The caller has checked the size. An existing file keeps its type unless ``retype`` is set.
    """
    if path_state.kind not in (None, EntryKind.FOLDER):
        path_state = await context.draft.ensure_tracked(path_state)
    change = await context.draft.write(path_state, body, content=content, type=type, retype=retype)
    assert change.after is not None and change.after.sha256 is not None
    return {
        "path": path_state.path.display,
        "file_id": str(change.file_id),
        "version_id": str(change.version_id),
        "hash": change.after.sha256.hex(),
    }


class MkdirArguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path of the folder.")


@built_in("workspace", danger=Danger.DANGEROUS, effects=lambda arguments: Effects(writes=(arguments.path,)))
async def mkdir(arguments: MkdirArguments, context: ToolContext) -> PathResult:
    """Create a folder and any missing parent folders. Succeeds if the folder exists."""
    if arguments.path.is_root:
        raise BadArguments({"path": "The root directory already exists. Use a path inside it."})
    file_id = await context.draft.mkdir(await context.draft.lookup(arguments.path))
    return {"path": arguments.path.display, "file_id": str(file_id)}


class TouchArguments(ToolArguments):
    path: AbsolutePath = Field(description="Path to the file.")


@built_in("workspace", danger=Danger.DANGEROUS, effects=lambda arguments: Effects(writes=(arguments.path,)))
async def touch(arguments: TouchArguments, context: ToolContext) -> PathResult:
    """Update a file's modification time, or create an empty file and any missing parent folders."""
    file_id = await context.draft.touch(await context.draft.lookup(arguments.path))
    return {"path": arguments.path.display, "file_id": str(file_id)}
