"""The chat protocol: ``chat:*`` messages and what they ask of the services."""

import asyncio
from typing import Any, Final

from toolcrib.domain.approvals import GrantRule, Judgement
from toolcrib.domain.callers import Caller
from toolcrib.domain.errors import BadArguments, Conflict, ToolcribError, ToolFailed
from toolcrib.domain.events import Delta, Event
from toolcrib.domain.ids import ApprovalId, CallId, QuestionId, SessionId, WorkspaceId
from toolcrib.server.auth import caller_for
from toolcrib.server.told import Teller, waiting_ones
from toolcrib.server.websocket import messages
from toolcrib.server.websocket.admission import by_introduction
from toolcrib.server.websocket.connection import Connection, Gone
from toolcrib.server.websocket.endings import Ending, ending_of
from toolcrib.server.websocket.messages import (
    Answer,
    Approve,
    CallTool,
    Cancel,
    Introduction,
    Leave,
    Resume,
    Said,
    Send,
)  # fmt: skip
from toolcrib.server.websocket.watching import Watched
from toolcrib.storage.sessions import Session
from toolcrib.tools.call import ToolCall

VIA: Final = "websocket"
MAX_CALLS: Final = 16
NO_AGENT: Final = (
    "This session has no agent, so nobody can answer. Begin one with an agent that names a model; "
    "tools can be called with chat:tool-call."
)


class Chat:
    """Speaks with one client."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._services = connection.services
        self._tellers: dict[SessionId, Teller] = {}
        self._watched = Watched(connection, self._told, self._tell_session_error)
        self._calls: set[asyncio.Task[None]] = set()

    async def greet(self) -> None:
        """The first message was believed."""
        await self._connection.send(messages.agreed())

    async def read(self) -> None:
        """Takes messages one after another, until the client leaves."""
        while True:
            frame = await self._connection.receive()
            await self._take(frame)

    async def finish(self) -> None:
        """What was called goes on when its caller has left: its result is an event, for when they come back."""
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _take(self, frame: dict[str, Any]) -> None:
        reply: str | int | None = None
        try:
            envelope = messages.enveloped(messages.opened(frame))
            reply = envelope.id
            await self._do(messages.payload_of(envelope), reply)
        except ToolcribError as error:
            if (ending := ending_of(error)) is not None and not await self._is_still_let_in():
                raise ending from None
            await self._tell_error(error, reply=reply)

    async def _is_still_let_in(self) -> bool:
        """Whether a refusal was about the message only: a viewer who may not do this is still a viewer."""
        try:
            await self._connection.check_membership()
        except ToolcribError:
            return False
        return True

    async def _do(self, said: Said, reply: str | int | None) -> None:
        """Whatever is asked of the services, they ask whether this person still belongs."""
        if not isinstance(said, Introduction):
            await self._connection.authority.check()
        about: dict[str, Any] = {}
        match said:
            case Introduction():
                await self._introduce_again(said)
            case Resume():
                await self._resume(said)
            case Leave():
                await self._connection.check_membership()
                await self._watched.leave(SessionId(said.conversation_id))
            case CallTool():
                about = await self._call_tool(said, reply)
            case Approve():
                await self._approve(said)
            case Answer():
                await self._services.questions.answer(
                    self._connection.tenant,
                    QuestionId(said.question_id),
                    said.answers,
                    by_button=said.by_button,
                    via=VIA,
                )
            case Cancel():
                await self._cancel(said)
            case Send():
                about = await self._send(said)
        # Only to who wants to know: a message without an id is not answered.
        if reply is not None:
            await self._connection.send(messages.agreed(reply, **about))

    # What the messages ask for

    async def _introduce_again(self, said: Introduction) -> None:
        """A newer token for the same person: the connection may stay open for longer."""
        renewed = await by_introduction(self._services, said, self._connection.workspace_id)
        if renewed.principal.user_id != self._connection.authority.principal.user_id:
            raise BadArguments({"token": "Expected one of the person who opened this connection"})
        self._connection.authority = renewed

    async def _resume(self, said: Resume) -> None:
        await self._watch(SessionId(said.conversation_id), after=said.after)

    async def _watch(self, session_id: SessionId, *, after: int) -> None:
        async def open_ones_first(session: Session) -> None:
            self._tellers[session.id] = Teller()
            waiting = await waiting_ones(self._services, self._connection.tenant, session, after=after)
            for message in waiting:
                await self._connection.send(message)

        await self._watched.watch(session_id, after=after, opening=open_ones_first)

    async def _send(self, said: Send) -> dict[str, Any]:
        session = await self._session(said.conversation_id)
        if session.agent_id is None:
            raise ToolFailed(NO_AGENT)
        if session.id not in self._watched:
            await self._watch(session.id, after=session.last_seq)
        run = await self._services.desk.submit(
            self._connection.tenant,
            session.id,
            said.content,
            via=VIA,
            # What a system or a tool said is ours to know, not a client's to tell.
            history=[(one.role, one.content) for one in said.history if one.role in ("user", "assistant")],
        )
        return {"conversationId": session.id, "runId": run.id}

    async def _call_tool(self, said: CallTool, reply: str | int | None) -> dict[str, Any]:
        if len(self._calls) >= MAX_CALLS:
            raise Conflict(f"{MAX_CALLS} calls of this connection are running. Wait for one of them to end.")
        session = await self._session(said.conversation_id)
        caller = await self._caller(session)
        if session.id not in self._watched:
            await self._watch(session.id, after=session.last_seq)
        work = self._execute(ToolCall(said.tool, said.args), caller, reply)
        task = self._services.running_calls.start(_key(caller), caller.call_id, work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return {"conversationId": session.id, "toolId": caller.call_id}

    async def _caller(self, session: Session) -> Caller:
        """The session's agent, for whom this person answers; in a session without one, the person."""
        connection = self._connection
        agent = None
        if session.agent_id is not None:
            agent = (await self._services.agents.get(connection.tenant, session.agent_id)).as_caller
        return caller_for(
            connection.authority.principal,
            connection.workspace_id,
            agent=agent,
            session_id=session.id,
            via=VIA,
            mode=session.mode,
        )

    async def _execute(self, call: ToolCall, caller: Caller, reply: str | int | None) -> None:
        """How it ended is an event of the session. Only what never became a call is told here."""
        try:
            await self._services.executor.execute(call, caller)
        except ToolcribError as error:
            await self._tell_error(error, reply=reply, conversationId=caller.session_id, toolId=caller.call_id)

    async def _approve(self, said: Approve) -> None:
        tenant = self._connection.tenant
        approval = await self._services.approvals.of_call(tenant, CallId(said.tool_id))
        if said.approval_id is not None and said.approval_id != approval.id:
            raise Conflict(f"Call {said.tool_id} waits for approval {approval.id} now. Look at that one, then decide.")
        judgement = Judgement(
            approved=said.approved,
            scope=said.scope,
            reason=said.reason,
            rule=None if said.rule is None else GrantRule(said.rule.tool, said.rule.paths, said.rule.commands),
            arguments_sha256=said.arguments_sha256,
        )
        await self._services.approvals.decide(tenant, ApprovalId(approval.id), judgement, via=VIA)

    async def _cancel(self, said: Cancel) -> None:
        session = await self._session(said.conversation_id)
        self._services.running_calls.cancel((WorkspaceId(self._connection.workspace_id), session.id))
        if run := await self._services.desk.unfinished(self._connection.tenant, session.id):
            await self._services.desk.cancel(self._connection.tenant, run.id)

    async def _session(self, session_id: Any) -> Session:
        return await self._services.sessions.get(self._connection.tenant, SessionId(session_id))

    # What is told

    def _told(self, session_id: SessionId, item: Event | Delta) -> dict[str, Any]:
        return self._tellers[session_id].tell(item)

    async def _tell_session_error(self, error: ToolcribError, session_id: SessionId) -> None:
        await self._tell_error(error, conversationId=session_id)

    async def _tell_error(self, error: ToolcribError, *, reply: str | int | None = None, **about: Any) -> None:
        payload = {**about, "code": error.code, "message": error.message}
        if error.fields:
            payload["fields"] = error.fields
        message: dict[str, Any] = {"type": "chat:error", "payload": payload}
        if reply is not None:
            message["id"] = reply
        try:
            await self._connection.send(message)
        except (Gone, Ending):
            if about.get("toolId") is None:
                raise


def _key(caller: Caller) -> tuple[WorkspaceId, SessionId]:
    assert caller.session_id is not None
    return caller.workspace_id, caller.session_id
