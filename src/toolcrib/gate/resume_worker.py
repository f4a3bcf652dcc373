"""Resumes paused calls that people have decided: executes approved ones, and asks again about stale ones.

A call that was decided in this process starts at once. Every call is also in the durable queue, which starts it later,
elsewhere, or again. Whoever claims it first executes it; the other waits until it has ended.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import structlog

from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Agent, Caller
from toolcrib.core.errors import (
    Forbidden,
    GivenUp,
    Interrupted,
    NotDecided,
    NotFound,
    Overloaded,
    Superseded,
    ToolcribError,
    Unauthenticated,
)
from toolcrib.core.ids import PauseId, ProcessId, WorkspaceId
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

# How many approved calls one process executes at a time.
_AT_ONCE = 8
_BATCH = 100
# After an error, and while another process executes the call.
_RETRY_SECONDS = 5.0


async def _is_over(work: Awaitable[bool], event: str, pause_id: PauseId) -> bool:
    """Return what the work returns. An error is logged, and the call is tried again: it must not be lost."""
    try:
        return await work
    except ToolcribError as error:
        log.warning(event, code=error.code, pause_id=str(pause_id))
    except OperationalError as error:
        log.warning("resume_worker.database_error", error=str(error), pause_id=str(pause_id))
    except Exception:
        log.exception(event, pause_id=str(pause_id))
    return False


class _CallerDeleted(Exception):
    """The agent or the session of the call does not exist any more."""


class ResumeWorker:
    """One per server. ``start`` is for calls that were decided here, ``execute`` for the durable queue."""

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
        process_id: ProcessId,
        lease: float = 15.0,
        max_attempts: int = 3,
        drain: Drain | None = None,
        recovered: Callable[[WorkspaceId], Awaitable[None]] | None = None,
    ) -> None:
        """Create the worker.

        Args:
            process_id: The process that claims.
            lease: A process that is silent for this many seconds is considered dead.
            max_attempts: A call that this many processes did not survive is given up. The last attempt runs alone.
            recovered: Waits until a workspace is recovered after a crash.
        """
        self._executor = executor
        self._pauses = pauses
        self._claims = claims
        self._agents = agents
        self._sessions = sessions
        self._session_agents = session_agents
        self._calls = calls
        self._node = node
        self._process_id = process_id
        self._lease = lease
        self._max_attempts = max_attempts
        self._tasks: dict[PauseId, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._alone = asyncio.Lock()
        self._is_stopped = False
        self._recovered = recovered
        self._drain = drain or Drain()
        self._drain.add(self._finish)

    async def recover(self) -> int:
        """End the calls of dead processes. Returns how many."""
        found = 0
        while batch := await self._calls.interrupted(lease=self._lease, limit=_BATCH):
            for call in batch:
                await self._end(call)
            found += len(batch)
        return found

    def start(self, workspace_id: WorkspaceId, pause_id: PauseId) -> None:
        """Start a call that was decided."""
        if not self._is_stopped and not self._drain.has_begun:
            self._begin(workspace_id, pause_id)

    async def start_due(self) -> None:
        """Start the calls that this node's processes left behind."""
        for workspace_id, pause_id in await self._claims.due(node=self._node, lease=self._lease, limit=_BATCH):
            self.start(workspace_id, pause_id)

    async def execute(self, workspace_id: WorkspaceId, pause_id: PauseId) -> None:
        """Execute a call that the queue has started. Returns once it has ended, or is in the queue again."""
        if self._is_stopped:
            # The entry stays begun, and another process takes it.
            await asyncio.Future()
        await asyncio.shield(self._begin(workspace_id, pause_id))

    async def stop(self) -> None:
        """Release the calls for other processes."""
        self._is_stopped = True
        for task in (at_work := list(self._tasks.values())):
            task.cancel()
        await asyncio.gather(*at_work, return_exceptions=True)

    async def resume_call(self, approved: ApprovedCall) -> bool:
        """Execute a claimed call. Returns False if it must be tried again."""
        return await _is_over(self._resume_or_abandon(approved), "resume_worker.call_failed", approved.pause.id)

    def _begin(self, workspace_id: WorkspaceId, pause_id: PauseId) -> asyncio.Task[None]:
        task = self._tasks.get(pause_id)
        if task is None:
            task = asyncio.create_task(self._resume(workspace_id, pause_id), name=f"paused call {pause_id}")
            self._tasks[pause_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(pause_id))
        return task

    async def _resume(self, workspace_id: WorkspaceId, pause_id: PauseId) -> None:
        try:
            while True:
                work = self._claim_and_execute(workspace_id, pause_id)
                if await _is_over(work, "resume_worker.claim_failed", pause_id):
                    return
                await asyncio.sleep(_RETRY_SECONDS)
        except asyncio.CancelledError:
            await asyncio.shield(self._release(workspace_id, pause_id))
            raise

    async def _claim_and_execute(self, workspace_id: WorkspaceId, pause_id: PauseId) -> bool:
        """Return whether the call is over. It is not if it failed, or if another process executes it."""
        attempts = await self._claims.attempts(workspace_id, pause_id)
        if attempts is None:
            return True
        if self._recovered is not None:
            # Without a turn: the calls of other workspaces need not wait for this one.
            await self._recovered(workspace_id)
        async with self._turn(alone=attempts >= max(self._max_attempts - 1, 1)):
            if self._drain.has_begun:
                return False
            claimed = await self._claims.claim(
                self._process_id, workspace_id, pause_id, node=self._node, lease=self._lease
            )
            if claimed is not None:
                return await self.resume_call(claimed)
        return await self._is_moved(workspace_id, pause_id)

    @asynccontextmanager
    async def _turn(self, *, alone: bool) -> AsyncIterator[None]:
        """Wait for room. A call that runs ``alone`` takes all of it, so that no other call is blamed for a crash."""
        async with AsyncExitStack() as held:
            if alone:
                await held.enter_async_context(self._alone)
            for _ in range(_AT_ONCE if alone else 1):
                await held.enter_async_context(self._room)
            yield

    async def _finish(self) -> None:
        # Once the drain has begun, nobody claims after this.
        async with self._turn(alone=True):
            pass

    async def _is_moved(self, workspace_id: WorkspaceId, pause_id: PauseId) -> bool:
        return await self._claims.release_moved(
            self._process_id, workspace_id, pause_id, node=self._node, lease=self._lease
        )

    async def _release(self, workspace_id: WorkspaceId, pause_id: PauseId) -> None:
        """Release the claim because this process stops. It does not count as an attempt."""
        try:
            await self._claims.release(self._process_id, workspace_id, pause_id)
        except OperationalError as error:
            log.warning("resume_worker.release_failed", pause_id=str(pause_id), error=str(error))

    async def _resume_or_abandon(self, approved: ApprovedCall) -> bool:
        pause = approved.pause
        if approved.attempts > self._max_attempts:
            log.error("resume_worker.call_abandoned", pause_id=str(pause.id), tool=pause.tool)
            await self._pauses.abandon(approved, GivenUp.after(self._max_attempts))
            return True
        try:
            agent = await self._agent(approved)
            await self._executor.resume(approved, agent)
        except _CallerDeleted as gone:
            await self._pauses.abandon(approved, NotDecided(str(gone)))
        except (Forbidden, Unauthenticated):
            denial = NotDecided("The user this agent acts for is no longer a member of the workspace.")
            await self._pauses.abandon(approved, denial)
        except Overloaded:
            # A call that began and may not be repeated fails with ``MayHaveBegun`` instead.
            if not approved.started_before:
                await self._claims.note_not_begun(self._process_id, pause.workspace_id, pause.id)
            raise
        except Superseded:
            return await self._is_moved(pause.workspace_id, pause.id)
        return True

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
        tenant, record = (
            Tenant(request.caller.workspace_id),
            ended_record(request, outcome, process=str(self._process_id)),
        )
        await self._calls.record(tenant, record, audit_record(request, "failed", error=error))
