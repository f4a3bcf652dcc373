"""Authenticates WebSocket clients: by header, by cookie from our own pages, by ticket, or by the first message."""

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
# Every proxy on the way logs the URL.
_SECRETS_IN_ADDRESS: Final = frozenset({"token", "access_token", "ticket", "key", "api_key", "authorization"})


def protocol_of(websocket: WebSocket) -> str | None:
    """Return the first known subprotocol that the client offers; None if it offers none, which means chat."""
    return next((offered for offered in websocket.scope["subprotocols"] if offered in (CHAT, PLAIN)), None)


def reject_strange_pages(websocket: WebSocket, services: ApiServices) -> None:
    """Reject pages of other sites, whatever credentials they bring. Programs send no Origin."""
    secrets = _SECRETS_IN_ADDRESS & {name.lower() for name in websocket.query_params}
    if secrets:
        raise BadArguments(dict.fromkeys(sorted(secrets), "Send it in a header or the first message, not in the URL"))
    if "origin" in websocket.headers and not may_use_cookies(websocket.headers, services.settings.allowed_origins):
        raise Forbidden(
            f"Origin {websocket.headers['origin']!r} is not allowed. The operator can add it to "
            "TOOLCRIB_ALLOWED_ORIGINS."
        )


async def known_before(websocket: WebSocket, services: ApiServices, workspace_id: UUID) -> ConnectionAuth | None:
    """Authenticate by the request; None if the first message must do it."""
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
        # A browser sends an expired cookie whether its page wants it or not.
        return None
    return await let_in(services, authority, workspace_id)


async def introduced(websocket: WebSocket, services: ApiServices, workspace_id: UUID) -> ConnectionAuth:
    """Authenticate by the first message."""
    try:
        async with asyncio.timeout(services.connection_limits.pace.introduce):
            message = await websocket.receive()
    except TimeoutError:
        raise silent() from None
    if message["type"] == "websocket.disconnect":
        raise silent()
    return await by_introduction(services, await introduction(message), workspace_id)


async def by_introduction(services: ApiServices, message: AuthMessage, workspace_id: UUID) -> ConnectionAuth:
    """Return the authorization of an ``auth`` message."""
    if message.ticket is not None:
        return await _let_in_by_ticket(services, message.ticket, workspace_id)
    return await let_in(services, await auth_by_secret(services, message.token or ""), workspace_id)


async def let_in(services: ApiServices, authority: ConnectionAuth, workspace_id: UUID) -> ConnectionAuth:
    """Return the authorization if it belongs to a person who is a member of the workspace."""
    await require_person(authority.principal)
    await services.workspaces.get(tenant_for(authority.principal, workspace_id))
    return authority


async def _let_in_by_ticket(services: ApiServices, secret: str, workspace_id: UUID) -> ConnectionAuth:
    authority, leads_to = await auth_by_ticket(services, secret)
    if leads_to != workspace_id:
        raise Forbidden(NOT_A_MEMBER)
    return await let_in(services, authority, workspace_id)
