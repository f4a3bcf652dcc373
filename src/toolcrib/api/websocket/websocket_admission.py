"""Who may open a connection: by header, by cookie from our own pages, by ticket, or by a first message."""

import asyncio
from typing import Final
from uuid import UUID

from fastapi import WebSocket

from toolcrib.api.allowed_hosts import may_use_cookies
from toolcrib.api.api_services import ApiServices
from toolcrib.api.auth.connection_auth import ConnectionAuth, auth_by_headers, auth_by_secret, auth_by_ticket
from toolcrib.api.auth.principal import ACCESS_COOKIE, bearer, require_person, tenant_for
from toolcrib.api.websocket.chat_messages import AuthMessage, introduction
from toolcrib.api.websocket.websocket_connection import silent
from toolcrib.core.errors import BadArguments, Forbidden, Unauthenticated
from toolcrib.storage.database import NOT_A_MEMBER

CHAT: Final = "toolcrib.chat"
PLAIN: Final = "toolcrib.plain"
_TICKET: Final = "toolcrib.ticket."
# An address is logged by every proxy on the way.
_SECRETS_IN_ADDRESS: Final = frozenset({"token", "access_token", "ticket", "key", "api_key", "authorization"})


def protocol_of(websocket: WebSocket) -> str | None:
    """The first of our protocols that the client offers; none if it offers none, and then it speaks chat."""
    return next((offered for offered in websocket.scope["subprotocols"] if offered in (CHAT, PLAIN)), None)


def refuse_strange_pages(websocket: WebSocket, services: ApiServices) -> None:
    """Whatever else it brings, a page of another site does not get in. Programs send no Origin."""
    secrets = _SECRETS_IN_ADDRESS & {name.lower() for name in websocket.query_params}
    if secrets:
        raise BadArguments(
            dict.fromkeys(sorted(secrets), "Expected in a header or a first message, never in the address")
        )
    if "origin" in websocket.headers and not may_use_cookies(websocket.headers, services.settings.allowed_origins):
        raise Forbidden(
            f"Pages from {websocket.headers['origin']!r} may not connect here. The operator lists those that may in "
            "TOOLCRIB_ALLOWED_ORIGINS."
        )


async def known_before(websocket: WebSocket, services: ApiServices, workspace_id: UUID) -> ConnectionAuth | None:
    """Who it is as far as the request says; none if that is left to the first message."""
    for offered in websocket.scope["subprotocols"]:
        if offered.startswith(_TICKET):
            return await _let_in_by_ticket(services, offered.removeprefix(_TICKET), workspace_id)
    if bearer(websocket) is not None:
        return await let_in(services, await auth_by_headers(services, websocket), workspace_id)
    if ACCESS_COOKIE not in websocket.cookies:
        return None
    try:
        authority = await auth_by_headers(services, websocket)
    except Unauthenticated:
        # A browser sends an old cookie whether its page wants it or not.
        return None
    return await let_in(services, authority, workspace_id)


async def introduced(websocket: WebSocket, services: ApiServices, workspace_id: UUID) -> ConnectionAuth:
    """Who it is by the first message."""
    try:
        async with asyncio.timeout(services.doors.pace.introduce):
            message = await websocket.receive()
    except TimeoutError:
        raise silent() from None
    if message["type"] == "websocket.disconnect":
        raise silent()
    return await by_introduction(services, await introduction(message), workspace_id)


async def by_introduction(services: ApiServices, said: AuthMessage, workspace_id: UUID) -> ConnectionAuth:
    if said.ticket is not None:
        return await _let_in_by_ticket(services, said.ticket, workspace_id)
    return await let_in(services, await auth_by_secret(services, said.token or ""), workspace_id)


async def let_in(services: ApiServices, authority: ConnectionAuth, workspace_id: UUID) -> ConnectionAuth:
    """The same, if it is a person who belongs to the workspace."""
    await require_person(authority.principal)
    await services.workspaces.get(tenant_for(authority.principal, workspace_id))
    return authority


async def _let_in_by_ticket(services: ApiServices, secret: str, workspace_id: UUID) -> ConnectionAuth:
    authority, leads_to = await auth_by_ticket(services, secret)
    if leads_to != workspace_id:
        raise Forbidden(NOT_A_MEMBER)
    return await let_in(services, authority, workspace_id)
