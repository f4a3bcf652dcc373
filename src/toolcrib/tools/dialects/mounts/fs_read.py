"""Reads a file or some of its lines, within the caller's limit. The hash is always that of the whole file."""

from typing import Any, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from toolcrib.core.paths import MountPath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.dialects.mounts.mount_results import done, failed, rules_of
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.content import HeadTailReader


class FsReadArguments(ToolArguments):
    path: MountPath = Field(description="Path of the file, such as @project/src/main.py.")
    startLine: int | None = Field(default=None, ge=1, description="First line, 1-based.")
    endLine: int | None = Field(default=None, ge=1, description="Last line, inclusive.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.endLine is not None and self.endLine < (self.startLine or 1):
            raise PydanticCustomError("window", "endLine must not be smaller than startLine")
        return self


async def fs_read(arguments: FsReadArguments, context: ToolContext) -> dict[str, Any]:
    limit = rules_of(context.caller).max_read_bytes
    reader = HeadTailReader(limit=limit, first=arguments.startLine or 1, last=arguments.endLine)
    await context.tree.stream(arguments.path, reader.feed)
    about = {"bytes": reader.size, "sha256": reader.sha256}
    if not reader.cut:
        return done(arguments.path, **about, truncated=False, content=reader.text)
    return done(
        arguments.path,
        **about,
        truncated=True,
        contentPreview=reader.text,
        hint=f"Only the first {limit:,} bytes. Read fewer lines with startLine and endLine, or find them by fs.search.",
    )


tool = Tool(
    name="fs.read",
    toolset="mounts",
    description=(
        "Read a text file, or its lines from `startLine` to `endLine` (1-based, inclusive). `sha256` is "
        "the hash of the whole file. Pass it to fs.write as `ifMatchSha256`."
    ),
    category=ToolCategory.FILE,
    danger=Danger.SAFE,
    arguments=FsReadArguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=fs_read,
    encode_error=failed,
)
