"""The plain protocol: a client sends prompts and receives tokens, tool calls, their results, and the end."""

from collections.abc import Mapping
from typing import Any

from toolcrib.api.websocket.chat_messages import PromptMessage, checked, opened
from toolcrib.api.websocket.chat_protocol import NO_AGENT, VIA
from toolcrib.api.websocket.websocket_connection import SessionSubscriptions, WebSocketConnection, ending_of
from toolcrib.core.errors import NotFound, ProviderError, ToolcribError, ToolFailed, error_text
from toolcrib.core.events import Delta, DeltaType, Event, EventType
from toolcrib.core.ids import SessionId

NO_DEFAULT = "This workspace has no agent with a model. Add one, or set a default agent."


class PlainProtocol:
    """Serves one client."""

    def __init__(self, connection: WebSocketConnection) -> None:
        self._connection = connection
        self._services = connection.services
        self._words = TextBuffer()
        self._watched = SessionSubscriptions(connection, self._tell, self._tell_error)

    async def greet(self) -> None:
        """Do nothing: the protocol has no greeting."""

    async def read(self) -> None:
        while True:
            frame = await self._connection.receive()
            try:
                prompt = checked(PromptMessage, await opened(frame))
                await self._connection.check_membership()
                await self._prompt(prompt)
            except ToolcribError as error:
                if (ending := ending_of(error)) is not None:
                    raise ending from None
                await self._tell_error(error)

    async def finish(self) -> None:
        """Do nothing: runs continue without the connection."""

    async def _prompt(self, prompt: PromptMessage) -> None:
        tenant, sessions = self._connection.tenant, self._services.sessions
        if prompt.session_id is None:
            agent_id = await self._services.agents.default(tenant)
            if agent_id is None:
                raise ToolFailed(NO_DEFAULT)
            session = await sessions.create(tenant, agent_id=agent_id)
        else:
            try:
                session = await sessions.get(tenant, SessionId(prompt.session_id))
            except NotFound:
                raise NotFound(f"Session not found: {prompt.session_id}") from None
        if session.id not in self._watched:
            await self._watched.watch(session.id, after=session.last_seq)
        if session.agent_id is None:
            raise ToolFailed(NO_AGENT)
        await self._services.desk.submit(tenant, session.id, prompt.text, via=VIA)

    def _tell(self, _: SessionId, item: Event | Delta) -> dict[str, Any] | None:
        if text := self._words.of(item):
            return {"type": "token", "text": text}
        return None if isinstance(item, Delta) else plainly(item)

    async def _tell_error(self, error: ToolcribError, _: SessionId | None = None) -> None:
        await self._connection.send({"type": "error", "message": error_text(error)})


class TextBuffer:
    """Emits the text of messages once and in order, although deltas may be lost, duplicated, or overtake an event.

    The text of a message starts with its start event; what is missing comes with its end. This protocol cannot retract
    text, so if a message is started again, only text that continues what was sent is sent.
    """

    def __init__(self) -> None:
        # What was sent of each started message, and what arrived before its start.
        self._told: dict[str, str] = {}
        self._early: dict[str, str] = {}

    def of(self, item: Event | Delta) -> str:
        """Return the text to send now."""
        if isinstance(item, Delta):
            return self._delta(item) if item.type is DeltaType.TEXT else ""
        source = str(item.payload.get("messageId"))
        match item.type:
            case EventType.STREAM_START:
                if source in self._told:
                    return ""
                self._told[source] = self._early.pop(source, "")
                return self._told[source]
            case EventType.STREAM_END:
                told = self._told.pop(source, "")
                self._early.pop(source, None)
                whole = str(item.payload.get("content") or "")
                return whole.removeprefix(told) if whole.startswith(told) else ""
        return ""

    def _delta(self, delta: Delta) -> str:
        known = self._told if delta.source in self._told else self._early
        before = known.get(delta.source, "")
        if delta.offset > len(before):
            return ""
        fresh = delta.text[len(before) - delta.offset :]
        known[delta.source] = before + fresh
        return fresh if known is self._told else ""


def plainly(item: Event) -> dict[str, Any] | None:
    """Encode an event, or return None if the protocol has no message for it."""
    said = item.payload
    match item.type:
        case EventType.TOOL_START:
            return {"type": "tool_call", "id": said["toolId"], "name": said["toolName"], "arguments": said["input"]}
        case EventType.TOOL_RESULT:
            result = {"type": "tool_result", "id": said["toolId"], "name": said["toolName"], "output": said["result"]}
            return result | {"isError": True} if said["status"] == "error" else result
        case EventType.TOOL_CONFIRM:
            return {"type": "error", "message": f"`{said['toolName']}` needs a person's approval."}
        case EventType.QUESTION:
            return {"type": "error", "message": "A question needs a person's answer."}
        case EventType.RUN_STATE if said["state"] == "ended":
            if said.get("error"):
                return {"type": "error", "message": _failure(said["error"])}
            return {"type": "done", "sessionId": str(item.session_id)}
        case EventType.ERROR:
            return {"type": "error", "message": str(said.get("message", "Internal server error."))}
    return None


def _failure(error: Mapping[str, Any]) -> str:
    """Return the error text. A provider's error stays as it is; others get a prefix."""
    message = str(error["message"])
    if error.get("code") == ProviderError.code:
        return message
    return f"Unexpected error during generation: {message}"
