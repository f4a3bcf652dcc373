"""Server-sent events: streams one session, with heartbeats, and encodes its events for SSE and WebSocket.

A message is ``{type, payload, seq?}`` in camelCase.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, assert_never

from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolcrib.api.api_services import ApiServices
from toolcrib.api.auth.connection_auth import ConnectionAuth, run_while_connected
from toolcrib.api.connection_limits import ConnectionTimeouts
from toolcrib.core.events import Delta, DeltaType, Event, EventType
from toolcrib.core.paused_calls import PauseKind
from toolcrib.events.event_payloads import approval_payload, question_payload
from toolcrib.storage.database import Tenant
from toolcrib.storage.sessions import Session

_RETRY_MILLISECONDS: Final = 2_000
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # Proxies would buffer the stream until it ends, which it does not.
    (b"x-accel-buffering", b"no"),
]


class EventStream(Response):
    """A streaming response.

    A client that does not read for too long is disconnected; it resumes with ``Last-Event-ID``.
    """

    opening = f"retry: {_RETRY_MILLISECONDS}\n\n".encode()

    def __init__(
        self,
        messages: AsyncIterator[dict[str, Any]],
        *,
        authority: ConnectionAuth,
        pace: ConnectionTimeouts,
        opened: AsyncExitStack,
    ) -> None:
        """Create the response.

        Args:
            messages: The messages to send.
            opened: The resources of ``messages``; closed when the stream ends.
        """
        super().__init__(media_type="text/event-stream")
        self._messages = messages
        self._authority = authority
        self._pace = pace
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._opened:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            # A browser whose token has expired reconnects with a newer one.
            with suppress(TimeoutError):
                await run_while_connected(
                    self._send_events(send), receive, authority=self._authority, check_seconds=self._pace.check
                )
                await self._send(send, b"", more=False)

    def encode(self, message: dict[str, Any]) -> bytes:
        """Encode one message."""
        return encoded(message)

    async def _send_events(self, send: Send) -> None:
        await self._send(send, self.opening)
        messages = aiter(self._messages)
        following = asyncio.ensure_future(anext(messages))
        try:
            while True:
                await asyncio.wait({following}, timeout=self._pace.beat)
                if not following.done():
                    await self._send(send, b": still here\n\n")
                    continue
                try:
                    message = following.result()
                except StopAsyncIteration:
                    return
                await self._send(send, self.encode(message))
                following = asyncio.ensure_future(anext(messages))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(self._pace.stall):
            await send({"type": "http.response.body", "body": body, "more_body": more})


def encoded(message: dict[str, Any]) -> bytes:
    """Encode one message as an SSE event. Only durable events have an id: a browser resumes after the last one."""
    number = b"" if message.get("seq") is None else b"id: %d\n" % message["seq"]
    return b"%sevent: %s\ndata: %s\n\n" % (number, str(message["type"]).encode(), to_json(message))


PREFIX = "chat:"


class SessionEncoder:
    """Encodes one session for one subscriber. Remembers to which message a running call belongs."""

    def __init__(self) -> None:
        self._message_of: dict[str, Any] = {}

    def encode(self, item: Event | Delta) -> dict[str, Any]:
        """Encode an event or a delta."""
        return self._event(item) if isinstance(item, Event) else self._delta(item)

    def _event(self, event: Event) -> dict[str, Any]:
        tool = event.payload.get("toolId")
        if event.type == EventType.TOOL_START and "messageId" in event.payload:
            self._message_of[str(tool)] = event.payload["messageId"]
        elif event.type == EventType.TOOL_RESULT:
            self._message_of.pop(str(tool), None)
        payload = {"conversationId": str(event.session_id), **event.payload}
        return {"type": f"{PREFIX}{event.type}", "payload": payload, "seq": event.seq}

    def _delta(self, delta: Delta) -> dict[str, Any]:
        match delta.type:
            case DeltaType.TEXT | DeltaType.THINKING:
                content = {"messageId": delta.source, "content": delta.text}
            case DeltaType.TOOL:
                content = {"toolId": delta.source, "chunk": delta.text}
                if (message := self._message_of.get(delta.source)) is not None:
                    content["messageId"] = message
            case _:
                assert_never(delta.type)
        position = {"offset": delta.offset, "attempt": delta.attempt}
        return {
            "type": f"{PREFIX}{delta.type}",
            "payload": {"conversationId": str(delta.session_id), **content, **position},
        }


async def resume_messages(
    services: ApiServices, tenant: Tenant, session: Session, *, after: int
) -> list[dict[str, Any]]:
    """Return the subscriber's position and all paused calls.

    They have no sequence number and are marked ``replayed``, because the same events were sent before or will follow.
    """
    pauses = await services.paused_calls.list(tenant, session_id=session.id)
    approved = [pause.call_id for pause in pauses if pause.kind is PauseKind.APPROVAL]
    messages = await services.sessions.messages_of_calls(tenant, session.id, approved) if approved else {}
    about = {"conversationId": str(session.id)}
    resumed = {
        **about,
        "after": after,
        "lastSeq": session.last_seq,
        "mode": session.mode,
        "phase": session.phase,
        "agentId": session.agent_id,
        "pausedCalls": [pause.id for pause in pauses],
    }
    replayed = [{"type": f"{PREFIX}resumed", "payload": resumed}]
    for pause in pauses:
        if pause.kind is PauseKind.APPROVAL:
            type_, payload = EventType.TOOL_CONFIRM, approval_payload(pause)
        else:
            type_, payload = EventType.QUESTION, question_payload(pause)
        if pause.call_id in messages:
            payload["messageId"] = messages[pause.call_id]
        replayed.append({"type": f"{PREFIX}{type_}", "payload": {**about, **payload, "replayed": True}})
    return replayed
