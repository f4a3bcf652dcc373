"""Registration, login, token refresh and logout."""

from datetime import datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict, Field, SecretStr

from toolcrib.api.api_services import ApiServices, Injected
from toolcrib.api.auth.principal import (
    REFRESH_COOKIE,
    APerson,
    authenticate,
    clear_login,
    reject_foreign_page,
    require_person,
    set_login,
)
from toolcrib.api.http_errors import examples
from toolcrib.api.openapi_document import PUBLIC
from toolcrib.api.request_guard import StrictRoute
from toolcrib.api.schema_base import Email, InModel, Name, OutModel
from toolcrib.core.errors import Forbidden, Unauthenticated
from toolcrib.core.ids import UserId
from toolcrib.storage.users import ActingUser, UserProfile

router = APIRouter(prefix="/auth", tags=["auth"], route_class=StrictRoute)

# How far apart two tabs that share a cookie may use the same refresh token.
_OVERLAP = timedelta(seconds=10)

Password = Annotated[SecretStr, Field(min_length=12, max_length=1024, examples=["correct horse battery staple"])]


class RegisterIn(InModel):
    email: Email
    password: Password
    full_name: Name | None = Field(default=None, examples=["Ada Lovelace"])
    setup: SecretStr | None = Field(
        default=None,
        max_length=2_000,
        description="The part after `#setup=` in the link for creating the first account.",
    )


class LoginIn(InModel):
    email: Email
    # No minimum length: a wrong password is a wrong password.
    password: SecretStr = Field(max_length=1024, examples=["correct horse battery staple"])


class RefreshIn(InModel):
    refresh_token: str | None = Field(
        default=None, max_length=200, description="By default, the refresh token in the cookie."
    )


class LogoutIn(RefreshIn):
    everywhere: bool = Field(default=False, description="End all logins of this user. Requires an access token.")


class LoginLinkIn(InModel):
    link: SecretStr = Field(max_length=2_000, description="The part after `#login=` in a login link.")


class RegistrationAnswer(OutModel):
    open: bool


class UserOut(OutModel):
    id: UUID
    email: str = Field(examples=["ada@example.com"])
    full_name: str | None = Field(examples=["Ada Lovelace"])
    created_at: datetime


class TokenOut(OutModel):
    """The tokens of a login."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "access_token": "eyJhbGciOiJIUzI1NiIs…",
                    "token_type": "bearer",
                    "expires_in": 900,
                    "refresh_token": "tcr_…",
                }
            ]
        }
    )

    access_token: str
    token_type: Literal["bearer"] = "bearer"  # noqa: S105 - not a password
    expires_in: int = Field(description="Lifetime in seconds.")
    refresh_token: str = Field(description="Can be used once.")


@router.post(
    "/register",
    status_code=201,
    openapi_extra=PUBLIC,
    responses=examples("VALIDATION_ERROR", "FORBIDDEN", "CONFLICT", "RATE_LIMITED"),
)
async def register(given: RegisterIn, request: Request, services: Injected) -> UserOut:
    """Create an account: anyone if registration is open, or with a setup link while there is no account."""
    if given.setup is not None:
        services.setup_links.check(given.setup.get_secret_value())
        create = services.accounts.create_first_user
    elif services.settings.open_registration:
        services.limits.registration.take(address_of(request))
        create = services.accounts.create_user
    else:
        raise Forbidden("Registration is closed on this server. Ask its operator for an account.")
    password_hash = await services.passwords.hash(given.password.get_secret_value())
    return _user(await create(email=given.email, full_name=given.full_name, password_hash=password_hash))


@router.get("/registration", openapi_extra=PUBLIC)
async def registration(services: Injected) -> RegistrationAnswer:
    """Return whether anyone may create an account."""
    return RegistrationAnswer(open=services.settings.open_registration)


@router.post("/login", openapi_extra=PUBLIC, responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "RATE_LIMITED"))
async def login(given: LoginIn, request: Request, response: Response, services: Injected) -> TokenOut:
    """Log in. Returns an access and a refresh token, and sets both as cookies for browsers."""
    who = (address_of(request), given.email)
    services.limits.login.take(who)
    found = await services.accounts.find_login(given.email)
    right = await services.passwords.matches(given.password.get_secret_value(), found.password_hash if found else None)
    if found is None or not right:
        raise Unauthenticated("Wrong email address or password.")
    services.limits.login.forget(who)
    return await logged_in(response, services, found.user_id, found.token_version)


@router.post("/link", openapi_extra=PUBLIC, responses=examples("VALIDATION_ERROR", "INVALID_TOKEN"))
async def use_link(given: LoginLinkIn, response: Response, services: Injected) -> TokenOut:
    """Log in with a link that was created on the server's machine (`toolcrib web`). A link works once."""
    # Not rate-limited: a signature cannot be guessed, and the holder of the link must get in.
    claims = services.login_links.redeem(given.link.get_secret_value())
    # A user who ended all logins meant this one too.
    await services.accounts.profile(ActingUser(claims.user_id, claims.version))
    return await logged_in(response, services, claims.user_id, claims.version)


@router.post("/refresh", openapi_extra=PUBLIC, responses=examples("INVALID_TOKEN", "FORBIDDEN", "CONFLICT"))
async def refresh(request: Request, response: Response, services: Injected, given: RefreshIn | None = None) -> TokenOut:
    """Exchange a refresh token for new tokens. A token that was used before ends its login.

    Tabs of a browser share a cookie: a token that was used seconds ago gets a 409 and ends nothing. Try again.
    """
    secret = _refresh_token(request, services, given)
    if secret is None:
        raise Unauthenticated("No refresh token found in body or cookie.")
    by_cookie = given is None or given.refresh_token is None
    overlap = _OVERLAP if by_cookie else timedelta()
    refreshed = await services.accounts.rotate_refresh_token(secret, lifetime=_lifetime(services), overlap=overlap)
    answer = _tokens(services, refreshed.user_id, refreshed.token_version, refreshed.secret)
    if by_cookie:
        _set_cookies(response, services, answer)
    return answer


@router.post("/logout", status_code=204, responses=examples("INVALID_TOKEN", "FORBIDDEN"))
async def logout(request: Request, response: Response, services: Injected, given: LogoutIn | None = None) -> None:
    """End this login, or all logins of the user. Only the latter revokes access tokens before they expire."""
    secret = _refresh_token(request, services, given)
    everywhere = given is not None and given.everywhere
    if secret is not None:
        await services.accounts.revoke_family(secret)
    if everywhere or secret is None:
        principal = await require_person(await authenticate(request))
        if everywhere:
            await services.accounts.end_all_tokens(principal.person)
    clear_login(response, services.settings)


@router.get("/me", responses=examples("INVALID_TOKEN", "FORBIDDEN"))
async def me(principal: APerson, services: Injected) -> UserOut:
    """Return the user of the token."""
    return _user(await services.accounts.profile(principal.person))


def address_of(request: Request) -> str:
    """Return the client's address, for rate limits."""
    return request.client.host if request.client else ""


def _lifetime(services: ApiServices) -> timedelta:
    return timedelta(days=services.settings.refresh_token_days)


def _refresh_token(request: Request, services: ApiServices, given: RefreshIn | None) -> str | None:
    if given is not None and given.refresh_token is not None:
        return given.refresh_token
    secret = request.cookies.get(REFRESH_COOKIE)
    if secret is not None:
        reject_foreign_page(request, services)
    return secret


async def logged_in(response: Response, services: ApiServices, user_id: UserId, token_version: int) -> TokenOut:
    """Create tokens for a login and set the cookies."""
    refresh_token = await services.accounts.store_refresh_token(user_id, lifetime=_lifetime(services))
    answer = _tokens(services, user_id, token_version, refresh_token)
    _set_cookies(response, services, answer)
    return answer


def _tokens(services: ApiServices, user_id: UserId, token_version: int, refresh_token: str) -> TokenOut:
    return TokenOut(
        access_token=services.tokens.issue(user_id, token_version),
        expires_in=services.tokens.lifetime_seconds,
        refresh_token=refresh_token,
    )


def _set_cookies(response: Response, services: ApiServices, answer: TokenOut) -> None:
    set_login(response, services.settings, access_token=answer.access_token, refresh_token=answer.refresh_token)


def _user(profile: UserProfile) -> UserOut:
    return UserOut(id=profile.user_id, email=profile.email, full_name=profile.full_name, created_at=profile.created_at)
