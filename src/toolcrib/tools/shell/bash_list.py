"""Lists the background processes of a session, including those that have ended."""

from datetime import UTC, datetime
from typing import Any

from toolcrib.core.background_processes import BackgroundProcess
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools import text_result
from toolcrib.tools.context import ToolContext
from toolcrib.tools.shell.background_results import ending, facts
from toolcrib.tools.shell.background_shell import BackgroundShell
from toolcrib.tools.tool import Tool, ToolArguments


class BashListArguments(ToolArguments):
    pass


def bash_list_with(shell: BackgroundShell) -> Tool:
    """Build the tool with this shell."""

    async def bash_list(_: BashListArguments, context: ToolContext) -> dict[str, Any]:
        processes = await shell.all_of(context.caller)
        lines = [f"{process.id}  {ending(process)}  {process.command.splitlines()[0]}" for process in processes]
        return text_result.text(
            "\n".join(lines) or "No background processes.", processes=[_entry(one) for one in processes]
        )

    return Tool(
        name="bash_list",
        toolset="studio",
        description="List the background processes of this session: running ones, and those that ended last.",
        category=ToolCategory.EXEC,
        danger=Danger.SAFE,
        arguments=BashListArguments,
        effects=lambda _: Effects(),
        function=bash_list,
        encode_error=text_result.failed,
        available=shell.is_offered,
    )


def _entry(process: BackgroundProcess) -> dict[str, Any]:
    began = datetime.fromtimestamp(process.started_ns / 1e9, UTC).isoformat(timespec="seconds")
    return {**facts(process), "command": process.command, "node": process.node, "startedAt": began}
