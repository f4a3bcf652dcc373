"""Tools for commands that keep running: start one, read its output, write to it, stop it, list them.

Every result has the output from an offset on, the state of the process, and its changes to the tree so far.
"""

from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from pydantic import Field

from toolcrib.core.background_processes import BackgroundProcess
from toolcrib.core.errors import BadArguments, ToolFailed
from toolcrib.core.ids import BackgroundId
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.runtime.disk_threads import off_loop
from toolcrib.sandbox.background_process import OutputChunk
from toolcrib.tools.context import ToolContext
from toolcrib.tools.shell.background_shell import BackgroundJob, BackgroundShell
from toolcrib.tools.shell.shell import MOST_PATHS, summarize_effect
from toolcrib.tools.tool import ToolArguments, built_in, no_effects
from toolcrib.tools.tool_results import TextOutput, failed_output, text_output

# Time to wait for first output, or an immediate failure.
_FIRST_SECONDS: Final = 1.0
# Importing a large untracked tree takes time.
_LONGEST: Final = 300.0
# The capacity of a pipe: more would be accepted only in part.
_MOST_INPUT: Final = 65_536
# Time to wait for the response to an input.
_ANSWER_SECONDS: Final = 1.0
# The most output in one result; a model gets little more.
_MOST_OUTPUT: Final = 50_000

_background_tool: Final = partial(
    built_in, "studio", category=ToolCategory.EXEC, encode_error=failed_output, requires=BackgroundShell
)


class BashStartArguments(ToolArguments):
    command: str = Field(min_length=1, description="Shell command to start, with `sh -c` in the session's directory.")


@_background_tool(
    danger=Danger.DANGEROUS,
    effects=lambda arguments: Effects(command=arguments.command),
    idempotent=False,
    timeout=lambda _, __: _LONGEST,
)
async def bash_start(arguments: BashStartArguments, context: ToolContext) -> TextOutput:
    """Start a command that keeps running after this call: a development server, a watcher, a shell.

    Its changes to files are saved immediately. Undoing this call undoes them, except for ignored files. `.git` is
    read-only. If the command creates a protected file, the file is moved away and the command is stopped. Use `bash`
    for git and for installing packages. There is no network access. The command ends with the session.
    """
    job = await context.resource(BackgroundShell).start(arguments.command, context)
    first = f"[process {job.row.id}; read its output with bash_output]"
    return await _process_output(job, context, offset=0, wait=_FIRST_SECONDS, first=first)


class BashOutputArguments(ToolArguments):
    process_id: str = Field(description="Id of the process, from `bash_start`.")
    offset: int = Field(default=0, ge=0, description="Read output from here: `nextOffset` of the previous result.")
    wait: float = Field(
        default=0.0, ge=0, le=30, description="Seconds to wait for output or exit, if there is no output yet."
    )


@_background_tool(effects=no_effects)
async def bash_output(arguments: BashOutputArguments, context: ToolContext) -> TextOutput:
    """Read the output of a background process from an offset, and whether it is still running."""
    job = await context.resource(BackgroundShell).find(context.caller, process_id(arguments.process_id))
    return await _process_output(job, context, offset=arguments.offset, wait=arguments.wait)


class BashInputArguments(ToolArguments):
    process_id: str = Field(description="Id of the process, from `bash_start`.")
    text: str = Field(max_length=_MOST_INPUT, description="Text to write. End each line with a newline.")
    offset: int = Field(default=0, ge=0, description="Read output from here: `nextOffset` of the previous result.")
    end: bool = Field(default=False, description="Close the input after this text.")


@_background_tool(
    # Text written to a shell is a command.
    danger=Danger.DANGEROUS,
    effects=lambda arguments: Effects(command=arguments.text),
    idempotent=False,
)
async def bash_input(arguments: BashInputArguments, context: ToolContext) -> TextOutput:
    """Write to the standard input of a background process. Returns the output of the next second."""
    job = await context.resource(BackgroundShell).find(context.caller, process_id(arguments.process_id))
    data = arguments.text.encode()
    taken = job.process.write(data) if data else 0
    if arguments.end:
        job.process.end_input()
    if taken < len(data):
        raise ToolFailed(f"The process read {taken:,} of {len(data):,} bytes. Send the rest later.")
    context.remarks.isolation = job.row.isolation
    return await _process_output(job, context, offset=arguments.offset, wait=_ANSWER_SECONDS)


class BashStopArguments(ToolArguments):
    process_id: str = Field(description="Id of the process, from `bash_start`.")
    offset: int = Field(
        default=0, ge=0, description="Read the last output from here: `nextOffset` of the previous result."
    )


@_background_tool(effects=no_effects)
async def bash_stop(arguments: BashStopArguments, context: ToolContext) -> TextOutput:
    """Stop a background process and all processes that it started. Its changes to files are kept."""
    wanted = process_id(arguments.process_id)
    job = await context.resource(BackgroundShell).stop(context.caller, wanted)
    if job is None:
        return text_output("The process runs on another server, which was asked to stop it.", processId=str(wanted))
    return await _process_output(job, context, offset=arguments.offset, wait=0)


class BashListArguments(ToolArguments):
    pass


@_background_tool(effects=no_effects)
async def bash_list(_: BashListArguments, context: ToolContext) -> TextOutput:
    """List the background processes of this session: running ones, and those that ended last."""
    processes = await context.resource(BackgroundShell).all_of(context.caller)
    lines = [f"{process.id}  {_ending(process)}  {process.command.splitlines()[0]}" for process in processes]
    return text_output("\n".join(lines) or "No background processes.", processes=[_entry(one) for one in processes])


def process_id(given: str) -> BackgroundId:
    """Parse the id of a process. Raises ``BadArguments`` if it is invalid."""
    try:
        return BackgroundId(UUID(given))
    except ValueError:
        raise BadArguments({"process_id": "Not a process id. `bash_list` lists them."}) from None


async def _process_output(
    job: BackgroundJob, context: ToolContext, *, offset: int, wait: float, first: str = ""
) -> TextOutput:
    """Return the output from an offset on and the state of the process. Commits its changes to the tree first."""
    piece = await job.output(offset=offset, most=_MOST_OUTPUT, wait=wait)
    committed = await context.resource(BackgroundShell).commit_changes(job)
    state = job.state
    text, next_offset = _decoded(piece, is_all=not state.is_running)
    changes = [change for change_set in committed for change in change_set.changes]
    effect = await off_loop(changes, summarize_effect, committed)
    moved = [path.relative for path in job.quarantined[:MOST_PATHS]]
    metadata = {
        **_facts(state),
        "offset": piece.offset,
        "nextOffset": next_offset,
        **({"lostBytes": piece.missed} if piece.missed else {}),
        **({"changed": effect} if effect else {}),
        **({"untracked": [path.relative for path in job.too_large[:MOST_PATHS]]} if job.too_large else {}),
        **({"quarantined": moved} if moved else {}),
    }
    note = f"; moved to the trash, where a person can restore it: {', '.join(moved)}" if moved else ""
    last = "" if state.is_running else f"[{_ending(state)}{note}]"
    return text_output("\n".join(filter(None, (first, text.removesuffix("\n"), last))), **metadata)


def _decoded(piece: OutputChunk, *, is_all: bool) -> tuple[str, int]:
    """Decode the piece, and return where the next one starts: a character cut in two is left for the next piece."""
    data = piece.data
    for cut in range(min(3, len(data)) if not is_all or len(data) == _MOST_OUTPUT else 0):
        tail = data[len(data) - 1 - cut]
        if tail & 0xC0 == 0xC0:
            data = data[: len(data) - 1 - cut]
            break
        if tail < 0x80:
            break
    return data.decode(errors="replace"), piece.offset + len(data)


def _entry(process: BackgroundProcess) -> dict[str, Any]:
    began = datetime.fromtimestamp(process.started_ns / 1e9, UTC).isoformat(timespec="seconds")
    return {**_facts(process), "command": process.command, "node": process.node, "startedAt": began}


def _facts(state: BackgroundProcess) -> dict[str, Any]:
    """Return the fields that every result has about a process."""
    return {
        "processId": str(state.id),
        "running": state.is_running,
        "isolation": state.isolation,
        **({} if state.exit_code is None else {"exitCode": state.exit_code}),
        **({"stopReason": state.stop_reason} if state.stop_reason else {}),
    }


def _ending(state: BackgroundProcess) -> str:
    """Describe whether a process runs, or how it ended."""
    if state.is_running:
        return "running"
    return f"ended: {state.stop_reason}" if state.stop_reason else f"ended with exit code {state.exit_code}"
