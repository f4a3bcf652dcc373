"""Workspaces and their usage, members and invitations."""

from typing import Annotated

from fastapi import Query, Request, Response

from toolcrib.api.api_services import ApiServices, Injected
from toolcrib.api.auth.principal import PUBLIC, APerson
from toolcrib.api.auth.request_tenant import AnyTenant, PersonTenant
from toolcrib.api.http.accounts import address_of, logged_in
from toolcrib.api.http_errors import examples
from toolcrib.api.pause_notices import origin_of
from toolcrib.api.routers import api_router
from toolcrib.core.errors import Forbidden
from toolcrib.core.ids import AgentId, InvitationId, UserId, WorkspaceId
from toolcrib.schemas.accounts import TokenOut
from toolcrib.schemas.schema_base import Page
from toolcrib.schemas.workspaces import (
    BudgetOut,
    InvitationAcceptanceIn,
    InvitationCreate,
    InvitationCreatedOut,
    InvitationOut,
    MemberCreate,
    MemberOut,
    MemberUpdate,
    WorkspaceCreate,
    WorkspaceOut,
    WorkspaceUpdate,
    WorkspaceUsageOut,
)

router = api_router("/workspaces", tag="workspaces")
members_router = api_router("/workspaces/{workspace_id}/members", tag="members")
invitations_router = api_router("/workspaces/{workspace_id}/invitations", tag="members")
acceptance_router = api_router("/auth/invitations", tag="auth", needs_login=False)


@router.post("", status_code=201, responses=examples("VALIDATION_ERROR", "CONFLICT"))
async def create_workspace(given: WorkspaceCreate, principal: APerson, services: Injected) -> WorkspaceOut:
    """Create a workspace. You become its owner."""
    node = await services.choose_home()
    workspace = await services.workspaces.create(principal.person, name=given.name, node=node)
    return WorkspaceOut.model_validate(workspace)


@router.get("")
async def list_workspaces(
    principal: APerson,
    services: Injected,
    before: WorkspaceId | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Page[WorkspaceOut]:
    """List the workspaces that you are a member of, newest first."""
    found = await services.workspaces.list_own(principal.person, before=before, limit=limit)
    return Page[WorkspaceOut].of(found, limit=limit)


@router.get("/{workspace_id}")
async def get_workspace(tenant: AnyTenant, services: Injected) -> WorkspaceOut:
    """Return one workspace, for its members and its agents."""
    return WorkspaceOut.model_validate(await services.workspaces.get(tenant))


@router.get("/{workspace_id}/usage", responses=examples("UNAVAILABLE"))
async def get_usage(tenant: PersonTenant, services: Injected) -> WorkspaceUsageOut:
    """Return the usage and the limits of a workspace. It is counted on request, so do not poll it."""
    return WorkspaceUsageOut.model_validate({"usage": await services.usage.of(tenant), "limits": services.settings})


@router.get("/{workspace_id}/budgets")
async def list_budgets(tenant: PersonTenant, services: Injected) -> Page[BudgetOut]:
    """List the budgets of the workspace and of its agents, with what models have used of them."""
    return Page[BudgetOut].of(await services.model_usage.of_workspace(tenant))


@router.patch("/{workspace_id}", responses=examples("VALIDATION_ERROR", "NOT_FOUND"))
async def change_workspace(given: WorkspaceUpdate, tenant: PersonTenant, services: Injected) -> WorkspaceOut:
    """Change a workspace's name, maximum trust, default agent or budgets. Owners only."""
    workspaces = services.workspaces
    if given.name is not None:
        await workspaces.rename(tenant, given.name)
    if "max_trust" in given.model_fields_set:
        await workspaces.limit_trust(tenant, given.max_trust)
    if "default_agent_id" in given.model_fields_set:
        chosen = None if given.default_agent_id is None else AgentId(given.default_agent_id)
        await workspaces.set_default_agent(tenant, chosen)
    if "budgets" in given.model_fields_set:
        await workspaces.set_budgets(tenant, given.budgets)
    return WorkspaceOut.model_validate(await workspaces.get(tenant))


@router.delete("/{workspace_id}", status_code=204)
async def delete_workspace(tenant: PersonTenant, services: Injected) -> None:
    """Delete a workspace with its files and their history. Owners only."""
    await services.workspaces.delete(tenant)


# Members and their roles


@members_router.get("")
async def list_members(tenant: PersonTenant, services: Injected) -> Page[MemberOut]:
    """List the members, in the order in which they joined."""
    return Page[MemberOut].of(await services.workspaces.members(tenant))


@members_router.post("", status_code=201, responses=examples("VALIDATION_ERROR", "NOT_FOUND", "CONFLICT"))
async def add_member(given: MemberCreate, tenant: PersonTenant, services: Injected) -> MemberOut:
    """Add a registered user. Owners only."""
    member = await services.workspaces.add_member(tenant, email=given.email, role=given.role)
    return MemberOut.model_validate(member)


@members_router.patch("/{user_id}", responses=examples("VALIDATION_ERROR", "NOT_FOUND", "CONFLICT"))
async def change_member_role(
    user_id: UserId, given: MemberUpdate, tenant: PersonTenant, services: Injected
) -> MemberOut:
    """Change a member's role. Owners only. The last owner stays an owner."""
    return MemberOut.model_validate(await services.workspaces.change_role(tenant, user_id, given.role))


@members_router.delete("/{user_id}", status_code=204, responses=examples("NOT_FOUND", "CONFLICT"))
async def remove_member(user_id: UserId, tenant: PersonTenant, services: Injected) -> None:
    """Remove a member. Owners only; members may remove themselves, except the last owner."""
    await services.workspaces.remove_member(tenant, user_id)


# Invitations for people without an account: owners create, list and revoke them; the link lets someone join


@invitations_router.post("", status_code=201, responses=examples("VALIDATION_ERROR", "CONFLICT"))
async def create_invitation(
    given: InvitationCreate, request: Request, tenant: PersonTenant, services: Injected
) -> InvitationCreatedOut:
    """Invite someone who has no account. Owners only. Replaces an earlier invitation of the same address."""
    _reject_where_disabled(services)
    made, token = await services.invitations.create(tenant, email=given.email, role=given.role)
    shown = InvitationOut.model_validate(made).model_dump()
    return InvitationCreatedOut(**shown, token=token, link=f"{origin_of(request)}/#invitation={token}")


@invitations_router.get("")
async def list_invitations(tenant: PersonTenant, services: Injected) -> Page[InvitationOut]:
    """List the invitations that can still be accepted, oldest first. Owners only."""
    return Page[InvitationOut].of(await services.invitations.list(tenant))


@invitations_router.delete("/{invitation_id}", status_code=204, responses=examples("NOT_FOUND"))
async def revoke_invitation(invitation_id: InvitationId, tenant: PersonTenant, services: Injected) -> None:
    """Revoke a pending invitation. Owners only."""
    await services.invitations.revoke(tenant, invitation_id)


@acceptance_router.post(
    "/accept",
    status_code=201,
    openapi_extra=PUBLIC,
    responses=examples("VALIDATION_ERROR", "FORBIDDEN", "CONFLICT", "RATE_LIMITED"),
)
async def accept_invitation(
    given: InvitationAcceptanceIn, request: Request, response: Response, services: Injected
) -> TokenOut:
    """Accept an invitation: creates the account, adds it to the workspace and logs in. An invitation works once."""
    _reject_where_disabled(services)
    services.limits.registration.take(address := address_of(request))
    if services.shared_limits is not None:
        await services.shared_limits.require_registration(address)
    password_hash = await services.passwords.hash(given.password.get_secret_value(), address=address)
    profile = await services.invitations.accept(
        given.token.get_secret_value(), full_name=given.full_name, password_hash=password_hash
    )
    return await logged_in(request, response, services, profile.user_id, 0)


def _reject_where_disabled(services: ApiServices) -> None:
    if not services.settings.invitations:
        raise Forbidden("Invitations are closed on this server. Ask its operator for an account.")
