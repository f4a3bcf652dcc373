"""Registering, logging in, staying logged in, logging out."""

from datetime import datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict, Field, SecretStr

from toolcrib.domain.errors import Forbidden, Unauthenticated
from toolcrib.domain.ids import UserId
from toolcrib.server import cookies
from toolcrib.server.auth import APerson, a_person, authenticate, refuse_foreign_page
from toolcrib.server.bodies import StrictRoute
from toolcrib.server.errors import examples
from toolcrib.server.openapi import PUBLIC
from toolcrib.server.services import Injected, Services
from toolcrib.server.shapes import Email, Given, Name, Shown
from toolcrib.storage.accounts import Person, Profile

router = APIRouter(prefix="/auth", tags=["auth"], route_class=StrictRoute)

Password = Annotated[SecretStr, Field(min_length=12, max_length=1024, examples=["correct horse battery staple"])]


class Registration(Given):
    email: Email
    password: Password
    full_name: Name | None = Field(default=None, examples=["Ada Lovelace"])


class Credentials(Given):
    email: Email
    # Not checked for length: a wrong password is a wrong password.
    password: SecretStr = Field(max_length=1024, examples=["correct horse battery staple"])


class RefreshRequest(Given):
    refresh_token: str | None = Field(default=None, max_length=200, description="Without it, the cookie is taken.")


class LogoutRequest(RefreshRequest):
    everywhere: bool = Field(default=False, description="End every login of this person; needs an access token.")


class LinkUse(Given):
    link: SecretStr = Field(max_length=2_000, description="What follows `#login=` in a login link.")


class UserAnswer(Shown):
    id: UUID
    email: str = Field(examples=["ada@example.com"])
    full_name: str | None = Field(examples=["Ada Lovelace"])
    created_at: datetime


class TokenAnswer(Shown):
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
    token_type: Literal["bearer"] = "bearer"  # noqa: S105 - no password
    expires_in: int = Field(description="Seconds.")
    refresh_token: str = Field(description="Good for one refresh.")


@router.post(
    "/register",
    status_code=201,
    openapi_extra=PUBLIC,
    responses=examples("VALIDATION_ERROR", "FORBIDDEN", "CONFLICT", "RATE_LIMITED"),
)
async def register(given: Registration, request: Request, services: Injected) -> UserAnswer:
    """Makes an account."""
    if not services.settings.open_registration:
        raise Forbidden("Registration is closed on this server. Ask its operator for an account.")
    services.limits.registration.take(_address(request))
    password_hash = await services.passwords.hash(given.password.get_secret_value())
    profile = await services.accounts.create_user(
        email=given.email, full_name=given.full_name, password_hash=password_hash
    )
    return _user(profile)


@router.post("/login", openapi_extra=PUBLIC, responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "RATE_LIMITED"))
async def login(given: Credentials, request: Request, response: Response, services: Injected) -> TokenAnswer:
    """Gives an access and a refresh token, and sets both as cookies for browsers."""
    address = _address(request)
    services.limits.login_by_address.take(address)
    services.limits.login_by_account.take((address, given.email))
    found = await services.accounts.find_login(given.email)
    right = await services.passwords.matches(given.password.get_secret_value(), found.password_hash if found else None)
    if found is None or not right:
        raise Unauthenticated("E-mail address or password is wrong.")
    services.limits.login_by_account.forget((address, given.email))
    return await _logged_in(response, services, found.user_id, found.token_version)


@router.post("/link", openapi_extra=PUBLIC, responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "RATE_LIMITED"))
async def use_link(given: LinkUse, request: Request, response: Response, services: Injected) -> TokenAnswer:
    """Logs in by a link that was made on the server's own machine (`toolcrib web`). It is good once."""
    services.limits.login_by_address.take(_address(request))
    claims = services.login_links.redeem(given.link.get_secret_value())
    # Whoever ended all their logins meant this one too.
    await services.accounts.profile(Person(claims.user_id, claims.version))
    return await _logged_in(response, services, claims.user_id, claims.version)


@router.post("/refresh", openapi_extra=PUBLIC, responses=examples("INVALID_TOKEN", "FORBIDDEN"))
async def refresh(
    request: Request, response: Response, services: Injected, given: RefreshRequest | None = None
) -> TokenAnswer:
    """Spends a refresh token for new tokens. One that was spent already ends the login it came of."""
    secret = _refresh_token(request, services, given)
    if secret is None:
        raise Unauthenticated("No refresh token found in body or cookie.")
    refreshed = await services.accounts.rotate_refresh_token(secret, lifetime=_lifetime(services))
    answer = _tokens(services, refreshed.user_id, refreshed.token_version, refreshed.secret)
    if given is None or given.refresh_token is None:
        _set_cookies(response, services, answer)
    return answer


@router.post("/logout", status_code=204, responses=examples("INVALID_TOKEN", "FORBIDDEN"))
async def logout(request: Request, response: Response, services: Injected, given: LogoutRequest | None = None) -> None:
    """Ends this login, or all of a person's. Only the latter ends access tokens before they expire."""
    secret = _refresh_token(request, services, given)
    everywhere = given is not None and given.everywhere
    if secret is not None:
        await services.accounts.revoke_family(secret)
    if everywhere or secret is None:
        principal = await a_person(await authenticate(request))
        if everywhere:
            await services.accounts.end_all_tokens(principal.person)
    cookies.clear_login(response, services.settings)


@router.get("/me", responses=examples("INVALID_TOKEN", "FORBIDDEN"))
async def me(principal: APerson, services: Injected) -> UserAnswer:
    """Who the token belongs to."""
    return _user(await services.accounts.profile(principal.person))


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _lifetime(services: Services) -> timedelta:
    return timedelta(days=services.settings.refresh_token_days)


def _refresh_token(request: Request, services: Services, given: RefreshRequest | None) -> str | None:
    if given is not None and given.refresh_token is not None:
        return given.refresh_token
    secret = request.cookies.get(cookies.REFRESH)
    if secret is not None:
        refuse_foreign_page(request, services)
    return secret


async def _logged_in(response: Response, services: Services, user_id: UserId, token_version: int) -> TokenAnswer:
    refresh_token = await services.accounts.store_refresh_token(user_id, lifetime=_lifetime(services))
    answer = _tokens(services, user_id, token_version, refresh_token)
    _set_cookies(response, services, answer)
    return answer


def _tokens(services: Services, user_id: UserId, token_version: int, refresh_token: str) -> TokenAnswer:
    return TokenAnswer(
        access_token=services.tokens.issue(user_id, token_version),
        expires_in=services.tokens.lifetime_seconds,
        refresh_token=refresh_token,
    )


def _set_cookies(response: Response, services: Services, answer: TokenAnswer) -> None:
    cookies.set_login(response, services.settings, access_token=answer.access_token, refresh_token=answer.refresh_token)


def _user(profile: Profile) -> UserAnswer:
    return UserAnswer(
        id=profile.user_id, email=profile.email, full_name=profile.full_name, created_at=profile.created_at
    )
