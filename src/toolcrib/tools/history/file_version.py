"""Reads one version of a file, whole."""

from typing import Any
from uuid import UUID

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.ids import VersionId
from toolcrib.tools.context import ToolContext
from toolcrib.tools.history.shapes import version_shape
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.content import decoded


class Arguments(ToolArguments):
    version_id: UUID = Field(description="The version to read.")


async def file_version(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    version = await context.tree.past.version(VersionId(arguments.version_id))
    content = decoded(await context.tree.past.body(version), version.state.content) if version.state.sha256 else None
    return {**version_shape(version), "content": content}


tool = Tool(
    name="file_version",
    toolset="history",
    description="Read a version of a file as it was.",
    category=Category.FILE,
    danger=Danger.SAFE,
    arguments=Arguments,
    effects=lambda _: Effects(),
    function=file_version,
)
