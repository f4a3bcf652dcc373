"""The book of a workspace, read by its owners."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from toolcrib.server.auth import APerson, tenant_for
from toolcrib.server.errors import examples
from toolcrib.server.services import Injected
from toolcrib.server.shapes import Page, Shown

router = APIRouter(prefix="/workspaces/{workspace_id}/audit", tags=["audit"])


class RecordAnswer(Shown):
    """One call: who, what, what was decided by which rule, how it ended."""

    position: int
    id: UUID
    at: datetime
    user_id: UUID
    agent_id: UUID | None
    session_id: UUID | None
    run_id: UUID | None
    call_id: UUID
    via: str = Field(examples=["rest"])
    tool: str = Field(examples=["write"])
    decision: str = Field(examples=["allow"])
    rule: str
    approver_id: UUID | None
    input: dict[str, Any] = Field(description="The arguments; contents only as size and sha256.")
    outcome: str = Field(examples=["done"])
    error_code: str | None
    files: list[dict[str, Any]] = Field(description="Hashes before and after, for every file changed.")
    isolation: str | None
    duration_us: int


@router.get("", responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN"), name="list_audit_records")
async def list_records(
    workspace_id: UUID,
    principal: APerson,
    services: Injected,
    before: Annotated[int | None, Query(ge=0)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Page[RecordAnswer]:
    """The newest records first; for owners."""
    records = await services.audit.page(tenant_for(principal, workspace_id), before=before, limit=limit)
    items = [RecordAnswer.model_validate(record) for record in records]
    return Page(items=items, next=str(items[-1].position) if len(items) == limit else None)
