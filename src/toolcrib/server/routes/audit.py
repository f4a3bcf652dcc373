"""The book of a workspace, read and verified by its owners."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from toolcrib.domain.changes import ChangeKind
from toolcrib.server.auth import APerson, tenant_for
from toolcrib.server.errors import examples
from toolcrib.server.services import Injected
from toolcrib.server.shapes import Page, Shown
from toolcrib.storage.audit import Wanted

router = APIRouter(prefix="/workspaces/{workspace_id}/audit", tags=["audit"])

Ended = Literal["done", "failed", "refused"]


class FileTouched(Shown):
    """A file that a call changed. The hashes are null where there was no content, or none is kept."""

    path: str
    change: ChangeKind
    before: str | None
    after: str | None


class HostContacted(Shown):
    """Whom a program spoke to, or tried to."""

    contacted: str = Field(examples=["example.org:443"])
    refused: bool


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
    decision: Literal["allow", "ask", "refuse", "none"]
    rule: str
    approver_id: UUID | None
    input: dict[str, Any] = Field(description="The arguments; contents only as size and sha256.")
    outcome: Ended
    error_code: str | None
    files: list[FileTouched | HostContacted] = Field(
        description="Hashes before and after, for every file changed, and whom a program spoke to."
    )
    isolation: str | None
    duration_us: int


class Verified(Shown):
    """What was found in a part of the chain of seals. There is one chain for all workspaces of the server."""

    whole: bool = Field(description="Whether nothing was found in this part.")
    problems: list[str]
    last: int = Field(description="The last seal that was looked at. Give it as `after` for the next part.")
    newest: int = Field(description="The newest seal there is. When `last` has reached it, the chain is verified.")
    sealed: int = Field(description="How many records of the server were looked at in this part.")
    unsealed: int = Field(
        description="How many records of this workspace came after `last`: while it is the newest, nothing is said "
        "about them. Counted up to 20,000."
    )


@router.get("", responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN"), name="list_audit_records")
async def list_records(
    workspace_id: UUID,
    principal: APerson,
    services: Injected,
    before: Annotated[int | None, Query(ge=0)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    user_id: UUID | None = None,
    agent_id: UUID | None = None,
    session_id: UUID | None = None,
    tool: Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")] = None,
    outcome: Ended | None = None,
    since: datetime | None = None,
    until: Annotated[datetime | None, Query(description="Records before this moment.")] = None,
) -> Page[RecordAnswer]:
    """The newest records first; for owners. A filtered page may hold few records, or none, and still have a next."""
    wanted = Wanted(user_id, agent_id, session_id, tool, outcome, since, until)
    page = await services.audit.page(tenant_for(principal, workspace_id), before=before, limit=limit, wanted=wanted)
    items = [RecordAnswer.model_validate(record) for record in page.records]
    return Page(items=items, next=None if page.next is None else str(page.next))


@router.get(
    "/verification", responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN"), name="verify_audit_records"
)
async def verify(
    workspace_id: UUID, principal: APerson, services: Injected, after: Annotated[int, Query(ge=0, le=2**62)] = 0
) -> Verified:
    """Recomputes a part of the seals, from the one after `after` on; for owners. Ask until `last` is `newest`."""
    tenant = tenant_for(principal, workspace_id)
    # Asked before the work is done: who may not read the book has none done for them.
    await services.audit.require_reader(tenant)
    found = await services.verifier.stretch(after)
    return Verified(
        whole=not found.problems,
        problems=list(found.problems),
        last=found.last,
        newest=found.newest,
        sealed=found.sealed,
        unsealed=await services.audit.unsealed(tenant, top=found.top),
    )
