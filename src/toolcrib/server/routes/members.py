"""Who belongs to a workspace, and in which role."""

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from toolcrib.domain.callers import Role
from toolcrib.domain.ids import UserId
from toolcrib.server.auth import APerson, tenant_for
from toolcrib.server.bodies import StrictRoute
from toolcrib.server.errors import examples
from toolcrib.server.services import Injected
from toolcrib.server.shapes import Email, Given, Page, Shown

router = APIRouter(prefix="/workspaces/{workspace_id}/members", tags=["members"], route_class=StrictRoute)


class NewMember(Given):
    email: Email
    role: Role = Role.MEMBER


class RoleChange(Given):
    role: Role


class MemberAnswer(Shown):
    user_id: UUID
    email: str = Field(examples=["ada@example.com"])
    full_name: str | None = Field(examples=["Ada Lovelace"])
    role: Role
    joined_at: datetime


@router.get("", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_members")
async def list_all(workspace_id: UUID, principal: APerson, services: Injected) -> Page[MemberAnswer]:
    """Everyone who belongs, the longest-standing first."""
    members = await services.workspaces.members(tenant_for(principal, workspace_id))
    return Page(items=[MemberAnswer.model_validate(member) for member in members])


@router.post(
    "",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="add_member",
)
async def add(workspace_id: UUID, given: NewMember, principal: APerson, services: Injected) -> MemberAnswer:
    """Takes a registered person in; for owners."""
    member = await services.workspaces.add_member(
        tenant_for(principal, workspace_id), email=given.email, role=given.role
    )
    return MemberAnswer.model_validate(member)


@router.patch(
    "/{user_id}",
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="change_member_role",
)
async def change_role(
    workspace_id: UUID, user_id: UUID, given: RoleChange, principal: APerson, services: Injected
) -> MemberAnswer:
    """Gives a member another role; for owners. The last owner stays one."""
    member = await services.workspaces.change_role(tenant_for(principal, workspace_id), UserId(user_id), given.role)
    return MemberAnswer.model_validate(member)


@router.delete(
    "/{user_id}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND", "CONFLICT"),
    name="remove_member",
)
async def remove(workspace_id: UUID, user_id: UUID, principal: APerson, services: Injected) -> None:
    """Removes a member; for owners. Everyone may remove themselves, but for the last owner."""
    await services.workspaces.remove_member(tenant_for(principal, workspace_id), UserId(user_id))
