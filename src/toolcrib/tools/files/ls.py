"""List a folder, and show a file's metadata: history and disk merged."""

from typing import Annotated, Final, NotRequired

from pydantic import Field

from toolcrib.core.errors import NotFound
from toolcrib.core.files import EntryKind, FileType, PathState
from toolcrib.core.paths import AbsolutePath, Mount, WorkspacePath
from toolcrib.core.tool_calls import Effects
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import ToolArguments, built_in
from toolcrib.tools.tool_results import IdText, TimeText, ToolResult, timestamp
from toolcrib.workspace.search.ignored_files import IgnoredFiles
from toolcrib.workspace.text.content import file_state

_NOT_LISTED: Final = (
    "Ignored files (.git, and what .gitignore ignores) were not listed. Use include_ignored to include them."
)


class LsArguments(ToolArguments):
    path: AbsolutePath = Field(default=WorkspacePath(Mount.PROJECT, "/"), description="Directory path to list.")
    recursive: bool = Field(default=False, description="Include all subfolders.")
    limit: int = Field(default=50, ge=0, description="Maximum entries to return; 0 for all.")
    include_ignored: bool = Field(
        default=False, description="With `recursive`, also list .git and what .gitignore ignores."
    )


class LsEntry(ToolResult):
    id: Annotated[IdText | None, Field(description="Null for untracked files.")]
    synced: Annotated[bool, Field(description="True if the file is tracked in the history.")]
    name: str
    display_name: str
    path: Annotated[str, Field(examples=["/src/main.rs"])]
    file_type: Annotated[str, Field(description="The file type, capitalized.", examples=["Document", "Folder"])]
    is_virtual: bool
    updated_at: TimeText


class LsResult(ToolResult):
    path: str
    entries: list[LsEntry]
    hint: NotRequired[Annotated[str | None, Field(default=None, description="What was not listed.")]]


@built_in("workspace", effects=lambda arguments: Effects(reads=(arguments.path,)))
async def ls(arguments: LsArguments, context: ToolContext) -> LsResult:
    """List files and folders in a directory, folders first. Set `recursive` to include subfolders."""
    skips = arguments.recursive and not arguments.include_ignored
    ignored = await IgnoredFiles.below(context.tree, arguments.path) if skips else None
    found = await context.tree.list_directory(
        arguments.path,
        recursive=arguments.recursive,
        limit=arguments.limit or None,
        virtual=True,
        skip=ignored.in_folder if ignored else None,
    )
    result: LsResult = {"path": arguments.path.display, "entries": [_entry(path_state) for path_state in found]}
    return {**result, "hint": _NOT_LISTED} if ignored and ignored.skipped else result


def _entry(path_state: PathState) -> LsEntry:
    return {
        "id": str(path_state.file.id) if path_state.file else None,
        "synced": path_state.synced,
        "name": path_state.path.name,
        "display_name": path_state.display_name,
        "path": path_state.path.display,
        "file_type": path_state.type.capitalize(),
        "is_virtual": path_state.is_virtual,
        "updated_at": timestamp(path_state.updated_at),
    }


class FileInfoArguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path to the file.")


class FileInfoResult(ToolResult):
    path: str
    file_type: FileType
    synced: bool
    is_virtual: bool
    size: int | None
    line_count: int | None
    created_at: TimeText
    updated_at: TimeText
    hash: str | None


@built_in("workspace", effects=lambda arguments: Effects(reads=(arguments.path,)))
async def file_info(arguments: FileInfoArguments, context: ToolContext) -> FileInfoResult:
    """Get a file's type, size, line count, timestamps and content hash without reading its content."""
    path_state = await context.tree.view(arguments.path)
    if not path_state.exists and not path_state.path.is_root:
        raise NotFound(f"File not found: {arguments.path.display}")
    file, is_file = path_state.file, path_state.kind is EntryKind.FILE
    state = file.state if file else None
    if is_file and (file is None or path_state.is_virtual):
        # Neither an untracked nor a virtual file has a version with its size and hash.
        state = file_state(path_state.path, (await context.tree.read(path_state.path)).body)
    return {
        "path": arguments.path.display,
        "file_type": path_state.type,
        "synced": path_state.synced,
        "is_virtual": path_state.is_virtual,
        "size": state.size if state and state.kind is EntryKind.FILE else None,
        "line_count": state.line_count if state else None,
        "created_at": timestamp(file.created_at if file else path_state.updated_at),
        "updated_at": timestamp(file.updated_at if file else path_state.updated_at),
        "hash": state.sha256.hex() if state and state.sha256 else None,
    }
