"""Who may open a connection: by header, by cookie from our own pages, by ticket, or by a first message."""

import asyncio
from typing import Final
from uuid import UUID

from fastapi import WebSocket

from toolcrib.domain.errors import BadArguments, Forbidden, Unauthenticated
from toolcrib.server import cookies
from toolcrib.server.auth import a_person, bearer, tenant_for
from toolcrib.server.authority import Authority, by_headers, by_secret, by_ticket
from toolcrib.server.hosts import may_use_cookies
from toolcrib.server.services import Services
from toolcrib.server.websocket.endings import silent
from toolcrib.server.websocket.messages import Introduction, introduction
from toolcrib.storage.database import NOT_A_MEMBER

CHAT: Final = "toolcrib.chat"
PLAIN: Final = "toolcrib.plain"
_TICKET: Final = "toolcrib.ticket."
# An address is logged by every proxy on the way.
_SECRETS_IN_ADDRESS: Final = frozenset({"token", "access_token", "ticket", "key", "api_key", "authorization"})


def protocol_of(websocket: WebSocket) -> str | None:
    """The first of our protocols that the client offers; none if it offers none, and then it speaks chat."""
    return next((offered for offered in websocket.scope["subprotocols"] if offered in (CHAT, PLAIN)), None)


def refuse_strange_pages(websocket: WebSocket, services: Services) -> None:
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


async def known_before(websocket: WebSocket, services: Services, workspace_id: UUID) -> Authority | None:
    """Who it is as far as the request says; none if that is left to the first message."""
    for offered in websocket.scope["subprotocols"]:
        if offered.startswith(_TICKET):
            return await _let_in_by_ticket(services, offered.removeprefix(_TICKET), workspace_id)
    if bearer(websocket) is not None:
        return await let_in(services, await by_headers(services, websocket), workspace_id)
    if cookies.ACCESS not in websocket.cookies:
        return None
    try:
        authority = await by_headers(services, websocket)
    except Unauthenticated:
        # A browser sends an old cookie whether its page wants it or not.
        return None
    return await let_in(services, authority, workspace_id)


async def introduced(websocket: WebSocket, services: Services, workspace_id: UUID) -> Authority:
    """Who it is by the first message."""
    try:
        async with asyncio.timeout(services.doors.pace.introduce):
            message = await websocket.receive()
    except TimeoutError:
        raise silent() from None
    if message["type"] == "websocket.disconnect":
        raise silent()
    return await by_introduction(services, introduction(message), workspace_id)


async def by_introduction(services: Services, said: Introduction, workspace_id: UUID) -> Authority:
    if said.ticket is not None:
        return await _let_in_by_ticket(services, said.ticket, workspace_id)
    return await let_in(services, await by_secret(services, said.token or ""), workspace_id)


async def let_in(services: Services, authority: Authority, workspace_id: UUID) -> Authority:
    """The same, if it is a person who belongs to the workspace."""
    await a_person(authority.principal)
    await services.workspaces.get(tenant_for(authority.principal, workspace_id))
    return authority


async def _let_in_by_ticket(services: Services, secret: str, workspace_id: UUID) -> Authority:
    authority, leads_to = await by_ticket(services, secret)
    if leads_to != workspace_id:
        raise Forbidden(NOT_A_MEMBER)
    return await let_in(services, authority, workspace_id)
