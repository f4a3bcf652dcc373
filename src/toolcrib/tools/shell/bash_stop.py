"""Ends a background process, and all that it started."""

from typing import Any

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.tools.context import ToolContext
from toolcrib.tools.shell.answers import process_id, told
from toolcrib.tools.shell.background import BackgroundShell
from toolcrib.tools.studio import shapes
from toolcrib.tools.tool import Tool, ToolArguments


class Arguments(ToolArguments):
    process_id: str = Field(description="The process, as `bash_start` told it.")
    offset: int = Field(default=0, ge=0, description="Where to read its last words from.")


def bash_stop_with(shell: BackgroundShell) -> Tool:
    async def bash_stop(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        wanted = process_id(arguments.process_id)
        job = await shell.stop(context.caller, wanted)
        if job is None:
            return shapes.text(
                "It runs on another server, or ran on one, which was asked to end it.", processId=str(wanted)
            )
        return await told(shell, job, offset=arguments.offset, wait=0)

    return Tool(
        name="bash_stop",
        toolset="studio",
        description="End a background process and everything that it started. What it did to files stays.",
        category=Category.EXEC,
        danger=Danger.SAFE,
        arguments=Arguments,
        effects=lambda _: Effects(),
        function=bash_stop,
        failure=shapes.failed,
        offered=shell.is_offered,
    )
