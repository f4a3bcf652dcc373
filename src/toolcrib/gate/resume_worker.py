"""Processes paused calls: executes approved ones, asks again about stale ones, and expires overdue ones.

All state is in rows. The worker may stop at any moment on any node; the next one continues.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta

import structlog

from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Agent, Caller, WorkspaceRole
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
from toolcrib.core.tool_calls import Outcome, OutcomeState, ToolCall
from toolcrib.gate.approvals import Approvals
from toolcrib.gate.call_pipeline import Gate
from toolcrib.gate.call_stages import CallRecording
from toolcrib.gate.questions import Questions
from toolcrib.policy.phases import in_phase
from toolcrib.storage import approvals as storage
from toolcrib.storage.agents import AgentStore
from toolcrib.storage.approved_calls import ApprovedCall
from toolcrib.storage.database import OperationalError, Tenant
from toolcrib.storage.tool_calls import InterruptedCall as InterruptedCall
from toolcrib.storage.tool_calls import ToolCallStore

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


class _CallerDeleted(Exception):
    """The agent or the session of the call does not exist any more."""


class ResumeWorker:
    """Resumes paused calls; one per server. ``decided`` is set by a decision on this node; polling finds the others."""

    def __init__(
        self,
        executor: Gate,
        approvals: Approvals,
        questions: Questions,
        rows: storage.ApprovalStore,
        agents: AgentStore,
        calls: ToolCallStore,
        *,
        node: str,
        process: str,
        decided: asyncio.Event,
        lease: float = 15.0,
        max_attempts: int = 3,
    ) -> None:
        """Create the worker.

        Args:
            process: The name under which claims are made.
            lease: A process that is silent for this many seconds is considered dead.
            max_attempts: A call that this many processes did not survive is given up. The last attempt runs alone.
        """
        self._executor = executor
        self._approvals = approvals
        self._questions = questions
        self._rows = rows
        self._agents = agents
        self._calls = calls
        self._node = node
        self._process = process
        self._process_lease = lease
        self._max_attempts = max_attempts
        self._poked = decided
        self._at_work: dict[asyncio.Task[None], ApprovedCall] = {}

    async def recover(self) -> int:
        """End the calls of dead processes. Returns how many."""
        await self._rows.release_dead(lease=self._process_lease)
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
            try:
                await self._resume_some(tasks)
            except OperationalError as error:
                log.warning("resume_worker.database_error", error=str(error))
            except Exception:
                # No other task executes approved calls, so no error may end this loop.
                log.exception("resume_worker.loop_failed")
            await self._wait_for_signal(_ROUND)

    async def _resume_some(self, tasks: asyncio.TaskGroup) -> None:
        while (room := _AT_ONCE - len(self._at_work)) and not any(map(self._is_alone, self._at_work.values())):
            claimed = await self._rows.claim(
                node=self._node,
                holder=self._process,
                lease=_LEASE,
                limit=room,
                alone_after=max(self._max_attempts - 1, 1),
                idle=not self._at_work,
            )
            for allowed in claimed:
                task = tasks.create_task(self._resume_call(allowed))
                self._at_work[task] = allowed
                task.add_done_callback(self._done)
            if len(claimed) < room:
                return

    def _is_alone(self, allowed: ApprovedCall) -> bool:
        return allowed.attempts > max(self._max_attempts - 1, 1)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._at_work[task]
        self._poked.set()

    async def _resume_call(self, allowed: ApprovedCall) -> None:
        approval_id = str(allowed.approval.id)
        try:
            await self._resume_or_abandon(allowed)
        except asyncio.CancelledError:
            await asyncio.shield(self._give_back(allowed))
            raise
        except ToolcribError as error:
            log.warning("resume_worker.call_failed", approval_id=approval_id, error=error.message)
        except OperationalError as error:
            log.warning("resume_worker.database_error", approval_id=approval_id, error=str(error))
        except Exception:
            # The claim stays until its lease ends, so that a call that always fails is not retried without pause.
            log.exception("resume_worker.call_failed", approval_id=approval_id)

    async def _give_back(self, allowed: ApprovedCall) -> None:
        """Release the claim because this process stops. It does not count as an attempt."""
        try:
            await self._rows.give_back(self._process, allowed.approval.id)
        except OperationalError as error:
            log.warning("resume_worker.release_failed", approval_id=str(allowed.approval.id), error=str(error))

    async def _resume_or_abandon(self, allowed: ApprovedCall) -> None:
        approval = allowed.approval
        if allowed.attempts > self._max_attempts:
            log.error("resume_worker.call_abandoned", approval_id=str(approval.id), tool=approval.tool)
            await self._approvals.abandon(allowed, GivenUp.after(self._max_attempts))
            return
        try:
            agent = await self._agent(allowed)
            await self._executor.resume(allowed, agent)
        except _CallerDeleted as gone:
            await self._approvals.abandon(allowed, NotDecided(str(gone)))
        except (Forbidden, Unauthenticated):
            denial = NotDecided("The user this agent acts for is no longer a member of the workspace.")
            await self._approvals.abandon(allowed, denial)
        except Superseded:
            await self._rows.release(approval, self._node)

    async def _agent(self, allowed: ApprovedCall) -> Agent | None:
        """Return the calling agent with its current rules.

        Raises:
            _CallerGone: The session or the agent was deleted.
        """
        approval = allowed.approval
        tenant = Tenant(approval.workspace_id)
        async with self._rows.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            phase = None
            if approval.session_id is not None:
                try:
                    phase = await self._rows.session_phase(connection, approval)
                except NotFound:
                    raise _CallerDeleted("The session of this call was deleted. Nothing was changed.") from None
        if approval.agent_id is None:
            return None
        try:
            return in_phase((await self._agents.get(tenant, approval.agent_id)).as_caller, phase)
        except NotFound:
            raise _CallerDeleted("The agent of this call was deleted. Nothing was changed.") from None

    async def _renew_loop(self) -> None:
        while True:
            await asyncio.sleep(_BEAT)
            ids = [allowed.approval.id for allowed in self._at_work.values()]
            if ids:
                try:
                    await self._rows.renew(self._process, ids)
                except OperationalError as error:
                    log.warning("resume_worker.renew_failed", error=str(error))
                except Exception:
                    log.exception("resume_worker.renew_failed")

    async def _expire_loop(self) -> None:
        while True:
            try:
                while await self._approvals.expire(limit=_BATCH) + await self._questions.expire(limit=_BATCH):
                    pass
                await self.recover()
            except OperationalError as error:
                log.warning("resume_worker.database_error", error=str(error))
            except Exception:
                log.exception("resume_worker.expire_failed")
            await asyncio.sleep(_EXPIRY_ROUND)

    async def _wait_for_signal(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._poked.wait()
        except TimeoutError:
            pass
        self._poked.clear()

    async def _end(self, call: InterruptedCall) -> None:
        known = " Nothing was changed." if call.idempotent else " It is unknown whether it took effect."
        error = Interrupted(f"The server stopped while this ran.{known} Repeat the call if it is still needed.")
        state = OutcomeState.DONE if call.idempotent else OutcomeState.UNKNOWN
        agent = Agent(call.agent_id, "", AgentRules()) if call.agent_id else None
        caller = Caller(
            call.workspace_id, call.user_id, agent=agent, session_id=call.session_id, call_id=call.id, via="recovery"
        )
        entry = CallRecording(ToolCall(call.tool, {}), caller, self._process)
        outcome = Outcome(call.id, state, error=error)
        try:
            await self._calls.record(
                Tenant(call.workspace_id), entry.ended(outcome), entry.audit_record("failed", error=error)
            )
        except Superseded:
            return
        except NotFound:
            # The session was deleted, so no events are recorded.
            quiet = CallRecording(entry.call, replace(caller, session_id=None), self._process)
            await self._calls.record(
                Tenant(call.workspace_id), quiet.ended(outcome), quiet.audit_record("failed", error=error)
            )
