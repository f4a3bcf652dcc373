"""Workspaces: founding, finding, naming, removing."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from toolcrib.domain.callers import Role
from toolcrib.domain.ids import WorkspaceId
from toolcrib.server.auth import APerson, Authenticated, tenant_for
from toolcrib.server.bodies import StrictRoute
from toolcrib.server.errors import examples
from toolcrib.server.services import Injected
from toolcrib.server.shapes import Given, Name, Page, Shown

router = APIRouter(prefix="/workspaces", tags=["workspaces"], route_class=StrictRoute)


class WorkspaceRequest(Given):
    name: Name = Field(examples=["website"])


class WorkspaceAnswer(Shown):
    id: UUID
    name: str = Field(examples=["website"])
    role: Role = Field(description="Of whoever asks.")
    created_at: datetime


class UsageAnswer(Shown):
    """What a workspace takes up. ``stored_bytes`` is after compression, ``content_bytes`` before."""

    files: int
    deleted_files: int
    versions: int
    contents: int = Field(description="Each is stored once, however many versions have it.")
    content_bytes: int
    stored_bytes: int
    trash_entries: int = Field(description="Displaced files that the history does not keep and undo can bring back.")
    trash_bytes: int
    sessions: int
    calls: int
    pending: int = Field(description="Committed changes that are not known to be on disk yet.")


class LimitsAnswer(Shown):
    """What the server's operator allows every workspace."""

    max_file_bytes: int
    max_request_bytes: int
    trash_bytes: int
    trash_days: float
    keep_versions_days: float | None = Field(description="Null: versions are kept for ever.")
    approval_seconds: float = Field(description="How long an approval or a question waits for a person.")


class UsageAndLimits(Shown):
    usage: UsageAnswer
    limits: LimitsAnswer


@router.post(
    "",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN"),
    name="create_workspace",
)
async def create(given: WorkspaceRequest, principal: APerson, services: Injected) -> WorkspaceAnswer:
    """Founds a workspace; whoever founds it is its owner."""
    workspace = await services.workspaces.create(principal.person, name=given.name, node=services.settings.node)
    return WorkspaceAnswer.model_validate(workspace)


@router.get("", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_workspaces")
async def list_own(
    principal: APerson,
    services: Injected,
    before: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Page[WorkspaceAnswer]:
    """The workspaces that the person belongs to, the newest first."""
    found = await services.workspaces.list_own(
        principal.person, before=WorkspaceId(before) if before else None, limit=limit
    )
    items = [WorkspaceAnswer.model_validate(workspace) for workspace in found]
    return Page(items=items, next=str(items[-1].id) if len(items) == limit else None)


@router.get("/{workspace_id}", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="get_workspace")
async def get(workspace_id: UUID, principal: Authenticated, services: Injected) -> WorkspaceAnswer:
    """One workspace, for its members and its agents."""
    workspace = await services.workspaces.get(tenant_for(principal, workspace_id))
    return WorkspaceAnswer.model_validate(workspace)


@router.get("/{workspace_id}/usage", responses=examples("INVALID_TOKEN", "FORBIDDEN", "UNAVAILABLE"), name="get_usage")
async def usage(workspace_id: UUID, principal: APerson, services: Injected) -> UsageAndLimits:
    """What a workspace takes up, and what it may. It is counted when asked: not to be asked all the time."""
    found = await services.usage.of(tenant_for(principal, workspace_id))
    return UsageAndLimits(
        usage=UsageAnswer.model_validate(found), limits=LimitsAnswer.model_validate(services.settings)
    )


@router.patch(
    "/{workspace_id}",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN"),
    name="rename_workspace",
)
async def rename(
    workspace_id: UUID, given: WorkspaceRequest, principal: APerson, services: Injected
) -> WorkspaceAnswer:
    """Gives a workspace another name; for owners."""
    workspace = await services.workspaces.rename(tenant_for(principal, workspace_id), given.name)
    return WorkspaceAnswer.model_validate(workspace)


@router.delete(
    "/{workspace_id}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "FORBIDDEN"),
    name="delete_workspace",
)
async def delete(workspace_id: UUID, principal: APerson, services: Injected) -> None:
    """Removes a workspace with its files and their history; for owners."""
    await services.workspaces.delete(tenant_for(principal, workspace_id))
