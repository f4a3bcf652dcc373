"""The audit log of a workspace: its owners read and verify it."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import APerson, tenant_for
from toolcrib.api.http_errors import examples
from toolcrib.api.schema_base import OutModel, Page
from toolcrib.core.change_sets import ChangeKind
from toolcrib.storage.audit import AuditFilter

router = APIRouter(prefix="/workspaces/{workspace_id}/audit", tags=["audit"])

# The effects and the end of a background process have their own records, besides the call that started it.
Ended = Literal["done", "failed", "denied", "changed", "ended"]
Kind = Literal["call", "admin"]


class AuditFileOut(OutModel):
    """A file that a call changed. The hashes are null where there was no content, or none is kept."""

    path: str
    change: ChangeKind
    before: str | None
    after: str | None


class FileDisplaced(OutModel):
    """A file that a background process created at a protected path; it was moved away."""

    path: str
    displaced: Literal[True]


class AuditHostOut(OutModel):
    """A host that a command contacted or tried to contact."""

    host: str = Field(examples=["example.org:443"])
    denied_reason: str | None = Field(
        description="Why the host was not contacted; null if it was.", examples=["not granted"]
    )


class AuditRecordOut(OutModel):
    """One call: who, what, the deciding rule, and the outcome. Or one change of permissions."""

    position: int
    id: UUID
    kind: Kind = Field(
        description="`admin` is a change to members, agents, grants, keys, trust, MCP servers or the workspace. Its "
        "`tool` names the change, such as `member.created`. Its `arguments` have `subject`, `before` and "
        "`after`, without secrets."
    )
    created_at: datetime
    user_id: UUID
    agent_id: UUID | None
    session_id: UUID | None
    run_id: UUID | None
    call_id: UUID
    via: str = Field(examples=["rest"])
    tool: str = Field(examples=["write"])
    decision: Literal["allow", "ask", "deny", "none"]
    rule: str
    decided_by: UUID | None
    arguments: dict[str, Any] = Field(description="The arguments. File contents appear only as size and SHA-256.")
    outcome: Ended
    error_code: str | None
    files: list[AuditFileOut | FileDisplaced] = Field(
        description="The changed files with their hashes before and after, and the hosts that a command contacted."
    )
    hosts: list[AuditHostOut]
    isolation: str | None
    duration_us: int


class AuditVerificationOut(OutModel):
    """The result for a part of the chain of seals. All workspaces of the server share one chain."""

    whole: bool = Field(description="True if no problems were found in this part.")
    problems: list[str]
    first: int = Field(description="The seal before this part; 0 is the start of the chain.")
    first_mac: str = Field(description="The MAC of that seal. Compare it with a checkpoint.")
    verified_to: int = Field(description="The last checked seal. Pass it as `after` to check the next part.")
    last_seal: int = Field(description="The newest seal. The whole chain is checked when `verified_to` reaches it.")
    sealed_records: int = Field(description="Number of checked records in this part, from all workspaces.")
    unsealed_records: int = Field(
        description="Number of records of this workspace after `verified_to`, up to 20,000. They are not checked yet."
    )


class CheckpointAnswer(OutModel):
    """The end of the audit chain, signed by Ed25519 over the other fields as JSON with sorted keys and no spaces.

    A chain that does not contain this seal later was truncated, rolled back or sealed anew.
    """

    kind: Literal["toolcrib-audit-checkpoint"]
    version: Literal[1]
    number: int
    mac: str
    top: int
    at: str
    public_key: str
    signature: str


@router.get("", responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN"), name="list_audit_records")
async def list_records(
    workspace_id: UUID,
    principal: APerson,
    services: Injected,
    before: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    user_id: UUID | None = None,
    agent_id: UUID | None = None,
    session_id: UUID | None = None,
    tool: Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")] = None,
    outcome: Ended | None = None,
    since: datetime | None = None,
    until: Annotated[datetime | None, Query(description="Only records before this time.")] = None,
    kind: Kind | None = None,
) -> Page[AuditRecordOut]:
    """List audit records, newest first.

    Owners only. A filtered page may have few or no records and still a next page.
    """
    wanted = AuditFilter(user_id, agent_id, session_id, tool, outcome, since, until, kind)
    page = await services.audit.page(tenant_for(principal, workspace_id), before=before, limit=limit, wanted=wanted)
    items = [AuditRecordOut.model_validate(record) for record in page.records]
    return Page(items=items, next=None if page.next is None else str(page.next))


@router.get(
    "/verification", responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN"), name="verify_audit_records"
)
async def verify(
    workspace_id: UUID,
    principal: APerson,
    services: Injected,
    after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
) -> AuditVerificationOut:
    """Verify a part of the seals, starting after the seal `after`. Owners only.

    Repeat until `verified_to` equals `last_seal`. Without `after` it starts where the last verification ended; 0 is the
    beginning.
    """
    tenant = tenant_for(principal, workspace_id)
    # Checked first: no work is done for someone who may not read the audit log.
    await services.audit.require_reader(tenant)
    found = await services.verifier.stretch(after)
    return AuditVerificationOut(
        whole=not found.problems,
        problems=list(found.problems),
        first=found.first,
        first_mac=found.first_mac.hex(),
        verified_to=found.verified_to,
        last_seal=found.last_seal,
        sealed_records=found.sealed_records,
        unsealed_records=await services.audit.count_unsealed(tenant, after=found.last_position),
    )


@router.get(
    "/checkpoint",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "CONFLICT"),
    name="get_audit_checkpoint",
)
async def checkpoint(workspace_id: UUID, principal: APerson, services: Injected) -> CheckpointAnswer:
    """Return a signed checkpoint of the chain's end, to be stored out of reach of the database's writers.

    Owners only.
    """
    await services.audit.require_reader(tenant_for(principal, workspace_id))
    return CheckpointAnswer.model_validate(await services.verifier.checkpoint())
