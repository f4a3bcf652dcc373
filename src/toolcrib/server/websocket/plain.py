"""The plain protocol: a client prompts, and is told tokens, tool calls, their results, and the end."""

from typing import Any

from toolcrib.domain.errors import ToolcribError, ToolFailed, described
from toolcrib.domain.events import Delta, DeltaType, Event, EventType
from toolcrib.domain.ids import SessionId
from toolcrib.server.websocket.chat import NO_AGENT, VIA
from toolcrib.server.websocket.connection import Connection
from toolcrib.server.websocket.endings import ending_of
from toolcrib.server.websocket.messages import Prompt, checked, opened
from toolcrib.server.websocket.watching import Watched


class Plain:
    """Speaks with one client."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._services = connection.services
        self._watched = Watched(connection, lambda _, item: plainly(item), self._tell_error)

    async def greet(self) -> None:
        """This protocol has no word for it."""

    async def read(self) -> None:
        while True:
            frame = await self._connection.receive()
            try:
                prompt = checked(Prompt, opened(frame))
                await self._connection.check_membership()
                await self._prompt(prompt)
            except ToolcribError as error:
                if (ending := ending_of(error)) is not None:
                    raise ending from None
                await self._tell_error(error)

    async def finish(self) -> None:
        """Nothing goes on here."""

    async def _prompt(self, prompt: Prompt) -> None:
        tenant, sessions = self._connection.tenant, self._services.sessions
        if prompt.session_id is None:
            session = await sessions.create(tenant)
        else:
            session = await sessions.get(tenant, SessionId(prompt.session_id))
        if session.id not in self._watched:
            await self._watched.watch(session.id, after=session.last_seq)
        if session.agent_id is None:
            raise ToolFailed(NO_AGENT)
        await self._services.desk.submit(tenant, session.id, prompt.text, via=VIA)

    async def _tell_error(self, error: ToolcribError, _: SessionId | None = None) -> None:
        await self._connection.send({"type": "error", "message": described(error)})


def plainly(item: Event | Delta) -> dict[str, Any] | None:
    """An event or delta in the plain protocol's words; none for what it has no word for."""
    if isinstance(item, Delta):
        return {"type": "token", "text": item.text} if item.type is DeltaType.TEXT else None
    said = item.payload
    match item.type:
        case EventType.TOOL_START:
            return {"type": "tool_call", "id": said["toolId"], "name": said["toolName"], "arguments": said["input"]}
        case EventType.TOOL_RESULT:
            result = {"type": "tool_result", "id": said["toolId"], "name": said["toolName"], "output": said["result"]}
            return result | {"isError": True} if said["status"] == "error" else result
        case EventType.TOOL_CONFIRM:
            return {"type": "error", "message": f"`{said['toolName']}` waits for a person's approval."}
        case EventType.QUESTION:
            return {"type": "error", "message": "A question waits for a person's answer."}
        case EventType.RUN_STATE if said["state"] == "ended":
            if said["ending"] == "failed":
                return {"type": "error", "message": str(said["error"]["message"])}
            return {"type": "done", "sessionId": str(item.session_id)}
        case EventType.ERROR:
            return {"type": "error", "message": str(said.get("message", "Something went wrong."))}
    return None
