"""Processes paused calls: executes approved ones, asks again about stale ones, and expires overdue ones.

All state is in rows. The worker may stop at any moment on any node; the next one continues.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import structlog

from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Agent, Caller
from toolcrib.core.errors import (
    Forbidden,
    GivenUp,
    Interrupted,
    NotDecided,
    NotFound,
    Superseded,
    ToolcribError,
    Unauthenticated,
)
from toolcrib.core.paused_calls import ApprovedCall
from toolcrib.core.tool_calls import Outcome, OutcomeState, ToolCall
from toolcrib.gate.call_pipeline import Gate
from toolcrib.gate.call_recorder import audit_record, ended_record
from toolcrib.gate.call_stages import CallRequest
from toolcrib.gate.paused_calls import PausedCalls
from toolcrib.gate.session_agents import SessionAgents
from toolcrib.runtime.drain import Drain
from toolcrib.storage.agents import AgentStore
from toolcrib.storage.database import OperationalError, Tenant
from toolcrib.storage.paused_call_claims import PausedCallClaims
from toolcrib.storage.sessions import SessionStore
from toolcrib.storage.tool_calls import InterruptedCall, ToolCallStore

log = structlog.get_logger(__name__)

# A worker renews its claims at this interval, and is considered dead after the lease.
_BEAT = 15.0
_LEASE = timedelta(seconds=60)
# How many approved calls one node executes at a time.
_AT_ONCE = 8
_BATCH = 100
# Decisions made on this node are processed at once; a poll at this interval finds the others.
_ROUND = 1.0
_EXPIRY_ROUND = 5.0


@contextmanager
def _errors_logged(event: str, **facts: str) -> Iterator[None]:
    """Log what one round of a loop raises. No error may end the loop, because no other task does its work."""
    try:
        yield
    except ToolcribError as error:
        log.warning(event, error=error.message, **facts)
    except OperationalError as error:
        log.warning("resume_worker.database_error", error=str(error), **facts)
    except Exception:
        log.exception(event, **facts)


class _CallerDeleted(Exception):
    """The agent or the session of the call does not exist any more."""


class ResumeWorker:
    """Resumes paused calls; one per server. ``decided`` is set by a decision on this node; polling finds the others."""

    def __init__(
        self,
        executor: Gate,
        pauses: PausedCalls,
        claims: PausedCallClaims,
        agents: AgentStore,
        sessions: SessionStore,
        session_agents: SessionAgents,
        calls: ToolCallStore,
        *,
        node: str,
        process: str,
        decided: asyncio.Event,
        lease: float = 15.0,
        max_attempts: int = 3,
        drain: Drain | None = None,
    ) -> None:
        """Create the worker.

        Args:
            process: The name under which claims are made.
            lease: A process that is silent for this many seconds is considered dead.
            max_attempts: A call that this many processes did not survive is given up. The last attempt runs alone.
        """
        self._executor = executor
        self._pauses = pauses
        self._claims = claims
        self._agents = agents
        self._sessions = sessions
        self._session_agents = session_agents
        self._calls = calls
        self._node = node
        self._process = process
        self._process_lease = lease
        self._max_attempts = max_attempts
        self._poked = decided
        self._at_work: dict[asyncio.Task[None], ApprovedCall] = {}
        self._drain = drain or Drain()
        self._drain.add(self._finish)

    async def recover(self) -> int:
        """End the calls of dead processes. Returns how many."""
        await self._claims.release_dead(lease=self._process_lease)
        found = 0
        while batch := await self._calls.interrupted(lease=self._process_lease, limit=_BATCH):
            for call in batch:
                await self._end(call)
            found += len(batch)
        return found

    async def run(self) -> None:
        """Run until cancelled; another worker continues the calls in progress."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._resume_loop(tasks))
            tasks.create_task(self._renew_loop())
            tasks.create_task(self._expire_loop())

    async def _resume_loop(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            with _errors_logged("resume_worker.loop_failed"):
                await self._resume_some(tasks)
            with suppress(TimeoutError):
                async with asyncio.timeout(_ROUND):
                    await self._poked.wait()
            self._poked.clear()

    async def _resume_some(self, tasks: asyncio.TaskGroup) -> None:
        while (room := _AT_ONCE - len(self._at_work)) and not any(map(self._is_alone, self._at_work.values())):
            if self._drain.has_begun:
                return
            claimed = await self._claims.claim(
                node=self._node,
                holder=self._process,
                lease=_LEASE,
                limit=room,
                alone_after=max(self._max_attempts - 1, 1),
                idle=not self._at_work,
            )
            for approved in claimed:
                task = tasks.create_task(self.resume_call(approved))
                self._at_work[task] = approved
                task.add_done_callback(self._done)
            if len(claimed) < room:
                return

    async def _finish(self) -> None:
        while self._at_work:
            await asyncio.wait(self._at_work)

    def _is_alone(self, approved: ApprovedCall) -> bool:
        return approved.attempts > max(self._max_attempts - 1, 1)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._at_work[task]
        self._poked.set()

    async def resume_call(self, approved: ApprovedCall) -> None:
        # After an error the claim stays until its lease ends: a call that always fails is not retried without pause.
        with _errors_logged("resume_worker.call_failed", pause_id=str(approved.pause.id)):
            try:
                await self._resume_or_abandon(approved)
            except asyncio.CancelledError:
                await asyncio.shield(self._release(approved))
                raise

    async def _release(self, approved: ApprovedCall) -> None:
        """Release the claim because this process stops. It does not count as an attempt."""
        try:
            await self._claims.release(self._process, approved.pause.id)
        except OperationalError as error:
            log.warning("resume_worker.release_failed", pause_id=str(approved.pause.id), error=str(error))

    async def _resume_or_abandon(self, approved: ApprovedCall) -> None:
        pause = approved.pause
        if approved.attempts > self._max_attempts:
            log.error("resume_worker.call_abandoned", pause_id=str(pause.id), tool=pause.tool)
            await self._pauses.abandon(approved, GivenUp.after(self._max_attempts))
            return
        try:
            agent = await self._agent(approved)
            await self._executor.resume(approved, agent)
        except _CallerDeleted as gone:
            await self._pauses.abandon(approved, NotDecided(str(gone)))
        except (Forbidden, Unauthenticated):
            denial = NotDecided("The user this agent acts for is no longer a member of the workspace.")
            await self._pauses.abandon(approved, denial)
        except Superseded:
            await self._claims.release_moved(pause, self._node)

    async def _agent(self, approved: ApprovedCall) -> Agent | None:
        """Return the calling agent with its current rules.

        Raises:
            _CallerDeleted: The session or the agent was deleted.
        """
        pause, tenant, session = approved.pause, Tenant(approved.pause.workspace_id), None
        if pause.session_id is not None:
            try:
                session = await self._sessions.get(tenant, pause.session_id)
            except NotFound:
                raise _CallerDeleted("The session of this call was deleted. Nothing was changed.") from None
        if pause.agent_id is None:
            return None
        try:
            agent = (await self._agents.get(tenant, pause.agent_id)).as_caller
        except NotFound:
            raise _CallerDeleted("The agent of this call was deleted. Nothing was changed.") from None
        if session is None:
            return agent
        try:
            agent, _ = await self._session_agents.in_session(tenant.workspace_id, agent, session, pause.user_id)
        except NotFound:
            raise _CallerDeleted("The run that started this session was deleted. Nothing was changed.") from None
        return agent

    async def _renew_loop(self) -> None:
        while True:
            await asyncio.sleep(_BEAT)
            ids = [approved.pause.id for approved in self._at_work.values()]
            if ids:
                with _errors_logged("resume_worker.renew_failed"):
                    await self._claims.renew(self._process, ids)

    async def _expire_loop(self) -> None:
        while True:
            with _errors_logged("resume_worker.expire_failed"):
                while await self._pauses.expire(limit=_BATCH):
                    pass
                await self.recover()
            await asyncio.sleep(_EXPIRY_ROUND)

    async def _end(self, call: InterruptedCall) -> None:
        known = " Nothing was changed." if call.idempotent else " It is unknown whether it took effect."
        error = Interrupted(f"The server stopped while this ran.{known} Repeat the call if it is still needed.")
        state = OutcomeState.DONE if call.idempotent else OutcomeState.UNKNOWN
        agent = Agent(call.agent_id, "", AgentRules()) if call.agent_id else None
        caller = Caller(
            call.workspace_id, call.user_id, agent=agent, session_id=call.session_id, call_id=call.id, via="recovery"
        )
        request, outcome = CallRequest(ToolCall(call.tool, {}), caller), Outcome(call.id, state, error=error)
        try:
            await self._record_end(request, outcome, error)
        except Superseded:
            return
        except NotFound:
            # The session was deleted, so no events are recorded.
            await self._record_end(replace(request, caller=replace(caller, session_id=None)), outcome, error)

    async def _record_end(self, request: CallRequest, outcome: Outcome, error: ToolcribError) -> None:
        # As the system: the user may not be a member any more.
        tenant, record = Tenant(request.caller.workspace_id), ended_record(request, outcome, process=self._process)
        await self._calls.record(tenant, record, audit_record(request, "failed", error=error))
