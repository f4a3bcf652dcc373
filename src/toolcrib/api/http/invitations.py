"""Invitations for people without an account: owners create, list and revoke them; the link lets someone join."""

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import Field, SecretStr

from toolcrib.api.api_services import ApiServices, Injected
from toolcrib.api.auth.principal import APerson, tenant_for
from toolcrib.api.http.accounts import Password, TokenOut, address_of, logged_in
from toolcrib.api.http_errors import examples
from toolcrib.api.openapi_document import PUBLIC
from toolcrib.api.pause_notices import origin_of
from toolcrib.api.request_guard import StrictRoute
from toolcrib.api.schema_base import Email, InModel, Name, OutModel, Page
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import Forbidden
from toolcrib.core.ids import InvitationId

router = APIRouter(prefix="/workspaces/{workspace_id}/invitations", tags=["members"], route_class=StrictRoute)
public = APIRouter(prefix="/auth/invitations", tags=["auth"], route_class=StrictRoute)


class NewInvitation(InModel):
    email: Email
    role: WorkspaceRole = WorkspaceRole.MEMBER


class InvitationAnswer(OutModel):
    id: UUID
    email: str = Field(examples=["ada@example.com"])
    role: WorkspaceRole
    invited_by: UUID
    created_at: datetime
    expires_at: datetime


class NewInvitationAnswer(InvitationAnswer):
    token: str = Field(examples=["tci_…"], description="Creates one account. It is not shown again.")
    link: str = Field(description="The link for creating the account. Send it only to the invited person.")


class Acceptance(InModel):
    """The new account. The invitation sets its email address and role."""

    token: SecretStr = Field(max_length=200, description="The part after `#invitation=` in the link.")
    password: Password
    full_name: Name | None = Field(default=None, examples=["Ada Lovelace"])


@router.post(
    "",
    status_code=201,
    responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "CONFLICT"),
    name="create_invitation",
)
async def create(
    workspace_id: UUID, given: NewInvitation, request: Request, principal: APerson, services: Injected
) -> NewInvitationAnswer:
    """Invite someone who has no account. Owners only. Replaces an earlier invitation of the same address."""
    _reject_where_disabled(services)
    made, token = await services.invitations.create(
        tenant_for(principal, workspace_id), email=given.email, role=given.role
    )
    shown = InvitationAnswer.model_validate(made).model_dump()
    return NewInvitationAnswer(**shown, token=token, link=f"{origin_of(request)}/#invitation={token}")


@router.get("", responses=examples("INVALID_TOKEN", "FORBIDDEN"), name="list_invitations")
async def list_all(workspace_id: UUID, principal: APerson, services: Injected) -> Page[InvitationAnswer]:
    """List the invitations that can still be accepted, oldest first. Owners only."""
    found = await services.invitations.list(tenant_for(principal, workspace_id))
    return Page(items=[InvitationAnswer.model_validate(one) for one in found])


@router.delete(
    "/{invitation_id}",
    status_code=204,
    responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"),
    name="revoke_invitation",
)
async def revoke(workspace_id: UUID, invitation_id: UUID, principal: APerson, services: Injected) -> None:
    """Revoke a pending invitation. Owners only."""
    await services.invitations.revoke(tenant_for(principal, workspace_id), InvitationId(invitation_id))


@public.post(
    "/accept",
    status_code=201,
    openapi_extra=PUBLIC,
    responses=examples("VALIDATION_ERROR", "FORBIDDEN", "CONFLICT", "RATE_LIMITED"),
    name="accept_invitation",
)
async def accept(given: Acceptance, request: Request, response: Response, services: Injected) -> TokenOut:
    """Accept an invitation: creates the account, adds it to the workspace and logs in. An invitation works once."""
    _reject_where_disabled(services)
    services.limits.registration.take(address_of(request))
    password_hash = await services.passwords.hash(given.password.get_secret_value())
    profile = await services.invitations.accept(
        given.token.get_secret_value(), full_name=given.full_name, password_hash=password_hash
    )
    return await logged_in(response, services, profile.user_id, 0)


def _reject_where_disabled(services: ApiServices) -> None:
    if not services.settings.invitations:
        raise Forbidden("Invitations are closed on this server. Ask its operator for an account.")
