"""Lists a file's versions."""

from typing import Any
from uuid import UUID

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.ids import FileId
from toolcrib.tools.context import ToolContext
from toolcrib.tools.history.shapes import file_shape, version_shape
from toolcrib.tools.tool import Tool, ToolArguments


class Arguments(ToolArguments):
    file_id: UUID = Field(description="The file, deleted or not.")
    before: int | None = Field(
        default=None, ge=1, le=2**31 - 1, description="Only versions with a lower number: for the next page."
    )
    limit: int = Field(default=50, ge=1, le=500, description="Maximum number of versions.")


async def file_versions(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    file = await context.tree.past.file(FileId(arguments.file_id))
    versions = await context.tree.past.versions(file, before=arguments.before, limit=arguments.limit)
    return {"file": file_shape(file), "versions": [version_shape(version) for version in versions]}


tool = Tool(
    name="file_versions",
    toolset="history",
    description="List a file's versions, newest first, with their authors.",
    category=Category.FILE,
    danger=Danger.SAFE,
    arguments=Arguments,
    effects=lambda _: Effects(),
    function=file_versions,
)
