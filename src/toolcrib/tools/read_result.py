"""Reads the rest of a cut result in pieces, as the model would have received it."""

from typing import Any
from uuid import UUID

from pydantic import Field

from toolcrib.core.errors import NotFound, ToolFailed
from toolcrib.core.ids import CallId
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.policy.model_results import model_text, text_piece
from toolcrib.policy.permissions import READ_RESULT
from toolcrib.storage.database import Tenant
from toolcrib.storage.tool_calls import StoredCall, ToolCallStore
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments


class ReadResultArguments(ToolArguments):
    call_id: UUID = Field(description="Id of the call, from the truncated result.")
    offset: int = Field(default=0, ge=0, description="First character to read, from the truncated result.")


def read_result_with(calls: ToolCallStore) -> Tool:
    """Build the tool with the store of calls."""

    async def read_result(arguments: ReadResultArguments, context: ToolContext) -> dict[str, Any]:
        call = await _call(calls, CallId(arguments.call_id), context)
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

    return Tool(
        name=READ_RESULT,
        toolset="results",
        description=(
            "Read the rest of a truncated result. Pass the `call_id` and the `offset` from the truncated "
            "result. Returns the next part of the text and the offset of the part after it."
        ),
        category=ToolCategory.FILE,
        danger=Danger.SAFE,
        arguments=ReadResultArguments,
        effects=lambda _: Effects(),
        function=read_result,
        checks_membership=False,
    )


async def _call(calls: ToolCallStore, call_id: CallId, context: ToolContext) -> StoredCall:
    """Load a call: an agent's own of the same session, or outside of sessions; for a person, any of the workspace."""
    caller, tenant = context.caller, Tenant.of(context.caller)
    call = await (
        calls.get_within(tenant, call_id, caller.session_id) if caller.is_agent else calls.get(tenant, call_id)
    )
    if call.ended_at is None:
        raise NotFound(f"Call {call_id} has no result yet.")
    return call
