"""The chat protocol: handles ``chat:*`` messages."""

import asyncio
from typing import Any, Final

from toolcrib.api.auth.connection_auth import authenticate_connection
from toolcrib.api.auth.principal import caller_for
from toolcrib.api.message_attachments import attach_files
from toolcrib.api.session_stream import SessionEncoder, resume_messages
from toolcrib.api.websocket import chat_messages
from toolcrib.api.websocket.websocket_connection import (
    ClientDisconnected,
    CloseConnection,
    SessionSubscriptions,
    WebSocketConnection,
    ending_of,
)
from toolcrib.core.callers import Caller
from toolcrib.core.errors import BadArguments, Conflict, ToolcribError, ToolFailed
from toolcrib.core.ids import CallId, PauseId, SessionId, WorkspaceId
from toolcrib.core.paused_calls import ApprovalDecision, GrantRule, GrantScope
from toolcrib.core.tool_calls import ToolCall
from toolcrib.storage.sessions import Session

VIA: Final = "websocket"
MAX_CALLS: Final = 16
NO_AGENT: Final = (
    "This session has no agent, so no model can answer. Start a session with an agent that has a model; "
    "tools can be called with chat:tool-call."
)


class ChatProtocol:
    """Serves one client."""

    def __init__(self, connection: WebSocketConnection) -> None:
        self._connection = connection
        self._services = connection.services
        self._tellers: dict[SessionId, SessionEncoder] = {}
        self._watched = SessionSubscriptions(
            connection,
            lambda session_id, item: self._tellers[session_id].encode(item),
            lambda error, session_id: self._send_error(error, conversationId=session_id),
        )
        self._calls: set[asyncio.Task[None]] = set()
        self._is_watching = False

    async def greet(self) -> None:
        """Confirm the authentication."""
        await self._connection.send(chat_messages.agreed())

    async def read(self) -> None:
        """Handle messages one after another until the client disconnects."""
        while True:
            await self._take(await self._connection.receive())

    async def finish(self) -> None:
        """Wait for running calls: a call goes on after its client has left, and its result is an event for later."""
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _take(self, frame: dict[str, Any]) -> None:
        reply: str | int | None = None
        try:
            envelope = chat_messages.checked(chat_messages.ChatEnvelope, await chat_messages.opened(frame))
            reply = envelope.id
            await self._do(chat_messages.payload_of(envelope), reply)
        except ToolcribError as error:
            if (ending := ending_of(error)) is not None and not await self._is_still_let_in():
                raise ending from None
            await self._send_error(error, reply=reply)

    async def _is_still_let_in(self) -> bool:
        """Return whether the client is still a member: then only this message failed, and the connection stays open."""
        try:
            await self._connection.check_membership()
        except ToolcribError:
            return False
        return True

    async def _do(self, message: chat_messages.ChatPayload, reply: str | int | None) -> None:
        """Handle one message. Every service checks the membership again."""
        if not isinstance(message, chat_messages.AuthMessage):
            await self._connection.authority.check()
        about: dict[str, Any] = {}
        match message:
            case chat_messages.AuthMessage():
                await self._introduce_again(message)
            case chat_messages.ResumeMessage():
                await self._watch(SessionId(message.conversation_id), after=message.after)
            case chat_messages.UnsubscribeMessage():
                await self._connection.check_membership()
                await self._watched.unsubscribe(SessionId(message.conversation_id))
            case chat_messages.WatchMessage():
                await self._watch_workspace()
            case chat_messages.ToolCallMessage():
                about = await self._call_tool(message, reply)
            case chat_messages.ToolApproveMessage():
                await self._approve(message)
            case chat_messages.AnswerMessage():
                await self._services.paused_calls.answer(
                    self._connection.tenant,
                    PauseId(message.pause_id),
                    message.answers,
                    buttons=message.answered_with_button,
                    via=VIA,
                )
            case chat_messages.CancelMessage():
                await self._cancel(message)
            case chat_messages.SendMessage():
                about = await self._send(message)
        # A message without an id gets no reply.
        if reply is not None:
            await self._connection.send(chat_messages.agreed(reply, **about))

    # Handlers of the messages

    async def _introduce_again(self, message: chat_messages.AuthMessage) -> None:
        """Replace the token by a newer one of the same person, so that the connection may stay open longer."""
        renewed = await authenticate_connection(
            self._services, self._connection.workspace_id, token=message.token, ticket=message.ticket
        )
        if renewed.principal.user_id != self._connection.authority.principal.user_id:
            raise BadArguments({"token": "Expected a token of the user who opened this connection"})
        self._connection.authority = renewed

    async def _watch(self, session_id: SessionId, *, after: int) -> None:
        async def open_ones_first(session: Session) -> None:
            self._tellers[session.id] = SessionEncoder()
            waiting = await resume_messages(self._services, self._connection.tenant, session, after=after)
            for message in waiting:
                await self._connection.send(message)

        await self._watched.watch(session_id, after=after, opening=open_ones_first)

    async def _watch_workspace(self) -> None:
        """Subscribe to the activity of the workspace. Returns once no later change is missed."""
        await self._connection.check_membership()
        if self._is_watching:
            return
        self._is_watching = True
        begun = asyncio.get_running_loop().create_future()
        self._connection.start(self._follow_activity(begun))
        await begun

    async def _follow_activity(self, begun: asyncio.Future[None]) -> None:
        try:
            async with self._services.live.subscribe_to_activity(self._connection.tenant) as subscription:
                begun.set_result(None)
                async for activity in subscription:
                    payload = {"workspaceId": activity.workspace_id, "topics": sorted(activity.topics)}
                    await self._connection.send({"type": "chat:activity", "payload": payload})
        finally:
            begun.cancel()

    async def _send(self, message: chat_messages.SendMessage) -> dict[str, Any]:
        session = await self._session(message.conversation_id)
        if session.agent_id is None:
            raise ToolFailed(NO_AGENT)
        if session.id not in self._watched:
            await self._watch(session.id, after=session.last_seq)
        connection = self._connection
        # The person's own files, not the agent's.
        person = caller_for(connection.authority.principal, connection.workspace_id, session_id=session.id, via=VIA)
        run = await self._services.run_service.submit(
            connection.tenant,
            session.id,
            message.content,
            via=VIA,
            history=chat_messages.earlier_turns(message.history),
            priority=message.priority,
            attachments=await attach_files(self._services, person, message.attachments),
        )
        return {"conversationId": session.id, "runId": run.id}

    async def _call_tool(self, message: chat_messages.ToolCallMessage, reply: str | int | None) -> dict[str, Any]:
        if len(self._calls) >= MAX_CALLS:
            raise Conflict(f"{MAX_CALLS} calls are running on this connection, the limit. Wait for one to end.")
        session = await self._session(message.conversation_id)
        # As over HTTP: the session's agent, acting for this person; in a session without an agent, the person.
        person = caller_for(self._connection.authority.principal, self._connection.workspace_id, via=VIA)
        caller = await self._services.session_agents.caller_in(person, session)
        if session.id not in self._watched:
            await self._watch(session.id, after=session.last_seq)
        work = self._execute(ToolCall(message.tool, message.args), caller, reply)
        task = self._services.running_calls.start((caller.workspace_id, session.id), caller.call_id, work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return {"conversationId": session.id, "toolId": caller.call_id}

    async def _execute(self, call: ToolCall, caller: Caller, reply: str | int | None) -> None:
        """Execute a call. Its outcome is an event of the session; only an error before that is sent here."""
        try:
            await self._services.executor.execute(call, caller)
        except ToolcribError as error:
            await self._send_error(error, reply=reply, conversationId=caller.session_id, toolId=caller.call_id)

    async def _approve(self, message: chat_messages.ToolApproveMessage) -> None:
        tenant = self._connection.tenant
        pause = await self._services.paused_calls.of_call(tenant, CallId(message.tool_id))
        if message.pause_id is not None and message.pause_id != pause.id:
            raise Conflict(f"Call {message.tool_id} now needs approval {pause.id}. Review that one, then decide.")
        if message.arguments_sha256 is None and (message.rule is not None or message.scope is not GrantScope.ONCE):
            # Clients that only know `toolId` and `approved` cannot send it, and decide about that one call.
            raise BadArguments({"argumentsSha256": "Expected the hash in `chat:tool-confirm`, with a scope or a rule"})
        decision = ApprovalDecision(
            approved=message.approved,
            scope=message.scope,
            reason=message.reason,
            rule=None if message.rule is None else GrantRule(**dict(message.rule)),
            arguments_sha256=message.arguments_sha256,
        )
        await self._services.paused_calls.decide(tenant, pause.id, decision, via=VIA)

    async def _cancel(self, message: chat_messages.CancelMessage) -> None:
        session = await self._session(message.conversation_id)
        self._services.running_calls.cancel((WorkspaceId(self._connection.workspace_id), session.id))
        if run := await self._services.run_service.runs.unfinished(self._connection.tenant, session.id):
            await self._services.run_service.cancel(self._connection.tenant, run.id)

    async def _session(self, session_id: Any) -> Session:
        return await self._services.sessions.get(self._connection.tenant, SessionId(session_id))

    async def _send_error(self, error: ToolcribError, *, reply: str | int | None = None, **about: Any) -> None:
        payload = {**about, "code": error.code, "message": error.message}
        if error.fields:
            payload["fields"] = error.fields
        if error.retry_after is not None:
            payload["retryAfter"] = error.retry_after
        message: dict[str, Any] = {"type": "chat:error", "payload": payload}
        if reply is not None:
            message["id"] = reply
        try:
            await self._connection.send(message)
        except (ClientDisconnected, CloseConnection):
            if about.get("toolId") is None:
                raise
