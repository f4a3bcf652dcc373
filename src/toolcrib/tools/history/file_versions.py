"""Versions of a file: list, read, compare and restore them. Deleted files are listed and restored too."""

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from typing_extensions import TypedDict

from toolcrib.core.errors import BadArguments
from toolcrib.core.files import AuthorKind, EntryKind, File, FileType, Version
from toolcrib.core.ids import FileId, VersionId
from toolcrib.core.tool_calls import Danger
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import ToolArguments, built_in, no_effects
from toolcrib.tools.tool_results import IdText, TimeText, ToolResult, timestamp
from toolcrib.workspace.text.content import decode_content, is_binary
from toolcrib.workspace.text.text_diff import MOST_BYTES
from toolcrib.workspace.text.worker_calls import compared


class HistoryEntry(ToolResult):
    """A file in the history, deleted or not."""

    file_id: IdText
    version_id: IdText
    path: str
    file_type: FileType
    is_virtual: bool
    deleted: bool
    number: int
    size: int
    line_count: int | None
    mode: Annotated[str, Field(examples=["0644"])]
    hash: str | None
    created_at: TimeText
    updated_at: TimeText


class VersionAuthor(ToolResult):
    kind: AuthorKind
    user_id: IdText | None
    agent_id: IdText | None
    run_id: IdText | None
    call_id: IdText | None


class VersionEntry(ToolResult):
    version_id: IdText
    file_id: IdText
    number: int
    change_set_id: IdText
    path: str
    kind: EntryKind
    deleted: bool
    size: int
    line_count: int | None
    mode: str
    hash: str | None
    author: VersionAuthor
    created_at: TimeText


class FileVersionsArguments(ToolArguments):
    file_id: UUID = Field(description="Id of the file, which may be deleted.")
    before: int | None = Field(
        default=None, ge=1, le=2**31 - 1, description="Only versions with a lower number. Use it to get the next page."
    )
    limit: int = Field(default=50, ge=1, le=500, description="Maximum number of versions.")


class FileVersionsResult(ToolResult):
    file: HistoryEntry
    versions: list[VersionEntry]


@built_in("history", effects=no_effects)
async def file_versions(arguments: FileVersionsArguments, context: ToolContext) -> FileVersionsResult:
    """List the versions of a file with their authors, newest first."""
    file = await context.history.file(FileId(arguments.file_id))
    versions = await context.history.versions(file, before=arguments.before, limit=arguments.limit)
    return {"file": _file_entry(file), "versions": [version_entry(version) for version in versions]}


class FileVersionArguments(ToolArguments):
    version_id: UUID = Field(description="Id of the version.")


class FileVersionResult(VersionEntry):
    content: Annotated[
        Any,
        Field(description="Text, or a JSON value if the file was written as JSON; null if the content was not kept."),
    ]


@built_in("history", effects=no_effects)
async def file_version(arguments: FileVersionArguments, context: ToolContext) -> FileVersionResult:
    """Read a version of a file."""
    version = await context.history.version(VersionId(arguments.version_id))
    body = await context.history.body(version) if version.state.sha256 else None
    content = None if body is None else decode_content(body, version.state.content_kind)
    return {**version_entry(version), "content": content}


class FileCompareArguments(ToolArguments):
    from_version: UUID = Field(description="Id of the older version.")
    to_version: UUID = Field(description="Id of the newer version.")
    context_lines: int = Field(default=3, ge=0, le=100, description="Unchanged lines around each change.")


# ``from`` is a keyword, so this field cannot be written as an annotation.
_ComparedFrom = TypedDict("_ComparedFrom", {"from": VersionEntry})


class FileCompareResult(_ComparedFrom, ToolResult):
    to: VersionEntry
    added: int
    removed: int
    diff: Annotated[str, Field(description="Unified diff.")]


@built_in("history", effects=no_effects)
async def file_compare(arguments: FileCompareArguments, context: ToolContext) -> FileCompareResult:
    """Compare two versions of a file as a unified diff."""
    old = await context.history.version(VersionId(arguments.from_version))
    new = await context.history.version(VersionId(arguments.to_version))
    before, after = await _comparable(old, context), await _comparable(new, context)
    names = old.state.path.display, new.state.path.display
    diff = await compared(before, after, names, context=arguments.context_lines)
    return {
        "from": version_entry(old),
        "to": version_entry(new),
        "added": diff.added,
        "removed": diff.removed,
        "diff": diff.text,
    }


async def _comparable(version: Version, context: ToolContext) -> bytes:
    """Return the content of a version. Raises ``BadArguments`` if it is not kept, not text or too large."""
    if version.state.sha256 is None and version.state.size:
        raise BadArguments({"version": f"The history has no content of {version.state.path.display}."})
    if version.state.sha256 is None:
        return b""
    body = await context.history.body(version)
    if is_binary(body):
        raise BadArguments({"version": f"{version.state.path.display} is not text; compare its hash instead."})
    if len(body) > MOST_BYTES:
        raise BadArguments({"version": f"Has {len(body):,} bytes; the limit is {MOST_BYTES:,}."})
    return body


class DeletedFilesArguments(ToolArguments):
    limit: int = Field(default=50, ge=1, le=500, description="Maximum number of files.")


class DeletedFilesResult(ToolResult):
    files: list[HistoryEntry]


@built_in("history", effects=no_effects)
async def deleted_files(arguments: DeletedFilesArguments, context: ToolContext) -> DeletedFilesResult:
    """List deleted files, most recently deleted first."""
    return {"files": [_file_entry(file) for file in await context.history.deleted(limit=arguments.limit)]}


class FileRestoreArguments(ToolArguments):
    file_id: UUID = Field(description="Id of the file to restore.")
    version_id: UUID | None = Field(
        default=None, description="Id of the version to restore. For a deleted file, the last one by default."
    )


class FileRestoreResult(ToolResult):
    path: str
    file_id: IdText
    version_id: IdText
    restored_version_id: IdText
    hash: str | None


@built_in("history", danger=Danger.DANGEROUS, effects=no_effects, drafts=True)
async def file_restore(arguments: FileRestoreArguments, context: ToolContext) -> FileRestoreResult:
    """Restore an earlier version of a file, or a deleted file. This creates a new version; the history is kept."""
    file = await context.history.file(FileId(arguments.file_id))
    version = await _wanted(arguments, file, context)
    change = await context.draft.restore(file, version)
    assert change.after is not None
    return {
        "path": change.after.path.display,
        "file_id": str(file.id),
        "version_id": str(change.version_id),
        "restored_version_id": str(version.id),
        "hash": change.after.sha256.hex() if change.after.sha256 else None,
    }


async def _wanted(arguments: FileRestoreArguments, file: File, context: ToolContext) -> Version:
    if arguments.version_id is not None:
        version = await context.history.version(VersionId(arguments.version_id))
        if version.file_id != file.id:
            raise BadArguments({"version_id": "This version belongs to another file."})
        if version.deleted:
            raise BadArguments({"version_id": "This version is the deletion of the file; use an earlier version."})
        return version
    if not file.deleted:
        raise BadArguments({"version_id": "The file is not deleted; give the version to restore."})
    # A deletion is one version, so the one before it is what was deleted.
    [version] = await context.history.versions(file, before=file.version_number, limit=1)
    return version


def version_entry(version: Version) -> VersionEntry:
    """Encode a version with its author."""
    return {
        "version_id": str(version.id),
        "file_id": str(version.file_id),
        "number": version.version_number,
        "change_set_id": str(version.change_set_id),
        "path": version.state.path.display,
        "kind": version.state.kind,
        "deleted": version.deleted,
        "size": version.state.size,
        "line_count": version.state.line_count,
        "mode": f"{version.state.mode:04o}",
        "hash": version.state.sha256.hex() if version.state.sha256 else None,
        "author": {
            "kind": version.author_kind,
            "user_id": _id_text(version.user_id),
            "agent_id": _id_text(version.agent_id),
            "run_id": _id_text(version.run_id),
            "call_id": _id_text(version.call_id),
        },
        "created_at": timestamp(version.created_at),
    }


def _id_text(id_: UUID | None) -> str | None:
    return None if id_ is None else str(id_)


def _file_entry(file: File) -> HistoryEntry:
    return {
        "file_id": str(file.id),
        "version_id": str(file.version_id),
        "path": file.state.path.display,
        "file_type": file.type,
        "is_virtual": file.is_virtual,
        "deleted": file.deleted,
        "number": file.version_number,
        "size": file.state.size,
        "line_count": file.state.line_count,
        "mode": f"{file.state.mode:04o}",
        "hash": file.state.sha256.hex() if file.state.sha256 else None,
        "created_at": timestamp(file.created_at),
        "updated_at": timestamp(file.updated_at),
    }
