"""Authenticates requests by header or cookie. The database transaction of the request checks the membership."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit
from uuid import UUID

from fastapi import Depends, Response
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from toolcrib.api.access_tokens import INVALID
from toolcrib.api.api_services import ApiServices, Injected
from toolcrib.core.callers import Agent, Caller
from toolcrib.core.errors import BadArguments, Forbidden, Unauthenticated
from toolcrib.core.ids import KeyId, SessionId, UserId, WorkspaceId
from toolcrib.settings import Settings
from toolcrib.storage.database import NOT_A_MEMBER, Tenant
from toolcrib.storage.users import KEY_PREFIX, ActingUser

# The two cookies of a browser login: not readable by scripts, and not sent by forms of other sites.

ACCESS_COOKIE: Final = "access_token"
REFRESH_COOKIE: Final = "refresh_token"
# The refresh token is sent only to the routes that use it.
_REFRESH_PATH: Final = "/api/v1/auth"
_DAY: Final = 24 * 60 * 60


def set_login(response: Response, settings: Settings, *, access_token: str, refresh_token: str) -> None:
    """Set the login cookies."""
    _set(response, settings, ACCESS_COOKIE, access_token, "/", settings.access_token_minutes * 60)
    _set(response, settings, REFRESH_COOKIE, refresh_token, _REFRESH_PATH, settings.refresh_token_days * _DAY)


def clear_login(response: Response, settings: Settings) -> None:
    """Delete the login cookies."""
    _set(response, settings, ACCESS_COOKIE, "", "/", 0)
    _set(response, settings, REFRESH_COOKIE, "", _REFRESH_PATH, 0)


def _set(response: Response, settings: Settings, name: str, value: str, path: str, max_age: int) -> None:
    response.set_cookie(
        name, value, max_age=max_age, path=path, secure=settings.secure_cookies, httponly=True, samesite="lax"
    )


# For routes without authentication: ``openapi_extra=PUBLIC``.
PUBLIC: Final[dict[str, Any]] = {"security": []}

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated user or agent. An agent's key is bound to its workspace."""

    user_id: UserId
    token_version: int
    via: Literal["bearer", "cookie", "key", "ticket"]
    agent: Agent | None = None
    workspace_id: WorkspaceId | None = None
    key_id: KeyId | None = None

    @property
    def person(self) -> ActingUser:
        """The acting user, for storage."""
        return ActingUser(self.user_id, self.token_version)


async def authenticate(connection: HTTPConnection, services: Injected) -> Principal:
    """Return the principal; the header takes precedence over the cookie.

    Raises:
        Unauthenticated: The request has no valid credentials.
    """
    token = bearer(connection)
    cookie = connection.cookies.get(ACCESS_COOKIE) if "cookie" in connection.headers else None
    if token is None and cookie is None:
        raise Unauthenticated(INVALID)
    if token is None:
        assert cookie is not None
        reject_foreign_page(connection, services)
        return _by_access_token(services, cookie, "cookie")
    principal = await principal_by_token(services, token)
    if cookie is not None:
        _reject_another(services, cookie, principal)
    return principal


def reject_foreign_page(connection: HTTPConnection, services: ApiServices) -> None:
    """Raise Forbidden if another site's page makes a browser use its cookies. WebSockets are always checked."""
    if connection.scope.get("method") in _SAFE_METHODS:
        return
    if not may_use_cookies(connection.headers, services.settings.allowed_origins):
        raise Forbidden("Requests with a cookie must come from this server's own pages (Origin header).")


def reject_foreign_origin(connection: HTTPConnection, services: ApiServices) -> None:
    """Raise Forbidden for a page of another site, whatever credentials it brings. Programs send no Origin."""
    origin = connection.headers.get("origin")
    if origin is not None and not may_use_cookies(connection.headers, services.settings.allowed_origins):
        raise Forbidden(f"Origin {origin!r} is not allowed. The operator can add it to TOOLCRIB_ALLOWED_ORIGINS.")


def may_use_cookies(headers: Headers, allowed_origins: Sequence[str]) -> bool:
    """Return whether the page that sent this request is same-origin or allowed. Without an origin it is not."""
    # An empty Origin header is no origin: only a request without the header may show its page by its Referer.
    origin = headers.get("origin", _origin_of(headers.get("referer", "")))
    if origin in allowed_origins:
        return True
    scheme, _, host = origin.partition("://")
    return scheme in ("http", "https") and host != "" and host.lower() == headers.get("host", "").lower()


def _origin_of(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}"


Authenticated = Annotated[Principal, Depends(authenticate)]


async def require_person(principal: Authenticated) -> Principal:
    """Return the principal if it is a person."""
    if principal.agent is not None:
        raise Forbidden("An agent's API key can only call tools and read files. Use a person's key or log in.")
    return principal


APerson = Annotated[Principal, Depends(require_person)]


async def _present(principal: APerson, services: Injected) -> Principal:
    await services.accounts.require(principal.person)
    return principal


# A person whose token is checked in the database, for routes that do something before their own check.
Present = Annotated[Principal, Depends(_present)]


async def _logged_in(principal: APerson) -> Principal:
    # A key that could create keys would outlive its own revocation.
    if principal.via == "key":
        raise Forbidden("API keys cannot create or revoke API keys. Log in instead.")
    return principal


LoggedIn = Annotated[Principal, Depends(_logged_in)]


def caller_for(
    principal: Principal,
    workspace_id: UUID,
    *,
    agent: Agent | None = None,
    session_id: UUID | None = None,
    via: str = "rest",
) -> Caller:
    """Return the caller in a workspace.

    Args:
        agent: The agent that a person asks about; an agent's own key always acts as that agent.

    Raises:
        Forbidden: The key belongs to an agent of another workspace.
    """
    if principal.workspace_id is not None and principal.workspace_id != workspace_id:
        raise Forbidden(NOT_A_MEMBER)
    return Caller(
        workspace_id=WorkspaceId(workspace_id),
        user_id=principal.user_id,
        agent=principal.agent or agent,
        session_id=None if session_id is None else SessionId(session_id),
        token_version=principal.token_version,
        via=via,
    )


def workspace_id_of(text: str) -> WorkspaceId:
    """Parse the workspace id of a URL, where FastAPI does not."""
    try:
        return WorkspaceId(UUID(text))
    except ValueError:
        raise BadArguments({"workspace_id": "Input should be a valid UUID"}) from None


def tenant_for(principal: Principal, workspace_id: UUID) -> Tenant:
    """Return the tenant of a principal in a workspace."""
    return Tenant.of(caller_for(principal, workspace_id))


def bearer(connection: HTTPConnection) -> str | None:
    """Return the token of the Authorization header."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


async def principal_by_token(services: ApiServices, token: str) -> Principal:
    """Return the principal of an access token or an API key."""
    if not token.startswith(KEY_PREFIX):
        return _by_access_token(services, token, "bearer")
    holder = await services.keys.find(token)
    if holder is None:
        raise Unauthenticated("This API key is invalid, revoked or expired.")
    return Principal(holder.user_id, holder.token_version, "key", holder.agent, holder.workspace_id, holder.key_id)


def _by_access_token(services: ApiServices, token: str, via: Literal["bearer", "cookie"]) -> Principal:
    claims = services.tokens.verify(token)
    return Principal(claims.user_id, claims.version, via)


def _reject_another(services: ApiServices, cookie: str, principal: Principal) -> None:
    """Reject a request whose header and cookie identify two people: a confused client, or an attack."""
    try:
        user_id = services.tokens.verify(cookie).user_id
    except Unauthenticated:
        return
    if user_id != principal.user_id:
        raise Unauthenticated("Authorization header and cookie belong to different users. Send one of them.")
