"""Stops a background process and everything that it started."""

from typing import Any

from pydantic import Field

from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools import text_result
from toolcrib.tools.context import ToolContext
from toolcrib.tools.shell.background_results import process_id, process_result
from toolcrib.tools.shell.background_shell import BackgroundShell
from toolcrib.tools.tool import Tool, ToolArguments


class BashStopArguments(ToolArguments):
    process_id: str = Field(description="Id of the process, from `bash_start`.")
    offset: int = Field(
        default=0, ge=0, description="Read the last output from here: `nextOffset` of the previous result."
    )


def bash_stop_with(shell: BackgroundShell) -> Tool:
    """Build the tool with this shell."""

    async def bash_stop(arguments: BashStopArguments, context: ToolContext) -> dict[str, Any]:
        wanted = process_id(arguments.process_id)
        job = await shell.stop(context.caller, wanted)
        if job is None:
            return text_result.text(
                "The process runs on another server, which was asked to stop it.", processId=str(wanted)
            )
        return await process_result(shell, job, offset=arguments.offset, wait=0)

    return Tool(
        name="bash_stop",
        toolset="studio",
        description="Stop a background process and all processes that it started. Its changes to files are kept.",
        category=ToolCategory.EXEC,
        danger=Danger.SAFE,
        arguments=BashStopArguments,
        effects=lambda _: Effects(),
        function=bash_stop,
        encode_error=text_result.failed,
        available=shell.is_offered,
    )
