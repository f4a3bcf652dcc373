"""Reads the output of a background process from an offset on."""

from typing import Any

from pydantic import Field

from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools import text_result
from toolcrib.tools.context import ToolContext
from toolcrib.tools.shell.background_results import process_id, process_result
from toolcrib.tools.shell.background_shell import BackgroundShell
from toolcrib.tools.tool import Tool, ToolArguments


class BashOutputArguments(ToolArguments):
    process_id: str = Field(description="Id of the process, from `bash_start`.")
    offset: int = Field(default=0, ge=0, description="Read output from here: `nextOffset` of the previous result.")
    wait: float = Field(
        default=0.0, ge=0, le=30, description="Seconds to wait for output or exit, if there is no output yet."
    )


def bash_output_with(shell: BackgroundShell) -> Tool:
    """Build the tool with this shell."""

    async def bash_output(arguments: BashOutputArguments, context: ToolContext) -> dict[str, Any]:
        job = await shell.find(context.caller, process_id(arguments.process_id))
        return await process_result(shell, job, offset=arguments.offset, wait=arguments.wait)

    return Tool(
        name="bash_output",
        toolset="studio",
        description="Read the output of a background process from an offset, and whether it is still running.",
        category=ToolCategory.EXEC,
        danger=Danger.SAFE,
        arguments=BashOutputArguments,
        effects=lambda _: Effects(),
        function=bash_output,
        encode_error=text_result.failed,
        available=shell.is_offered,
    )
