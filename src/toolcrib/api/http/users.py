"""Accounts of this server, for its administrators: listing, disabling, and resetting passwords."""

from fastapi import Request

from toolcrib.api.api_services import Injected
from toolcrib.api.auth.principal import APerson, LoggedIn
from toolcrib.api.http_errors import examples
from toolcrib.api.pause_notices import origin_of
from toolcrib.api.routers import api_router
from toolcrib.core.ids import UserId
from toolcrib.schemas.accounts import AccountOut, AccountUpdate, PasswordResetOut
from toolcrib.schemas.schema_base import Page

router = api_router("/users", tag="users")


@router.get("")
async def list_users(principal: APerson, services: Injected) -> Page[AccountOut]:
    """List all accounts, oldest first. Administrators only."""
    return Page[AccountOut].of(await services.user_admin.list(principal.person))


@router.patch("/{user_id}", responses=examples("VALIDATION_ERROR", "NOT_FOUND", "CONFLICT"))
async def change_user(user_id: UserId, given: AccountUpdate, principal: LoggedIn, services: Injected) -> AccountOut:
    """Disable or enable an account, or make it an administrator. Administrators only, and not their own account.

    A disabled account loses its logins, API keys and connections within seconds, and stays without them when it is
    enabled. Its runs end before their next step.
    """
    account = await services.user_admin.change(
        user_id, disabled=given.is_disabled, administrator=given.is_administrator, by=principal.person
    )
    return AccountOut.model_validate(account)


@router.post("/{user_id}/password-reset", status_code=201, responses=examples("NOT_FOUND", "CONFLICT"))
async def create_password_reset(
    user_id: UserId, request: Request, principal: LoggedIn, services: Injected
) -> PasswordResetOut:
    """Create a link with which a person sets a new password, once and within a day. Administrators only.

    The response shows the link once. It replaces the link before it. The old password works until the link is used.
    """
    made = await services.user_admin.start_password_reset(user_id, principal.person)
    return PasswordResetOut(link=f"{origin_of(request)}/#reset={made.secret}", expires_at=made.expires_at)
