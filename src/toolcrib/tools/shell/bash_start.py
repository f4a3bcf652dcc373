"""Starts a command that goes on: a server, a watcher, a shell to talk to."""

from typing import Any, Final

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.tools.context import ToolContext
from toolcrib.tools.shell.answers import told
from toolcrib.tools.shell.background import TOOL_NAME, BackgroundShell
from toolcrib.tools.studio import shapes
from toolcrib.tools.tool import Tool, ToolArguments

# For its first words, or its failing at once.
_FIRST_SECONDS: Final = 1.0
# Taking in a large tree that the history does not know yet takes its time.
_LONGEST: Final = 300.0


class Arguments(ToolArguments):
    command: str = Field(min_length=1, description="Shell command to start, with `sh -c` in the project's root.")


def bash_start_with(shell: BackgroundShell) -> Tool:
    async def bash_start(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        job = await shell.start(arguments.command, context)
        return await told(
            shell, job, offset=0, wait=_FIRST_SECONDS, first=f"[process {job.row.id}; read on with bash_output]"
        )

    return Tool(
        name=TOOL_NAME,
        toolset="studio",
        description=(
            "Start a command that goes on after this call: a development server, a watcher, a shell. It works on the "
            "files as they are, and what it changes counts at once; undoing this call undoes that, but for ignored "
            "files. `.git` can be read and not written, and a protected name that it makes is moved away and ends it: "
            "use `bash` for git and for installing packages. No network. It ends with its session."
        ),
        category=Category.EXEC,
        danger=Danger.DANGEROUS,
        arguments=Arguments,
        effects=lambda arguments: Effects(runs=arguments.command),
        function=bash_start,
        failure=shapes.failed,
        offered=shell.is_offered,
        repeatable=False,
        seconds=lambda _, __: _LONGEST,
    )
