"""Lists a file's versions."""

from typing import Any
from uuid import UUID

from pydantic import Field

from toolcrib.core.ids import FileId
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.history.version_results import file_shape, version_shape
from toolcrib.tools.tool import Tool, ToolArguments


class FileVersionsArguments(ToolArguments):
    file_id: UUID = Field(description="Id of the file, which may be deleted.")
    before: int | None = Field(
        default=None, ge=1, le=2**31 - 1, description="Only versions with a lower number. Use it to get the next page."
    )
    limit: int = Field(default=50, ge=1, le=500, description="Maximum number of versions.")


async def file_versions(arguments: FileVersionsArguments, context: ToolContext) -> dict[str, Any]:
    file = await context.tree.history.file(FileId(arguments.file_id))
    versions = await context.tree.history.versions(file, before=arguments.before, limit=arguments.limit)
    return {"file": file_shape(file), "versions": [version_shape(version) for version in versions]}


tool = Tool(
    name="file_versions",
    toolset="history",
    description="List the versions of a file with their authors, newest first.",
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=FileVersionsArguments,
    effects=lambda _: Effects(),
    function=file_versions,
)
