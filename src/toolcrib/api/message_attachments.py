"""The files that a message brings: read or stored through the gate, as the person who sends them."""

from collections.abc import Sequence
from dataclasses import replace

from toolcrib.api.api_services import ApiServices
from toolcrib.api.call_retries import execute_once
from toolcrib.core.attachments import KINDS, MAX_ATTACHMENTS
from toolcrib.core.callers import Caller
from toolcrib.core.errors import BadArguments, MayHaveBegun, Overloaded, Quarantined
from toolcrib.core.ids import CallId, new_id
from toolcrib.core.tool_calls import ToolCall
from toolcrib.runs.read_attachments import is_attachable
from toolcrib.schemas.sessions import AttachedFile


async def attach_files(
    services: ApiServices, caller: Caller, files: Sequence[str | AttachedFile]
) -> list[dict[str, str]]:
    """Return what a message stores of its files, which are shown as they are now.

    Args:
        caller: The person, in the session of the message.
        files: Paths of the workspace, and files with their content.

    Raises:
        BadArguments: A file cannot be read, is neither an image nor a PDF, or is too large; or there are too many.
    """
    if len(files) > MAX_ATTACHMENTS:
        raise BadArguments({"attachments": f"Expected at most {MAX_ATTACHMENTS} files, got {len(files)}"})
    return [
        await _attach(services, replace(caller, call_id=CallId(new_id())), number, file)
        for number, file in enumerate(files)
    ]


async def _attach(services: ApiServices, caller: Caller, number: int, file: str | AttachedFile) -> dict[str, str]:
    field = f"attachments.{number}"
    if isinstance(file, AttachedFile):
        call = ToolCall("attach", {"name": file.name, "content": file.data})
    else:
        call = ToolCall("read", {"path": file})
    outcome = await execute_once(services, call, caller, part=number)
    if isinstance(outcome.error, Overloaded | Quarantined):
        # The file is not at fault. What was attached before it would be attached again.
        raise outcome.error if number == 0 else MayHaveBegun(outcome.error.message)
    if outcome.error is not None:
        raise BadArguments({field: next(iter(outcome.error.fields.values()), outcome.error.message)})
    if isinstance(file, AttachedFile):
        return {"path": file.name, "call_id": str(outcome.call_id)}
    if not is_attachable(outcome.result):
        raise BadArguments({field: f"{file} is not {KINDS}."})
    return {"path": outcome.result["path"], "call_id": str(outcome.call_id)}
