"""The audit log of a workspace: its owners read and verify it."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Query

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.request_tenant import PersonTenant
from toolcrib.api.http_errors import examples
from toolcrib.api.routers import api_router
from toolcrib.schemas.audit import AuditCheckpointOut, AuditRecordOut, AuditVerificationOut, Ended, Kind
from toolcrib.schemas.schema_base import Page
from toolcrib.storage.audit import AuditFilter

router = api_router("/workspaces/{workspace_id}/audit", tag="audit")


@router.get("", responses=examples("VALIDATION_ERROR"))
async def list_audit_records(
    tenant: PersonTenant,
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
    page = await services.audit.page(tenant, before=before, limit=limit, wanted=wanted)
    items = [AuditRecordOut.model_validate(record) for record in page.records]
    return Page(items=items, next=None if page.next is None else str(page.next))


@router.get("/verification", responses=examples("VALIDATION_ERROR"))
async def verify_audit_records(
    tenant: PersonTenant, services: Injected, after: Annotated[int | None, Query(ge=0, le=2**62)] = None
) -> AuditVerificationOut:
    """Verify a part of the seals, starting after the seal `after`. Owners only.

    Repeat until `verified_to` equals `last_seal`. Without `after` it starts where the last verification ended; 0 is the
    beginning.
    """
    # Checked first: no work is done for someone who may not read the audit log.
    await services.audit.require_reader(tenant)
    found = await services.verifier.stretch(after)
    unsealed = await services.audit.count_unsealed(tenant, after=found.last_position)
    return AuditVerificationOut(**asdict(found), whole=not found.problems, unsealed_records=unsealed)


@router.get("/checkpoint", responses=examples("VALIDATION_ERROR", "CONFLICT"))
async def get_audit_checkpoint(tenant: PersonTenant, services: Injected) -> AuditCheckpointOut:
    """Return a signed checkpoint of the chain's end, to be stored out of reach of the database's writers.

    Owners only.
    """
    await services.audit.require_reader(tenant)
    return AuditCheckpointOut.model_validate(await services.verifier.checkpoint())
