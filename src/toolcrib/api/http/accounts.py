"""Accounts: registration, passwords, logins, token refresh, logout, and API keys."""

from datetime import timedelta

from fastapi import Request, Response
from pydantic import SecretStr

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
from toolcrib.core.ids import KeyId, LoginId, UserId
from toolcrib.schemas.accounts import (
    ApiKeyCreate,
    ApiKeyCreatedOut,
    ApiKeyOut,
    LoginIn,
    LoginLinkIn,
    LoginOut,
    LogoutIn,
    PasswordChangeIn,
    PasswordResetIn,
    RefreshIn,
    RegisterIn,
    RegistrationOut,
    TokenOut,
    UserOut,
)
from toolcrib.schemas.schema_base import Page
from toolcrib.storage.users import ActingUser, LoginClient, StoredLogin

router = api_router("/auth", tag="auth", needs_login=False)
keys_router = api_router("/api-keys", tag="API keys")

# How far apart two tabs that share a cookie may use the same refresh token.
_OVERLAP = timedelta(seconds=10)
_CLIENT_CHARACTERS = 300


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
    found = await services.accounts.find_login(given.email)
    if not await _knows_password(services, request, given.email, given.password, found) or found is None:
        raise Unauthenticated("Wrong email address or password.")
    return await logged_in(request, response, services, found.user_id, found.token_version)


@router.post("/link", openapi_extra=PUBLIC, responses=examples("VALIDATION_ERROR", "INVALID_TOKEN"))
async def use_link(given: LoginLinkIn, request: Request, response: Response, services: Injected) -> TokenOut:
    """Log in with a link that was created on the server's machine (`toolcrib web`). A link works once."""
    # Not rate-limited: a signature cannot be guessed, and the holder of the link must get in.
    claims = services.login_links.redeem(given.link.get_secret_value())
    # A user who ended all logins meant this one too.
    await services.accounts.profile(ActingUser(claims.user_id, claims.version))
    return await logged_in(request, response, services, claims.user_id, claims.version)


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
    refreshed = await services.accounts.rotate_refresh_token(
        secret, lifetime=_lifetime(services), overlap=overlap, client=_client_of(request)
    )
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


# Passwords


@router.post("/password", responses=examples("VALIDATION_ERROR", "INVALID_TOKEN", "FORBIDDEN", "CONFLICT"))
async def change_password(
    given: PasswordChangeIn, principal: LoggedIn, request: Request, response: Response, services: Injected
) -> TokenOut:
    """Change your password. Ends all other logins at once; API keys stay valid. Returns a new login."""
    own = await services.accounts.stored_login(principal.person)
    if not await _knows_password(services, request, own.email, given.current_password, own):
        raise Forbidden("The current password is wrong.")
    password_hash = await services.passwords.hash(given.new_password.get_secret_value(), address=address_of(request))
    version = await services.accounts.change_password(principal.person, checked=own, password_hash=password_hash)
    return await logged_in(request, response, services, own.user_id, version)


@router.post(
    "/password/reset", openapi_extra=PUBLIC, responses=examples("VALIDATION_ERROR", "FORBIDDEN", "RATE_LIMITED")
)
async def reset_password(given: PasswordResetIn, request: Request, response: Response, services: Injected) -> TokenOut:
    """Set a new password with a link of an administrator, and log in. Ends all other logins and API keys."""
    services.limits.registration.take(address := address_of(request))
    if services.shared_limits is not None:
        await services.shared_limits.require_registration(address)
    password_hash = await services.passwords.hash(given.password.get_secret_value(), address=address)
    found = await services.accounts.reset_password(given.token.get_secret_value(), password_hash)
    return await logged_in(request, response, services, found.user_id, found.token_version)


# Logins


@router.get("/logins", responses=examples("INVALID_TOKEN", "FORBIDDEN"))
async def list_logins(principal: APerson, request: Request, services: Injected) -> Page[LoginOut]:
    """List your logins on all devices, the one that was used last first."""
    current = request.cookies.get(REFRESH_COOKIE)
    return Page[LoginOut].of(await services.accounts.logins(principal.person, current=current))


@router.delete("/logins", status_code=204, responses=examples("INVALID_TOKEN", "FORBIDDEN"))
async def end_other_logins(principal: LoggedIn, request: Request, services: Injected) -> None:
    """End all your logins except that of this request's refresh cookie. Access tokens end at once: refresh yours."""
    current = request.cookies.get(REFRESH_COOKIE)
    await services.accounts.end_other_logins(principal.person, current=current)


@router.delete("/logins/{login_id}", status_code=204, responses=examples("INVALID_TOKEN", "FORBIDDEN", "NOT_FOUND"))
async def end_login(login_id: LoginId, principal: LoggedIn, services: Injected) -> None:
    """End one login. All your access tokens end at once; your other logins get new ones with their refresh tokens."""
    await services.accounts.end_login(principal.person, login_id)


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


async def _knows_password(
    services: ApiServices, request: Request, email: str, password: SecretStr, found: StoredLogin | None
) -> bool:
    """Check a password, and count the attempt."""
    who = (address_of(request), email)
    services.limits.login.take(who)
    if services.shared_limits is not None:
        await services.shared_limits.require_login(*who)
    stored = found.password_hash if found else None
    if not await services.passwords.matches(password.get_secret_value(), stored, address=who[0]):
        return False
    services.limits.login.forget(who)
    if services.shared_limits is not None:
        await services.shared_limits.forget_login(*who)
    return True


def _client_of(request: Request) -> LoginClient:
    name = "".join(character for character in request.headers.get("user-agent", "") if character.isprintable())
    return LoginClient(address_of(request), name[:_CLIENT_CHARACTERS])


def _lifetime(services: ApiServices) -> timedelta:
    return timedelta(days=services.settings.refresh_token_days)


def _refresh_token(request: Request, services: ApiServices, given: RefreshIn | None) -> str | None:
    if given is not None and given.refresh_token is not None:
        return given.refresh_token
    secret = request.cookies.get(REFRESH_COOKIE)
    if secret is not None:
        reject_foreign_page(request, services)
    return secret


async def logged_in(
    request: Request, response: Response, services: ApiServices, user_id: UserId, token_version: int
) -> TokenOut:
    """Create tokens for a login and set the cookies."""
    refresh_token = await services.accounts.store_refresh_token(
        user_id, lifetime=_lifetime(services), client=_client_of(request)
    )
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
