"""Reads the rest of a cut result in pieces, as the model would have received it."""

from typing import Any
from uuid import UUID

from pydantic import Field

from toolcrib.core.errors import NotFound, ToolFailed
from toolcrib.core.ids import CallId
from toolcrib.policy.model_results import model_text, text_piece
from toolcrib.policy.permissions import READ_RESULT
from toolcrib.storage.database import Tenant
from toolcrib.storage.tool_calls import StoredCall, ToolCallStore
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import ToolArguments, built_in, no_effects


class ReadResultArguments(ToolArguments):
    call_id: UUID = Field(description="Id of the call, from the truncated result.")
    offset: int = Field(default=0, ge=0, description="First character to read, from the truncated result.")


@built_in("results", name=READ_RESULT, effects=no_effects, requires=ToolCallStore, checks_membership=False)
async def read_result(arguments: ReadResultArguments, context: ToolContext) -> dict[str, Any]:
    """Read the rest of a truncated result. Pass the `call_id` and the `offset` from the truncated result. Returns the
    next part of the text and the offset of the part after it.
    """
    call = await _call(CallId(arguments.call_id), context)
    text, _ = model_text(call.result, call.error)
    if arguments.offset >= len(text):
        raise ToolFailed(
            f"Offset {arguments.offset:,} is past the end: the stored result has {len(text):,} characters."
        )
    piece, end = text_piece(text, arguments.offset, call.id)
    return {
        "output": piece,
        "metadata": {
            "call_id": str(call.id),
            "tool": call.tool,
            "offset": arguments.offset,
            "next_offset": end if end < len(text) else None,
            "characters": len(text),
            "truncated": end < len(text),
        },
    }


async def _call(call_id: CallId, context: ToolContext) -> StoredCall:
    """Load a call: an agent's own of the same session, or outside of sessions; for a person, any of the workspace."""
    calls, caller, tenant = context.resource(ToolCallStore), context.caller, Tenant.of(context.caller)
    call = await (
        calls.get_within(tenant, call_id, caller.session_id) if caller.is_agent else calls.get(tenant, call_id)
    )
    if call.ended_at is None:
        raise NotFound(f"Call {call_id} has no result yet.")
    return call
