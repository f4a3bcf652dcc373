"""Runs a shell command in the project as a transaction: all of its effect is kept, or none."""

from typing import Any, Final

from pydantic import Field

from toolcrib.core.callers import Caller
from toolcrib.core.change_sets import ChangeSet
from toolcrib.core.errors import TimedOut, ToolcribError, ToolFailed
from toolcrib.core.paths import WorkspacePath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.policy.permissions import permission_for
from toolcrib.sandbox.command import DEFAULT_SECONDS, CommandResult, HostContact
from toolcrib.tools import text_result
from toolcrib.tools.context import ToolContext
from toolcrib.tools.dialects.studio.studio_paths import written
from toolcrib.tools.shell.effect_summary import MOST_PATHS, summarize_effect
from toolcrib.tools.shell.shell import TOOL_NAME, CommandRun, Shell
from toolcrib.tools.tool import Tool, ToolArguments

LONGEST_SECONDS: Final = 600.0
# Time for reading a large effect and adding it to the draft, beyond the command's own limit.
_AFTERWARDS: Final = 300.0
_LAST_WORDS: Final = 4_000


class BashArguments(ToolArguments):
    command: str = Field(min_length=1, description="Shell command to execute, with `sh -c` in the project root.")
    timeout: int | None = Field(
        default=None, ge=1, description=f"Timeout in seconds (default {DEFAULT_SECONDS:.0f}, at most what is allowed)."
    )


def bash_with(shell: Shell) -> Tool:
    """Build the tool with this shell. Without isolation no model sees it, and a call explains why."""

    async def bash(arguments: BashArguments, context: ToolContext) -> dict[str, Any]:
        seconds = _seconds(arguments, context.caller)
        ran = await shell.run(arguments.command, context, seconds=seconds)
        _reject_unended(ran.result, seconds)
        return _result(ran, context.draft.change_set(context.caller))

    return Tool(
        name=TOOL_NAME,
        toolset="studio",
        description=(
            "Run a shell command in the project root. There is no network access unless hosts are allowed. "
            "Changes to files are saved together when the command exits, also with a non-zero exit code; "
            "after a timeout, none are saved. /central and /state are writable, /pkg is read-only. Processes "
            "end with the command."
        ),
        category=ToolCategory.EXEC,
        danger=Danger.DANGEROUS,
        arguments=BashArguments,
        effects=lambda arguments: Effects(command=arguments.command),
        function=bash,
        encode_error=_failed,
        available=shell.is_offered,
        replannable=False,
        timeout=lambda arguments, caller: _seconds(arguments, caller) + _AFTERWARDS,
    )


def _seconds(arguments: BashArguments, caller: Caller) -> float:
    """Return the requested time, limited by what the agent's owner allows."""
    permission = permission_for(caller.agent.rules, TOOL_NAME) if caller.agent else None
    most = permission.timeout if permission and permission.timeout else LONGEST_SECONDS
    return min(arguments.timeout or DEFAULT_SECONDS, most)


class _CommandEnded(ToolFailed):
    """A command that was ended early, with its last output."""

    def __init__(self, message: str, result: CommandResult) -> None:
        super().__init__(message)
        self.result = result


class _CommandTimedOut(_CommandEnded, TimedOut):
    code = TimedOut.code


def _reject_unended(result: CommandResult, allowed: float) -> None:
    if result.timed_out:
        raise _CommandTimedOut(f"The command timed out after {allowed:.0f} s. Nothing was changed.", result)
    if result.stopped:
        raise _CommandEnded(
            f"The command was stopped: {result.stopped}. Nothing was changed. Use fewer resources.", result
        )


def _result(ran: CommandRun, change_set: ChangeSet) -> dict[str, Any]:
    result = ran.result
    failed = result.exit_code != 0
    effect = summarize_effect([change_set])
    notes = [f"[exit code {result.exit_code}; its file changes were kept]"] if failed and effect else []
    notes += [f"[skipped: {left_out}]" for left_out in ran.left_out]
    metadata = {
        "exitCode": result.exit_code,
        **_facts(result),
        **({"changed": effect} if effect else {}),
        **({"untracked": [_untracked(*one) for one in ran.unkept[:MOST_PATHS]]} if ran.unkept else {}),
        **({"skipped": list(ran.left_out[:MOST_PATHS])} if ran.left_out else {}),
    }
    output = "\n".join(filter(None, (result.output.text.removesuffix("\n") if notes else result.output.text, *notes)))
    return {"output": output, "metadata": metadata, "is_error": failed}


def _untracked(path: WorkspacePath, size: int) -> dict[str, Any]:
    """Describe content that ignore rules or its size keep out of the history; undo moves it to the trash and back."""
    return {"path": written(path), "bytes": size}


def _facts(result: CommandResult) -> dict[str, Any]:
    return {
        "isolation": result.level,
        "durationMs": round(result.seconds * 1000),
        **({"truncatedBytes": result.dropped} if result.dropped else {}),
        **({"hosts": [_contact(one) for one in result.contacted[:MOST_PATHS]]} if result.contacted else {}),
    }


def _contact(contact: HostContact) -> dict[str, Any]:
    refused = {"refused": contact.refused} if contact.refused else {}
    return {"host": contact.host, "port": contact.port, **refused}


def _failed(error: ToolcribError) -> dict[str, Any] | None:
    result = text_result.failed(error)
    if result is None or not isinstance(error, _CommandEnded):
        return result
    last_output = error.result.output.text[-_LAST_WORDS:]
    result["output"] = f"{last_output}\n{result['output']}" if last_output else result["output"]
    result["metadata"] |= {"timedOut": error.result.timed_out, **_facts(error.result)}
    return result
