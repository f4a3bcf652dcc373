"""Who is asking. Whether they belong to a workspace is found out in the database trip that serves them."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal
from uuid import UUID

from fastapi import Depends
from starlette.requests import HTTPConnection

from toolcrib.domain.callers import Agent, Caller
from toolcrib.domain.errors import Forbidden, Unauthenticated
from toolcrib.domain.ids import SessionId, UserId, WorkspaceId
from toolcrib.domain.sessions import Mode
from toolcrib.server import cookies
from toolcrib.server.hosts import may_use_cookies
from toolcrib.server.services import Services, services_of
from toolcrib.server.tokens import INVALID
from toolcrib.storage.accounts import Person
from toolcrib.storage.database import NOT_A_MEMBER, Tenant
from toolcrib.storage.secrets import KEY_PREFIX

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Principal:
    """Someone who proved who they are. An agent's key is bound to its workspace."""

    user_id: UserId
    token_version: int
    via: Literal["bearer", "cookie", "key", "ticket"]
    agent: Agent | None = None
    workspace_id: WorkspaceId | None = None

    @property
    def person(self) -> Person:
        return Person(self.user_id, self.token_version)


async def authenticate(connection: HTTPConnection) -> Principal:
    """The principal, by header before cookie; Unauthenticated if there is none."""
    services = services_of(connection)
    token = bearer(connection)
    cookie = connection.cookies.get(cookies.ACCESS) if "cookie" in connection.headers else None
    if token is None and cookie is None:
        raise Unauthenticated(INVALID)
    if token is None:
        assert cookie is not None
        refuse_foreign_page(connection, services)
        return _by_access_token(services, cookie, "cookie")
    principal = await by_token(services, token)
    if cookie is not None:
        _refuse_another(services, cookie, principal)
    return principal


def refuse_foreign_page(connection: HTTPConnection, services: Services) -> None:
    """Forbidden if another site's page makes a browser act with its cookies. A web socket always acts."""
    if connection.scope.get("method") in _SAFE_METHODS:
        return
    if not may_use_cookies(connection.headers, services.settings.allowed_origins):
        raise Forbidden("With a cookie, a request must come from this server's own pages (Origin header).")


Authenticated = Annotated[Principal, Depends(authenticate)]


async def a_person(principal: Authenticated) -> Principal:
    """The principal, if it is no agent."""
    if principal.agent is not None:
        raise Forbidden("An agent's key is for tools and for reading files. This needs a person.")
    return principal


APerson = Annotated[Principal, Depends(a_person)]


async def _logged_in(principal: APerson) -> Principal:
    # A key that could make keys would outlive its own revocation.
    if principal.via == "key":
        raise Forbidden("Keys are made and revoked by someone who is logged in, not by a key.")
    return principal


LoggedIn = Annotated[Principal, Depends(_logged_in)]


def caller_for(
    principal: Principal,
    workspace_id: UUID,
    *,
    agent: Agent | None = None,
    session_id: UUID | None = None,
    via: str = "rest",
    mode: Mode = Mode.BUILD,
) -> Caller:
    """The caller in a workspace; Forbidden for an agent's key from another one.

    ``agent`` is one that a person asks about; an agent's own key always acts as that agent.
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
        mode=mode,
    )


def tenant_for(principal: Principal, workspace_id: UUID) -> Tenant:
    return Tenant.of(caller_for(principal, workspace_id))


def bearer(connection: HTTPConnection) -> str | None:
    """The token of the Authorization header."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


async def by_token(services: Services, token: str) -> Principal:
    """The principal of an access token or an API key, however it was brought."""
    if not token.startswith(KEY_PREFIX):
        return _by_access_token(services, token, "bearer")
    holder = await services.keys.find(token)
    if holder is None:
        raise Unauthenticated("This API key is not valid, or no longer.")
    return Principal(holder.user_id, holder.token_version, "key", holder.agent, holder.workspace_id)


def _by_access_token(services: Services, token: str, via: Literal["bearer", "cookie"]) -> Principal:
    claims = services.tokens.verify(token)
    return Principal(claims.user_id, claims.version, via)


def _refuse_another(services: Services, cookie: str, principal: Principal) -> None:
    """Header and cookie of two people: a confused client, or a trick. Either way we do not choose."""
    try:
        user_id = services.tokens.verify(cookie).user_id
    except Unauthenticated:
        return
    if user_id != principal.user_id:
        raise Unauthenticated("Authorization header and cookie belong to different users. Send one of them.")
