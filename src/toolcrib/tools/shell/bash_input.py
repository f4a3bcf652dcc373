"""Writes to the standard input of a background process."""

from typing import Any, Final

from pydantic import Field

from toolcrib.core.errors import ToolFailed
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools import text_result
from toolcrib.tools.context import ToolContext
from toolcrib.tools.shell.background_results import process_id, process_result
from toolcrib.tools.shell.background_shell import BackgroundShell
from toolcrib.tools.tool import Tool, ToolArguments

# The capacity of a pipe: more would be accepted only in part.
_MOST: Final = 65_536
# Time to wait for its response.
_ANSWER_SECONDS: Final = 1.0


class BashInputArguments(ToolArguments):
    process_id: str = Field(description="Id of the process, from `bash_start`.")
    text: str = Field(max_length=_MOST, description="Text to write. End each line with a newline.")
    offset: int = Field(default=0, ge=0, description="Read output from here: `nextOffset` of the previous result.")
    end: bool = Field(default=False, description="Close the input after this text.")


def bash_input_with(shell: BackgroundShell) -> Tool:
    """Build the tool with this shell."""

    async def bash_input(arguments: BashInputArguments, context: ToolContext) -> dict[str, Any]:
        job = await shell.find(context.caller, process_id(arguments.process_id))
        data = arguments.text.encode()
        taken = shell.write(job, data, end=arguments.end)
        if taken < len(data):
            raise ToolFailed(f"The process read {taken:,} of {len(data):,} bytes. Send the rest later.")
        context.remarks.isolation = job.row.isolation
        return await process_result(shell, job, offset=arguments.offset, wait=_ANSWER_SECONDS)

    return Tool(
        name="bash_input",
        toolset="studio",
        description="Write to the standard input of a background process. Returns the output of the next second.",
        category=ToolCategory.EXEC,
        # Text written to a shell is a command.
        danger=Danger.DANGEROUS,
        arguments=BashInputArguments,
        effects=lambda arguments: Effects(command=arguments.text),
        function=bash_input,
        encode_error=text_result.failed,
        available=shell.is_offered,
        idempotent=False,
    )
