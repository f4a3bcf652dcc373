"""The results of the tools for background processes: output, state and changes to the tree."""

from typing import Any, Final
from uuid import UUID

from toolcrib.core.background_processes import BackgroundProcess
from toolcrib.core.errors import BadArguments
from toolcrib.core.ids import BackgroundId
from toolcrib.sandbox.background_process import OutputChunk
from toolcrib.tools import text_result
from toolcrib.tools.dialects.studio.studio_paths import written
from toolcrib.tools.shell.background_shell import BackgroundJob, BackgroundShell
from toolcrib.tools.shell.effect_summary import MOST_PATHS, summarize_effect

# The most output in one result; a model gets little more.
MOST_BYTES: Final = 50_000


def process_id(given: str) -> BackgroundId:
    """Parse the id of a process. Raises ``BadArguments`` if it is invalid."""
    try:
        return BackgroundId(UUID(given))
    except ValueError:
        raise BadArguments({"process_id": "Not a process id. `bash_list` lists them."}) from None


async def process_result(
    shell: BackgroundShell, job: BackgroundJob, *, offset: int, wait: float, first: str = ""
) -> dict[str, Any]:
    """Return the output from an offset on and the state of the process. Commits its changes to the tree first."""
    piece = await shell.piece(job, offset=offset, most=MOST_BYTES, wait=wait)
    committed = await shell.commit_changes(job)
    state = shell.state(job)
    text, next_offset = _text(piece, is_all=not state.is_running)
    effect = summarize_effect(committed)
    metadata = {
        **facts(state),
        "offset": piece.offset,
        "nextOffset": next_offset,
        **({"lostBytes": piece.missed} if piece.missed else {}),
        **({"changed": effect} if effect else {}),
        **({"untracked": [written(path) for path in job.too_large[:MOST_PATHS]]} if job.too_large else {}),
        **({"quarantined": [written(path) for path in job.quarantined[:MOST_PATHS]]} if job.quarantined else {}),
    }
    return text_result.text("\n".join(filter(None, (first, text.removesuffix("\n"), _note(state, job)))), **metadata)


def facts(state: BackgroundProcess) -> dict[str, Any]:
    """Return the fields that every result has about a process."""
    return {
        "processId": str(state.id),
        "running": state.is_running,
        "isolation": state.isolation,
        **({} if state.exit_code is None else {"exitCode": state.exit_code}),
        **({"stopReason": state.stop_reason} if state.stop_reason else {}),
    }


def ending(state: BackgroundProcess) -> str:
    """Describe whether a process runs, or how it ended."""
    if state.is_running:
        return "running"
    return f"ended: {state.stop_reason}" if state.stop_reason else f"ended with exit code {state.exit_code}"


def _note(state: BackgroundProcess, job: BackgroundJob) -> str:
    if state.is_running:
        return ""
    moved = ", ".join(written(path) for path in job.quarantined[:MOST_PATHS])
    return f"[{ending(state)}{f'; moved to the trash, where a person can restore it: {moved}' if moved else ''}]"


def _text(piece: OutputChunk, *, is_all: bool) -> tuple[str, int]:
    """Decode the piece, and return where the next one starts: a character cut in two is left for the next piece."""
    data = piece.data
    for cut in range(min(3, len(data)) if not is_all or len(data) == MOST_BYTES else 0):
        tail = data[len(data) - 1 - cut]
        if tail & 0xC0 == 0xC0:
            data = data[: len(data) - 1 - cut]
            break
        if tail < 0x80:
            break
    return data.decode(errors="replace"), piece.offset + len(data)
