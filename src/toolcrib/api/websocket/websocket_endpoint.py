"""The WebSocket endpoint of a workspace."""

from uuid import UUID

from fastapi import APIRouter, HTTPException, WebSocket

from toolcrib.api.api_services import services_of
from toolcrib.api.http_errors import answer_to
from toolcrib.api.websocket import websocket_admission
from toolcrib.api.websocket.chat_protocol import ChatProtocol
from toolcrib.api.websocket.plain_protocol import PlainProtocol
from toolcrib.api.websocket.websocket_connection import (
    CloseCode,
    CloseConnection,
    WebSocketConnection,
    close,
    ending_of,
)
from toolcrib.core.errors import BadArguments, ToolcribError
from toolcrib.storage.database import OperationalError

router = APIRouter()


@router.websocket("/workspaces/{workspace_id}/ws")
async def live(websocket: WebSocket, workspace_id: str) -> None:
    """Authenticate the client by the request or its first message, then speak the protocol that it offered."""
    services = services_of(websocket)
    try:
        workspace = _uuid(workspace_id)
        websocket_admission.reject_strange_pages(websocket, services)
        authority = await websocket_admission.known_before(websocket, services, workspace)
    except (ToolcribError, HTTPException, OperationalError) as error:
        await websocket.send_denial_response(answer_to(error))
        return
    protocol = websocket_admission.protocol_of(websocket)
    try:
        await websocket.accept(protocol)
        is_new = authority is None
        if authority is None:
            with services.connection_limits.unauthenticated():
                authority = await websocket_admission.introduced(websocket, services, workspace)
        with services.connection_limits.authenticated(authority.principal.user_id):
            connection = WebSocketConnection(websocket, services, authority, workspace)
            chat_protocol = (
                PlainProtocol(connection) if protocol == websocket_admission.PLAIN else ChatProtocol(connection)
            )
            await _run_protocol(connection, chat_protocol, is_new=is_new)
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


async def _run_protocol(
    connection: WebSocketConnection, protocol: ChatProtocol | PlainProtocol, *, is_new: bool
) -> None:
    async def speak() -> None:
        if is_new:
            await protocol.greet()
        await protocol.read()

    try:
        await connection.serve(speak())
    finally:
        await protocol.finish()


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise BadArguments({"workspace_id": "Input should be a valid UUID"}) from None
