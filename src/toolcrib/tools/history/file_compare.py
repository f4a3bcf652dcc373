"""Compares two versions, line by line."""

from typing import Any
from uuid import UUID

from pydantic import Field

from toolcrib.core.errors import BadArguments
from toolcrib.core.files import Version
from toolcrib.core.ids import VersionId
from toolcrib.core.paths import shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.history.version_results import version_shape
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.comparison import compared
from toolcrib.workspace.text.content import is_binary
from toolcrib.workspace.text.text_diff import MOST_BYTES


class FileCompareArguments(ToolArguments):
    from_version: UUID = Field(description="Id of the older version.")
    to_version: UUID = Field(description="Id of the newer version.")
    context_lines: int = Field(default=3, ge=0, le=100, description="Unchanged lines around each change.")


async def file_compare(arguments: FileCompareArguments, context: ToolContext) -> dict[str, Any]:
    old = await context.tree.history.version(VersionId(arguments.from_version))
    new = await context.tree.history.version(VersionId(arguments.to_version))
    before, after = await _body(old, context), await _body(new, context)
    names = shown(old.state.path), shown(new.state.path)
    diff = await compared(before, after, names, context=arguments.context_lines)
    return {
        "from": version_shape(old),
        "to": version_shape(new),
        "added": diff.added,
        "removed": diff.removed,
        "diff": diff.text,
    }


async def _body(version: Version, context: ToolContext) -> bytes:
    if version.state.sha256 is None and version.state.size:
        raise BadArguments({"version": f"The history has no content of {shown(version.state.path)}."})
    if version.state.sha256 is None:
        return b""
    body = await context.tree.history.body(version)
    if is_binary(body):
        raise BadArguments({"version": f"{shown(version.state.path)} is not text; compare its hash instead."})
    if len(body) > MOST_BYTES:
        raise BadArguments({"version": f"Has {len(body):,} bytes; the limit is {MOST_BYTES:,}."})
    return body


tool = Tool(
    name="file_compare",
    toolset="history",
    description="Compare two versions of a file as a unified diff.",
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=FileCompareArguments,
    effects=lambda _: Effects(),
    function=file_compare,
)
