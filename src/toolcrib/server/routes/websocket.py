"""The address of a workspace's WebSocket."""

from uuid import UUID

from fastapi import APIRouter, HTTPException, WebSocket

from toolcrib.domain.errors import BadArguments, ToolcribError
from toolcrib.server.errors import answer_to
from toolcrib.server.services import services_of
from toolcrib.server.websocket import admission
from toolcrib.server.websocket.chat import Chat
from toolcrib.server.websocket.connection import Connection, close
from toolcrib.server.websocket.endings import Code, Ending, ending_of
from toolcrib.server.websocket.plain import Plain
from toolcrib.storage.health import OperationalError

router = APIRouter()


@router.websocket("/workspaces/{workspace_id}/ws")
async def live(websocket: WebSocket, workspace_id: str) -> None:
    """Lets someone in, by the request or by their first message, and speaks the protocol that they offered."""
    services = services_of(websocket)
    try:
        workspace = _uuid(workspace_id)
        admission.refuse_strange_pages(websocket, services)
        authority = await admission.known_before(websocket, services, workspace)
    except (ToolcribError, HTTPException, OperationalError) as error:
        await websocket.send_denial_response(answer_to(error))
        return
    protocol = admission.protocol_of(websocket)
    try:
        await websocket.accept(protocol)
        is_new = authority is None
        if authority is None:
            with services.doors.stranger():
                authority = await admission.introduced(websocket, services, workspace)
        with services.doors.inside(authority.principal.user_id):
            connection = Connection(websocket, services, authority, workspace)
            spoken = Plain(connection) if protocol == admission.PLAIN else Chat(connection)
            await _speak(connection, spoken, is_new=is_new)
    except Ending as ending:
        await close(websocket, ending)
    except ToolcribError as error:
        await close(websocket, ending_of(error) or Ending(Code.UNAUTHENTICATED, error.message))
    except HTTPException as error:
        await close(websocket, Ending(Code.TOO_MANY, str(error.detail)))
    except OperationalError:
        await close(websocket, Ending(Code.OUR_FAULT, "The database does not answer just now. Connect again."))


async def _speak(connection: Connection, protocol: Chat | Plain, *, is_new: bool) -> None:
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
