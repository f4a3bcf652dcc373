"""Members of a workspace and their roles."""

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import APerson, tenant_for
from toolcrib.api.http_errors import examples
from toolcrib.api.request_guard import StrictRoute
from toolcrib.api.schema_base import Email, InModel, OutModel, Page
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import UserId

router = APIRouter(prefix="/workspaces/{workspace_id}/members", tags=["members"], route_class=StrictRoute)


class MemberCreate(InModel):
    email: Email
    role: WorkspaceRole = WorkspaceRole.MEMBER


class MemberUpdate(InModel):
    role: WorkspaceRole


class MemberOut(OutModel):
    user_id: UUID
    email: str = Field(examples=["ada@example.com"])
    full_name: str | None = Field(examples=["Ada Lovelace"])
    role: WorkspaceRole
    joined_at: datetime


@router.get("", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_members")
async def list_all(workspace_id: UUID, principal: APerson, services: Injected) -> Page[MemberOut]:
    """List the members, in the order in which they joined."""
    members = await services.workspaces.members(tenant_for(principal, workspace_id))
    return Page(items=[MemberOut.model_validate(member) for member in members])


@router.post(
    "",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="add_member",
)
async def add(workspace_id: UUID, given: MemberCreate, principal: APerson, services: Injected) -> MemberOut:
    """Add a registered user. Owners only."""
    member = await services.workspaces.add_member(
        tenant_for(principal, workspace_id), email=given.email, role=given.role
    )
    return MemberOut.model_validate(member)


@router.patch(
    "/{user_id}",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="change_member_role",
)
async def change_role(
    workspace_id: UUID, user_id: UUID, given: MemberUpdate, principal: APerson, services: Injected
) -> MemberOut:
    """Change a member's role. Owners only. The last owner stays an owner."""
    member = await services.workspaces.change_role(tenant_for(principal, workspace_id), UserId(user_id), given.role)
    return MemberOut.model_validate(member)


@router.delete(
    "/{user_id}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="remove_member",
)
async def remove(workspace_id: UUID, user_id: UUID, principal: APerson, services: Injected) -> None:
    """Remove a member. Owners only; members may remove themselves, except the last owner."""
    await services.workspaces.remove_member(tenant_for(principal, workspace_id), UserId(user_id))
