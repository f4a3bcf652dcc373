"""Reads one version of a file, whole."""

from typing import Any
from uuid import UUID

from pydantic import Field

from toolcrib.core.ids import VersionId
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.history.version_results import version_shape
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.content import decode_content


class FileVersionArguments(ToolArguments):
    version_id: UUID = Field(description="Id of the version.")


async def file_version(arguments: FileVersionArguments, context: ToolContext) -> dict[str, Any]:
    version = await context.tree.history.version(VersionId(arguments.version_id))
    content = (
        decode_content(await context.tree.history.body(version), version.state.content_kind)
        if version.state.sha256
        else None
    )
    return {**version_shape(version), "content": content}


tool = Tool(
    name="file_version",
    toolset="history",
    description="Read a version of a file.",
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=FileVersionArguments,
    effects=lambda _: Effects(),
    function=file_version,
)
