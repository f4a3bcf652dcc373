"""Workspaces: create, list, change, delete, and their usage."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import APerson, Authenticated, tenant_for
from toolcrib.api.http_errors import examples
from toolcrib.api.request_guard import StrictRoute
from toolcrib.api.schema_base import InModel, Name, OutModel, Page
from toolcrib.core.agents import TrustLevel
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import AgentId, WorkspaceId

router = APIRouter(prefix="/workspaces", tags=["workspaces"], route_class=StrictRoute)


class WorkspaceIn(InModel):
    name: Name = Field(examples=["website"])


class WorkspaceChange(InModel):
    """Fields that are absent stay as they are."""

    name: Name | None = Field(default=None, examples=["website"])
    max_trust: TrustLevel | None = Field(
        default=None, description="The highest trust level of sessions in this workspace; null for no limit."
    )
    default_agent_id: UUID | None = Field(
        default=None, description="The agent of sessions without an agent; null for the oldest agent with a model."
    )


class WorkspaceOut(OutModel):
    id: UUID
    name: str = Field(examples=["website"])
    role: WorkspaceRole = Field(description="Your role.")
    created_at: datetime
    max_trust: TrustLevel | None = Field(
        description="The highest trust level of sessions in this workspace; null for no limit."
    )
    default_agent_id: UUID | None = None


class UsageOut(OutModel):
    """The storage of a workspace. ``stored_bytes`` is after compression, ``content_bytes`` before."""

    files: int
    deleted_files: int
    versions: int
    contents: int = Field(description="Number of distinct file contents. Versions with the same content share one.")
    content_bytes: int
    stored_bytes: int
    trash_entries: int = Field(description="Number of untracked files in the trash. Undo can restore them.")
    trash_bytes: int
    sessions: int
    calls: int
    pending: int = Field(description="Number of committed changes that may not be on disk yet.")


class LimitsOut(OutModel):
    """The operator's limits for every workspace."""

    max_file_bytes: int
    max_request_bytes: int
    trash_max_bytes: int
    trash_retention_days: float
    version_retention_days: float | None = Field(description="Null if versions are kept forever.")
    approval_timeout_seconds: float = Field(description="How long an approval or a question can stay pending.")


class WorkspaceUsageOut(OutModel):
    usage: UsageOut
    limits: LimitsOut


@router.post(
    "",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "CONFLICT"),
    name="create_workspace",
)
async def create(given: WorkspaceIn, principal: APerson, services: Injected) -> WorkspaceOut:
    """Create a workspace. You become its owner."""
    workspace = await services.workspaces.create(principal.person, name=given.name, node=services.settings.node_name)
    return WorkspaceOut.model_validate(workspace)


@router.get("", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_workspaces")
async def list_own(
    principal: APerson,
    services: Injected,
    before: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Page[WorkspaceOut]:
    """List the workspaces that you are a member of, newest first."""
    found = await services.workspaces.list_own(
        principal.person, before=WorkspaceId(before) if before else None, limit=limit
    )
    items = [WorkspaceOut.model_validate(workspace) for workspace in found]
    return Page(items=items, next=str(items[-1].id) if len(items) == limit else None)


@router.get("/{workspace_id}", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="get_workspace")
async def get(workspace_id: UUID, principal: Authenticated, services: Injected) -> WorkspaceOut:
    """Return one workspace, for its members and its agents."""
    workspace = await services.workspaces.get(tenant_for(principal, workspace_id))
    return WorkspaceOut.model_validate(workspace)


@router.get("/{workspace_id}/usage", responses=examples("INVALID_TOKEN", "FORBIDDEN", "UNAVAILABLE"), name="get_usage")
async def usage(workspace_id: UUID, principal: APerson, services: Injected) -> WorkspaceUsageOut:
    """Return the usage and the limits of a workspace. It is counted on request, so do not poll it."""
    found = await services.usage.of(tenant_for(principal, workspace_id))
    return WorkspaceUsageOut(usage=UsageOut.model_validate(found), limits=LimitsOut.model_validate(services.settings))


@router.patch(
    "/{workspace_id}",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="change_workspace",
)
async def change(workspace_id: UUID, given: WorkspaceChange, principal: APerson, services: Injected) -> WorkspaceOut:
    """Change a workspace's name, maximum trust or default agent. Owners only."""
    tenant, workspaces = tenant_for(principal, workspace_id), services.workspaces
    if given.name is not None:
        await workspaces.rename(tenant, given.name)
    if "max_trust" in given.model_fields_set:
        await workspaces.limit_trust(tenant, given.max_trust)
    if "default_agent_id" in given.model_fields_set:
        chosen = None if given.default_agent_id is None else AgentId(given.default_agent_id)
        await workspaces.set_default_agent(tenant, chosen)
    return WorkspaceOut.model_validate(await workspaces.get(tenant))


@router.delete(
    "/{workspace_id}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "FORBIDDEN"),
    name="delete_workspace",
)
async def delete(workspace_id: UUID, principal: APerson, services: Injected) -> None:
    """Delete a workspace with its files and their history. Owners only."""
    await services.workspaces.delete(tenant_for(principal, workspace_id))
