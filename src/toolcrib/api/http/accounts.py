"""Accounts: registration, login, token refresh, logout, and API keys."""

from datetime import timedelta

from fastapi import Request, Response

from toolcrib.api.api_services import ApiServices, Injected
from toolcrib.api.auth.principal import (
    PUBLIC,
    REFRESH_COOKIE,
    APerson,
    LoggedIn,
    authenticate,
    clear_login,
    reject_foreign_page,
    require_person,
    set_login,
)
from toolcrib.api.http_errors import examples
from toolcrib.api.routers import api_router
from toolcrib.core.errors import Forbidden, Unauthenticated
from toolcrib.core.ids import KeyId, UserId
from toolcrib.schemas.accounts import (
    ApiKeyCreate,
    ApiKeyCreatedOut,
    ApiKeyOut,
    LoginIn,
    LoginLinkIn,
    LogoutIn,
    RefreshIn,
    RegisterIn,
    RegistrationOut,
    TokenOut,
    UserOut,
)
from toolcrib.schemas.schema_base import Page
from toolcrib.storage.users import ActingUser

router = api_router("/auth", tag="auth", needs_login=False)
keys_router = api_router("/api-keys", tag="API keys")

# How far apart two tabs that share a cookie may use the same refresh token.
_OVERLAP = timedelta(seconds=10)


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
        if services.shared_limits is not None:
            await services.shared_limits.require_registration(address_of(request))
        create = services.accounts.create_user
    else:
        raise Forbidden("Registration is closed on this server. Ask its operator for an account.")
    password_hash = await services.passwords.hash(given.password.get_secret_value(), address=address_of(request))
    profile = await create(email=given.email, full_name=given.full_name, password_hash=password_hash)
    return UserOut.model_validate(profile)


@router.get("/registration", openapi_extra=PUBLIC)
async def registration(services: Injected) -> RegistrationOut:
    """Return whether anyone may create an account, and whether a login in a browser needs HTTPS."""
    settings = services.settings
    return RegistrationOut(open=settings.open_registration, secure_cookies=settings.secure_cookies)


@router.post("/login", openapi_extra=PUBLIC, responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "RATE_LIMITED"))
async def login(given: LoginIn, request: Request, response: Response, services: Injected) -> TokenOut:
    """Log in. Returns an access and a refresh token, and sets both as cookies for browsers."""
    who = (address_of(request), given.email)
    services.limits.login.take(who)
    if services.shared_limits is not None:
        await services.shared_limits.require_login(*who)
    found = await services.accounts.find_login(given.email)
    stored = found.password_hash if found else None
    right = await services.passwords.matches(given.password.get_secret_value(), stored, address=who[0])
    if found is None or not right:
        raise Unauthenticated("Wrong email address or password.")
    services.limits.login.forget(who)
    if services.shared_limits is not None:
        await services.shared_limits.forget_login(*who)
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
        principal = await require_person(await authenticate(request, services))
        if everywhere:
            await services.accounts.end_all_tokens(principal.person)
    clear_login(response, services.settings)


@router.get("/me", responses=examples("INVALID_TOKEN", "FORBIDDEN"))
async def me(principal: APerson, services: Injected) -> UserOut:
    """Return the user of the token."""
    return UserOut.model_validate(await services.accounts.profile(principal.person))


# API keys. Keys of agents are created in ``agents``; both kinds are listed and revoked here.


@keys_router.post("", status_code=201, responses=examples("VALIDATION_ERROR", "CONFLICT"))
async def create_api_key(given: ApiKeyCreate, principal: LoggedIn, services: Injected) -> ApiKeyCreatedOut:
    """Create a key that may do what its user may, except creating and revoking keys."""
    key, secret = await services.keys.create(principal.person, name=given.name, expires_at=given.expires_at)
    return ApiKeyCreatedOut.model_validate({"key": key, "secret": secret})


@keys_router.get("")
async def list_api_keys(principal: APerson, services: Injected) -> Page[ApiKeyOut]:
    """List the keys that you created, for yourself and for agents."""
    return Page[ApiKeyOut].of(await services.keys.list(principal.person))


@keys_router.delete("/{key_id}", status_code=204, responses=examples("NOT_FOUND"))
async def revoke_api_key(key_id: KeyId, principal: LoggedIn, services: Injected) -> None:
    """Revoke a key. It ends at once."""
    await services.keys.revoke(principal.person, key_id)


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
