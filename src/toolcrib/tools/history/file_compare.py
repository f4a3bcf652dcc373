"""Compares two versions, line by line."""

import difflib
import re
from typing import Any
from uuid import UUID

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import BadArguments
from toolcrib.domain.files import Version
from toolcrib.domain.ids import VersionId
from toolcrib.tools.context import ToolContext
from toolcrib.tools.history.shapes import version_shape
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.content import is_binary
from toolcrib.workspace.paths import shown

# Comparing costs time that grows faster than the text.
_MOST_BYTES = 2_000_000


class Arguments(ToolArguments):
    from_version: UUID = Field(description="The older version.")
    to_version: UUID = Field(description="The newer version.")
    context_lines: int = Field(default=3, ge=0, le=100, description="Unchanged lines around each change.")


async def file_compare(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    old = await context.tree.past.version(VersionId(arguments.from_version))
    new = await context.tree.past.version(VersionId(arguments.to_version))
    before, after = await _lines(old, context), await _lines(new, context)
    names = shown(old.state.place), shown(new.state.place)
    diff = list(difflib.unified_diff(before, after, *names, n=arguments.context_lines))
    return {
        "from": version_shape(old),
        "to": version_shape(new),
        "added": sum(line.startswith("+") for line in diff[2:]),
        "removed": sum(line.startswith("-") for line in diff[2:]),
        "diff": "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in diff),
    }


async def _lines(version: Version, context: ToolContext) -> list[str]:
    if version.state.sha256 is None and version.state.size:
        raise BadArguments({"version": f"The history does not keep the content of {shown(version.state.place)}."})
    if version.state.sha256 is None:
        return []
    body = await context.tree.past.body(version)
    if is_binary(body):
        raise BadArguments({"version": f"{shown(version.state.place)} is not text; its hash tells whether it changed."})
    if len(body) > _MOST_BYTES:
        raise BadArguments({"version": f"Has {len(body):,} bytes; at most {_MOST_BYTES:,} are compared."})
    # Only ``\n`` ends a line, as everywhere here; ``splitlines`` would also break at form feeds and the like.
    return re.findall(r"[^\n]*\n|[^\n]+", body.decode("utf-8", "replace"))


tool = Tool(
    name="file_compare",
    toolset="history",
    description="Show what changed between two versions, as a unified diff.",
    category=Category.FILE,
    danger=Danger.SAFE,
    arguments=Arguments,
    effects=lambda _: Effects(),
    function=file_compare,
)
