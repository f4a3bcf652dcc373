"""Restores a version of a changed file, or a deleted file."""

from typing import Any
from uuid import UUID

from pydantic import Field

from toolcrib.core.errors import BadArguments
from toolcrib.core.files import File, Version
from toolcrib.core.ids import FileId, VersionId
from toolcrib.core.paths import shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments


class FileRestoreArguments(ToolArguments):
    file_id: UUID = Field(description="Id of the file to restore.")
    version_id: UUID | None = Field(
        default=None, description="Id of the version to restore. For a deleted file, the last one by default."
    )


async def file_restore(arguments: FileRestoreArguments, context: ToolContext) -> dict[str, Any]:
    file = await context.tree.history.file(FileId(arguments.file_id))
    version = await _wanted(arguments, file, context)
    change = await context.draft.restore(file, version)
    assert change.after is not None
    return {
        "path": shown(change.after.path),
        "file_id": str(file.id),
        "version_id": str(change.version_id),
        "restored_version_id": str(version.id),
        "hash": change.after.sha256.hex() if change.after.sha256 else None,
    }


async def _wanted(arguments: FileRestoreArguments, file: File, context: ToolContext) -> Version:
    if arguments.version_id is not None:
        version = await context.tree.history.version(VersionId(arguments.version_id))
        if version.file_id != file.id:
            raise BadArguments({"version_id": "This version belongs to another file."})
        if version.deleted:
            raise BadArguments({"version_id": "This version is the deletion of the file; use an earlier version."})
        return version
    if not file.deleted:
        raise BadArguments({"version_id": "The file is not deleted; give the version to restore."})
    # A deletion is one version, so the one before it is what was deleted.
    [version] = await context.tree.history.versions(file, before=file.version_number, limit=1)
    return version


tool = Tool(
    name="file_restore",
    toolset="history",
    description="Restore an earlier version of a file, or a deleted file. This creates a new version; the history "
    "is kept.",
    category=ToolCategory.FILE,
    danger=Danger.DANGEROUS,
    arguments=FileRestoreArguments,
    effects=lambda _: Effects(),
    function=file_restore,
    drafts=True,
)
