"""The calls of a session, the decision about each, and whether its change is still in effect.

The tools `changes` and `undo` list and revert what calls changed; they are called like any other tool.
"""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import APerson, tenant_for
from toolcrib.api.http_errors import examples
from toolcrib.api.schema_base import CallState, ErrorInfo, OutModel, Page
from toolcrib.core.approvals import ApprovalState, GrantScope
from toolcrib.core.ids import CallId, SessionId

router = APIRouter(prefix="/workspaces/{workspace_id}", tags=["tool calls"])


class CallDecisionOut(OutModel):
    """What a person was asked about a call, and the decision."""

    approval_id: UUID
    state: ApprovalState
    scope: GrantScope | None
    rule: str = Field(description="The rule that required approval.")
    reason: str
    decided_by: UUID | None
    decided_by_name: str | None
    decided_at: datetime | None
    denial: str | None


class CallSummaryOut(OutModel):
    """A call of a session, without its result; fetch that by the call's id."""

    id: UUID
    run_id: UUID | None = Field(description="Null if the call is not part of a run.")
    user_id: UUID
    agent_id: UUID | None
    tool: str = Field(examples=["write"])
    arguments: dict[str, Any] = Field(description="The arguments. File contents appear only as size and SHA-256.")
    state: CallState
    error: ErrorInfo | None
    files: int = Field(description="Number of changed files, up to 1,000.")
    started_at: datetime
    ended_at: datetime | None
    decision: CallDecisionOut | None
    undone_by: UUID | None = Field(
        description="The undo of this call, if it is still in effect. Undo it to redo the call."
    )


@router.get(
    "/sessions/{session_id}/calls",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="list_session_calls",
)
async def list_calls(
    workspace_id: UUID,
    session_id: UUID,
    principal: APerson,
    services: Injected,
    before: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Page[CallSummaryOut]:
    """List a session's calls, newest first."""
    found = await services.past_calls.page(
        tenant_for(principal, workspace_id),
        SessionId(session_id),
        before=None if before is None else CallId(before),
        limit=limit,
    )
    items = [CallSummaryOut.model_validate(call) for call in found]
    return Page(items=items, next=str(items[-1].id) if len(items) == limit else None)
