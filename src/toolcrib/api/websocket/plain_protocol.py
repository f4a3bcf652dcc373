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
        self._watched = SessionSubscriptions(connection, self._encode, self._send_error)

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
                await self._send_error(error)

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
        await self._services.run_service.submit(tenant, session.id, prompt.text, via=VIA)

    def _encode(self, _: SessionId, item: Event | Delta) -> dict[str, Any] | None:
        if text := self._words.of(item):
            return {"type": "token", "text": text}
        return None if isinstance(item, Delta) else encode_plain_event(item)

    async def _send_error(self, error: ToolcribError, _: SessionId | None = None) -> None:
        await self._connection.send({"type": "error", "message": error_text(error)})


class TextBuffer:
    """Emits the text of messages once and in order, although deltas may be lost, duplicated, or overtake an event.

    The text of a message starts with its start event; what is missing comes with its end. This protocol cannot retract
    text, so if a message is started again, only text that continues what was sent is sent.
    """

    def __init__(self) -> None:
        # What was sent of each started message, and what arrived before its start.
        self._sent: dict[str, str] = {}
        self._early: dict[str, str] = {}

    def of(self, item: Event | Delta) -> str:
        """Return the text to send now."""
        if isinstance(item, Delta):
            return self._delta(item) if item.type is DeltaType.TEXT else ""
        source = str(item.payload.get("messageId"))
        match item.type:
            case EventType.STREAM_START:
                if source in self._sent:
                    return ""
                self._sent[source] = self._early.pop(source, "")
                return self._sent[source]
            case EventType.STREAM_END:
                sent = self._sent.pop(source, "")
                self._early.pop(source, None)
                whole = str(item.payload.get("content") or "")
                return whole.removeprefix(sent) if whole.startswith(sent) else ""
        return ""

    def _delta(self, delta: Delta) -> str:
        known = self._sent if delta.source in self._sent else self._early
        before = known.get(delta.source, "")
        if delta.offset > len(before):
            return ""
        fresh = delta.text[len(before) - delta.offset :]
        known[delta.source] = before + fresh
        return fresh if known is self._sent else ""


def encode_plain_event(item: Event) -> dict[str, Any] | None:
    """Encode an event, or return None if the protocol has no message for it."""
    payload = item.payload
    match item.type:
        case EventType.TOOL_START:
            return {
                "type": "tool_call",
                "id": payload["toolId"],
                "name": payload["toolName"],
                "arguments": payload["input"],
            }
        case EventType.TOOL_RESULT:
            result = {
                "type": "tool_result",
                "id": payload["toolId"],
                "name": payload["toolName"],
                "output": payload["result"],
            }
            return result | {"isError": True} if payload["status"] == "error" else result
        case EventType.TOOL_CONFIRM:
            return {"type": "error", "message": f"`{payload['toolName']}` needs a person's approval."}
        case EventType.QUESTION:
            return {"type": "error", "message": "A question needs a person's answer."}
        case EventType.RUN_STATE if payload["state"] == "ended":
            if payload.get("error"):
                return {"type": "error", "message": _failure(payload["error"])}
            return {"type": "done", "sessionId": str(item.session_id)}
        case EventType.ERROR:
            return {"type": "error", "message": str(payload.get("message", "Internal server error."))}
    return None


def _failure(error: Mapping[str, Any]) -> str:
    """Return the error text. A provider's error stays as it is; others get a prefix."""
    message = str(error["message"])
    if error.get("code") == ProviderError.code:
        return message
    return f"Unexpected error during generation: {message}"
