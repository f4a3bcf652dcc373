"""The WebSocket endpoint of a workspace.

Authenticates clients by header, by cookie from our own pages, by ticket, or by the first message.
"""

import asyncio
from typing import Final
from uuid import UUID

from fastapi import APIRouter, HTTPException, WebSocket

from toolcrib.api.api_services import ApiServices, services_of
from toolcrib.api.auth.connection_auth import ConnectionAuth, auth_by_headers, authenticate_connection, require_member
from toolcrib.api.auth.principal import ACCESS_COOKIE, bearer, reject_foreign_origin, workspace_id_of
from toolcrib.api.http_errors import answer_to
from toolcrib.api.routers import API_PREFIX
from toolcrib.api.websocket.chat_messages import introduction
from toolcrib.api.websocket.chat_protocol import ChatProtocol
from toolcrib.api.websocket.plain_protocol import PlainProtocol
from toolcrib.api.websocket.websocket_connection import (
    CloseCode,
    CloseConnection,
    WebSocketConnection,
    close,
    ending_of,
    silent,
)
from toolcrib.core.errors import BadArguments, ToolcribError, Unauthenticated
from toolcrib.storage.database import OperationalError

_CHAT: Final = "toolcrib.chat"
_PLAIN: Final = "toolcrib.plain"
_TICKET: Final = "toolcrib.ticket."
# Every proxy on the way logs the URL.
_SECRETS_IN_ADDRESS: Final = frozenset({"token", "access_token", "ticket", "key", "api_key", "authorization"})

router = APIRouter(prefix=API_PREFIX)


@router.websocket("/workspaces/{workspace_id}/ws")
async def live(websocket: WebSocket, workspace_id: str) -> None:
    """Authenticate the client by the request or its first message, then speak the protocol that it offered."""
    services = services_of(websocket)
    try:
        workspace = workspace_id_of(workspace_id)
        _reject_secrets_in_address(websocket)
        reject_foreign_origin(websocket, services)
        authority = await _known_before(websocket, services, workspace)
    except (ToolcribError, HTTPException, OperationalError) as error:
        await websocket.send_denial_response(answer_to(error))
        return
    # The first one that we know. A client that offers none speaks chat.
    protocol = next((offered for offered in websocket.scope["subprotocols"] if offered in (_CHAT, _PLAIN)), None)
    try:
        await websocket.accept(protocol)
        is_new = authority is None
        if authority is None:
            with services.connection_limits.unauthenticated():
                authority = await _introduced(websocket, services, workspace)
        with services.connection_limits.authenticated(authority.principal.user_id):
            connection = WebSocketConnection(websocket, services, authority, workspace)
            spoken = PlainProtocol(connection) if protocol == _PLAIN else ChatProtocol(connection)
            try:
                await connection.serve(_speak(spoken, is_new=is_new))
            finally:
                await spoken.finish()
    except CloseConnection as ending:
        await close(websocket, ending)
    except ToolcribError as error:
        await close(websocket, ending_of(error) or CloseConnection(CloseCode.UNAUTHENTICATED, error.message))
    except HTTPException as error:
        await close(websocket, CloseConnection(CloseCode.TOO_MANY, str(error.detail)))
    except OperationalError:
        await close(
            websocket, CloseConnection(CloseCode.INTERNAL_ERROR, "The database is temporarily unavailable. Reconnect.")
        )


def _reject_secrets_in_address(websocket: WebSocket) -> None:
    secrets = _SECRETS_IN_ADDRESS & {name.lower() for name in websocket.query_params}
    if secrets:
        raise BadArguments(dict.fromkeys(sorted(secrets), "Send it in a header or the first message, not in the URL"))


async def _known_before(websocket: WebSocket, services: ApiServices, workspace_id: UUID) -> ConnectionAuth | None:
    """Authenticate by the request; None if the first message must do it."""
    for offered in websocket.scope["subprotocols"]:
        if offered.startswith(_TICKET):
            return await authenticate_connection(services, workspace_id, ticket=offered.removeprefix(_TICKET))
    by_header = bearer(websocket) is not None
    if not by_header and ACCESS_COOKIE not in websocket.cookies:
        return None
    try:
        authority = await auth_by_headers(services, websocket)
    except Unauthenticated:
        if by_header:
            raise
        # A browser sends an expired cookie whether its page wants it or not.
        return None
    return await require_member(services, authority, workspace_id)


async def _introduced(websocket: WebSocket, services: ApiServices, workspace_id: UUID) -> ConnectionAuth:
    """Authenticate by the first message."""
    try:
        async with asyncio.timeout(services.connection_limits.pace.introduce):
            frame = await websocket.receive()
    except TimeoutError:
        raise silent() from None
    if frame["type"] == "websocket.disconnect":
        raise silent()
    message = await introduction(frame)
    return await authenticate_connection(services, workspace_id, token=message.token, ticket=message.ticket)


async def _speak(protocol: ChatProtocol | PlainProtocol, *, is_new: bool) -> None:
    if is_new:
        await protocol.greet()
    await protocol.read()
