"""Starts a command that keeps running: a server, a watcher, an interactive shell."""

from typing import Any, Final

from pydantic import Field

from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools import text_result
from toolcrib.tools.context import ToolContext
from toolcrib.tools.shell.background_results import process_result
from toolcrib.tools.shell.background_shell import TOOL_NAME, BackgroundShell
from toolcrib.tools.tool import Tool, ToolArguments

# Time to wait for first output, or an immediate failure.
_FIRST_SECONDS: Final = 1.0
# Importing a large untracked tree takes time.
_LONGEST: Final = 300.0


class BashStartArguments(ToolArguments):
    command: str = Field(min_length=1, description="Shell command to start, with `sh -c` in the project root.")


def bash_start_with(shell: BackgroundShell) -> Tool:
    """Build the tool with this shell."""

    async def bash_start(arguments: BashStartArguments, context: ToolContext) -> dict[str, Any]:
        job = await shell.start(arguments.command, context)
        return await process_result(
            shell, job, offset=0, wait=_FIRST_SECONDS, first=f"[process {job.row.id}; read its output with bash_output]"
        )

    return Tool(
        name=TOOL_NAME,
        toolset="studio",
        description=(
            "Start a command that keeps running after this call: a development server, a watcher, a shell. "
            "Its changes to files are saved immediately. Undoing this call undoes them, except for ignored "
            "files. `.git` is read-only. If the command creates a protected file, the file is moved away and "
            "the command is stopped. Use `bash` for git and for installing packages. There is no network "
            "access. The command ends with the session."
        ),
        category=ToolCategory.EXEC,
        danger=Danger.DANGEROUS,
        arguments=BashStartArguments,
        effects=lambda arguments: Effects(command=arguments.command),
        function=bash_start,
        encode_error=text_result.failed,
        available=shell.is_offered,
        idempotent=False,
        timeout=lambda _, __: _LONGEST,
    )
