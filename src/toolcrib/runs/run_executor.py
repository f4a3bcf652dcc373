"""Executes one run step by step until it ends, waits for a person or a child run, or another process takes it over.

Each step is committed under the run's epoch before the next one is decided, so a crash at any instant loses nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

import structlog

from toolcrib.core.agents import AgentRules
from toolcrib.core.audit import AuditRecord, CallRecord
from toolcrib.core.callers import Agent, Caller, SessionMode
from toolcrib.core.errors import (
    BadArguments,
    Forbidden,
    GivenUp,
    Interrupted,
    Overloaded,
    Superseded,
    ToolcribError,
    Unauthenticated,
)
from toolcrib.core.ids import CallId
from toolcrib.core.runs import RequestedCall, RequestedCallState, Run, RunEnding
from toolcrib.core.tool_calls import Effects, Outcome, OutcomeState, ToolCall
from toolcrib.events.event_bus import EventPublisher, WakeSignal
from toolcrib.gate.call_pipeline import Gate
from toolcrib.gate.call_recorder import audit_record, ended_record
from toolcrib.gate.call_stages import CallRequest
from toolcrib.gate.parallel_calls import run_parallel
from toolcrib.gate.paused_calls import PausedCalls
from toolcrib.gate.server_failures import NOTHING_CHANGED, UNKNOWN_EFFECT, server_failure
from toolcrib.gate.session_agents import SessionAgents
from toolcrib.providers.provider_registry import ProviderRegistry
from toolcrib.runs.compaction import summarize
from toolcrib.runs.loaded_run import CredentialResolver, LoadedRun, RunLoader, budget_error, model_of, planned_calls
from toolcrib.runs.model_slots import ModelSlots, NoModelSlot
from toolcrib.runs.model_turn import FailedTurn, ModelTurn, ProviderPatience
from toolcrib.runs.next_step import CallModel, CompactHistory, EndRun, ExecuteCalls, WaitForPerson, next_step
from toolcrib.runs.prompt_context_loader import PromptContextLoader
from toolcrib.runtime.disk_threads import FEW_FILES, in_thread
from toolcrib.runtime.drain import Drain
from toolcrib.runtime.traces import run_span
from toolcrib.storage.agents import AgentStore
from toolcrib.storage.database import OperationalError, Tenant
from toolcrib.storage.run_steps import RunStepStore
from toolcrib.storage.sessions import SessionStore
from toolcrib.tools.tool_registry import ToolRegistry

OnRunEnded = Callable[[Run, RunEnding], None]

_EXIT_PLAN_MODE = "exit_plan_mode"


class RunFinisher:
    """Ends runs: every call gets an outcome and no approval stays pending.

    It acts as the system, because the run's user may not be a member any more.
    """

    def __init__(
        self,
        runs: RunStepStore,
        registry: ToolRegistry,
        pauses: PausedCalls,
        live: EventPublisher,
        wake_signal: WakeSignal,
        on_ended: OnRunEnded | None = None,
    ) -> None:
        self._runs = runs
        self._registry = registry
        self._pauses = pauses
        self._live = live
        self._wake_signal = wake_signal
        self._on_ended = on_ended

    async def end(
        self,
        run: Run,
        calls: Sequence[RequestedCall],
        end_reason: RunEnding,
        *,
        error: Mapping[str, Any] | None = None,
        turn: Mapping[str, Any] | None = None,
    ) -> None:
        """End a run.

        Args:
            calls: The calls of the model's last message.
            turn: The model's last, partial answer, committed with the end.
        """
        tenant, closing = Tenant(run.workspace_id), []
        for call in calls:
            match call.state:
                case RequestedCallState.NEW | RequestedCallState.BEGUN:
                    closing.append(self._closed(run, call, end_reason))
                case RequestedCallState.WAITING | RequestedCallState.DECIDED:
                    if not await self._pauses.cancel_for_run(tenant, call.id):
                        # It waits for a child run, which ends too.
                        closing.append(self._closed(run, call, end_reason))
                case RequestedCallState.ENDED:
                    pass
        started = await self._runs.end(run, end_reason, error=error, turn=turn, closing=closing)
        self._live.notify(run.workspace_id, run.session_id)
        self._wake_signal.notify(run.workspace_id, started)
        if self._on_ended is not None:
            self._on_ended(run, end_reason)

    async def fail(self, run: Run, error: ToolcribError, *, turn: Mapping[str, Any] | None = None) -> None:
        """End a run that cannot continue. Reads the state of its calls from the rows."""
        messages = await self._runs.messages_for_model(run)
        progress = await self._runs.calls(run.workspace_id, messages[-1].call_ids if messages else [])
        error_data = {"code": error.code, "message": error.message, "fields": error.fields}
        await self.end(run, planned_calls(messages, progress), RunEnding.FAILED, error=error_data, turn=turn)

    def _closed(self, run: Run, call: RequestedCall, end_reason: RunEnding) -> tuple[CallRecord, AuditRecord]:
        called = ToolCall(call.name, call.parsed() or {})
        request = CallRequest(called, _caller(run, call), self._registry.get(call.name))
        if call.state in (RequestedCallState.WAITING, RequestedCallState.DECIDED):
            why = f"The run ended ({end_reason}) while this waited for its child run. What that has changed stays."
            state = OutcomeState.DONE
        elif call.state is RequestedCallState.BEGUN and not call.idempotent:
            why = f"The run ended ({end_reason}) while this ran; it is unknown whether it took effect."
            state = OutcomeState.UNKNOWN
        else:
            how_far = "while this ran" if call.state is RequestedCallState.BEGUN else "before this call ran"
            why = f"The run ended ({end_reason}) {how_far}. Nothing was changed."
            state = OutcomeState.DONE
        error = Interrupted(why)
        outcome = Outcome(call.id, state, result=request.encode_error(error), error=error)
        return ended_record(request, outcome, process=None), audit_record(request, "failed", error=error)


def _caller(run: Run, call: RequestedCall) -> Caller:
    agent = Agent(run.agent_id, "", AgentRules()) if run.agent_id else None
    caller = Caller(run.workspace_id, run.user_id, agent=agent, session_id=run.session_id, run_id=run.id, via=run.via)
    return replace(caller, call_id=call.id, run_epoch=run.epoch)


log = structlog.get_logger(__name__)

_OUR_FAULT = "Internal server error; the server log has the details."


# Between two model turns without tool calls, a run may be taken over this many times as often before it is given up: a
# run that only waits for its model loses its process whenever another run crashes the server.
_TAKEOVERS_PER_ATTEMPT = 4


class _CallNotStarted(Exception):
    """The run ended, or an earlier call was interrupted, before this call's turn."""


class RunExecutor:
    """Executes runs. Stateless between runs."""

    def __init__(
        self,
        *,
        runs: RunStepStore,
        sessions: SessionStore,
        agents: AgentStore,
        access: CredentialResolver,
        providers: ProviderRegistry,
        slots: ModelSlots,
        registry: ToolRegistry,
        executor: Gate,
        pauses: PausedCalls,
        session_agents: SessionAgents,
        contexts: PromptContextLoader,
        live: EventPublisher,
        wake_signal: WakeSignal,
        max_attempts: int = 3,
        drain: Drain | None = None,
        patience: ProviderPatience = ProviderPatience(),  # noqa: B008 - frozen
        on_ended: OnRunEnded | None = None,
    ) -> None:
        self._runs = runs
        self._drain = drain or Drain()
        self._patience = patience
        self._max_attempts = max_attempts
        self._access = access
        self._providers = providers
        self._slots = slots
        self._executor = executor
        self._pauses = pauses
        self._live = live
        self._contexts = contexts
        self._loader = RunLoader(runs, sessions, agents, access, providers, registry, session_agents)
        self._asking = ModelTurn(runs, access, providers, slots, live)
        self._endings = RunFinisher(runs, registry, pauses, live, wake_signal, on_ended)

    async def __call__(self, run: Run) -> None:
        """Execute the run as far as possible. Raises only what passes: errors of the database, and ``Overloaded``."""
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.id": str(run.agent_id),
            "gen_ai.conversation.id": str(run.session_id),
            "toolcrib.run.id": str(run.id),
            "toolcrib.run.epoch": run.epoch,
        }
        with run_span(run.id, run.epoch, attributes):
            await self._advance(run)

    async def _advance(self, run: Run) -> None:
        try:
            await self._step_loop(run)
        except Superseded as error:
            log.info("run.superseded", run_id=str(run.id), epoch=run.epoch, error=error.message)
            # If only the workspace's home has moved to another node, that node's process continues the run.
            await self._runs.release(run)
        except Overloaded:
            raise
        except ToolcribError as error:
            log.warning("run.failed", run_id=str(run.id), code=error.code)
            await self._fail(run, error)
        except OperationalError:
            raise
        except Exception as error:
            log.exception("run.failed", run_id=str(run.id))
            defect = ToolcribError(f"The run cannot continue. {_OUR_FAULT} Send the message again.")
            await self._fail(run, server_failure(error, "The run cannot continue. Send the message again.") or defect)

    async def _fail(self, run: Run, error: ToolcribError) -> None:
        try:
            await self._endings.fail(run, error)
        except Superseded:
            log.info("run.superseded", run_id=str(run.id), epoch=run.epoch)

    async def _step_loop(self, run: Run) -> None:
        if run.takeovers >= self._max_attempts * _TAKEOVERS_PER_ATTEMPT:
            raise GivenUp.after(run.takeovers)
        loaded = await self._loader.load(run)
        while True:
            step = next_step(loaded.snapshot())
            if self._drain.has_begun and not isinstance(step, WaitForPerson | EndRun):
                # Everything up to here is committed, and the next process continues with this step.
                await self._runs.release(loaded.run)
                return
            match step:
                case CallModel() | CompactHistory():
                    if not await self._call_model(loaded, step):
                        return
                case ExecuteCalls(calls):
                    await self._execute(loaded, calls)
                case WaitForPerson():
                    if await self._runs.save_waiting(loaded.run, [call.id for call in loaded.planned]):
                        self._live.notify(run.workspace_id, run.session_id)
                        return
                    await self._reload_calls(loaded)
                case EndRun(end_reason):
                    await self._endings.end(loaded.run, loaded.planned, end_reason, error=_why(end_reason, loaded))
                    return
                case _:
                    assert_never(step)

    async def _call_model(self, loaded: LoadedRun, step: CallModel | CompactHistory) -> bool:
        """Call the model, for an answer or for a summary. Returns False if the run ended or is put aside.

        Not if a budget is used up. Other runs use the same ones, so they are looked at before each request.
        """
        await self._loader.refresh_rules(loaded)
        loaded.budget_error = budget_error(loaded, await self._runs.budgets(loaded.run))
        if loaded.budget_error is not None:
            return True
        try:
            if isinstance(step, CompactHistory):
                await self._compact(loaded)
                return True
            await self._contexts.prepare(loaded)
            cut = await self._asking.run(loaded, conclude=step.conclude)
        except NoModelSlot:
            return not await self._await_slot(loaded)
        return cut is None or not await self._let_go(loaded, cut)

    async def _await_slot(self, loaded: LoadedRun) -> bool:
        """Put the run aside until its credential has room. False if it has by now, or the run was cancelled."""
        run, provider = loaded.run, loaded.agent.rules.provider
        assert provider is not None
        if not await self._runs.await_slot(run, provider):
            await self._reload_calls(loaded)
            return False
        log.info("run.awaits_slot", run_id=str(run.id), provider=provider)
        self._live.notify(run.workspace_id, run.session_id)
        return True

    async def _let_go(self, loaded: LoadedRun, cut: FailedTurn) -> bool:
        """Put the run aside if its provider limits requests, otherwise fail it.

        Returns:
            False if the run goes on: the model is asked again, or the run was cancelled meanwhile.
        """
        pause = self._patience.repeat(loaded, cut)
        if pause is not None and not loaded.snapshot().overdue:
            log.info("run.answer_withdrawn", run_id=str(loaded.run.id), code=cut.error.code)
            await self._asking.withdraw(loaded, cut)
            await asyncio.sleep(pause)
            return False
        run, seconds = loaded.run, self._patience.wait(loaded.run, cut)
        if seconds is None or loaded.snapshot().overdue:
            log.warning("run.failed", run_id=str(run.id), code=cut.error.code)
            await self._endings.fail(run, cut.error, turn=cut.turn)
            return True
        if not await self._runs.put_aside(run, seconds, cut.turn):
            await self._reload_calls(loaded)
            return False
        log.info("run.put_aside", run_id=str(run.id), seconds=seconds, code=cut.error.code)
        self._live.notify(run.workspace_id, run.session_id)
        return True

    async def _execute(self, loaded: LoadedRun, calls: tuple[RequestedCall, ...]) -> None:
        """Execute the calls of one message, in parallel where they touch different files."""
        await self._attempt(loaded)
        # Off the loop: a message can have hundreds of calls, each with many paths.
        parse = partial(_parsed_calls, calls, self._executor)
        asked, effects = await in_thread(parse) if len(calls) > FEW_FILES else parse()
        is_interrupted = False

        async def do(number: int) -> Outcome:
            nonlocal is_interrupted
            is_over = loaded.violations.counted > loaded.agent.rules.max_sandbox_violations
            if is_interrupted or is_over or self._drain.has_begun:
                # Calls that have not started yet do not start: the run stops, or repeats an earlier call first.
                raise _CallNotStarted
            try:
                # A change of trust, rules, grants or membership holds from the next call on, not from the next turn.
                await self._loader.refresh_rules(loaded)
                outcome = await self._execute_call(loaded, calls[number], asked[number])
            except BaseException as error:
                if not _is_reported_to_model(error):
                    is_interrupted = True
                raise
            loaded.record_outcome(calls[number], outcome)
            return outcome

        failures: dict[CallId, BaseException] = {}
        for call, outcome in zip(calls, await run_parallel(effects, do), strict=True):
            if isinstance(outcome, _CallNotStarted):
                continue
            if isinstance(outcome, BaseException):
                if not _is_reported_to_model(outcome):
                    raise outcome
                log.error("run.call_failed", run_id=str(loaded.run.id), tool=call.name, exc_info=outcome)
                failures[call.id] = outcome
            elif call.name == _EXIT_PLAN_MODE and outcome.succeeded:
                loaded.mode = SessionMode.BUILD
        if failures:
            await self._end_what_failed(loaded, calls, asked, failures)
        # A person may have decided by now: such a call starts for the first time.
        loaded.run = replace(loaded.run, attempts=0)

    async def _attempt(self, loaded: LoadedRun) -> None:
        """Count the attempt in the row before anything runs: a process that crashes cannot count it afterwards."""
        if loaded.has_turned:
            # The turn that requested these calls was committed just now and counted this attempt.
            loaded.has_turned = False
            return
        if loaded.run.attempts >= self._max_attempts:
            raise GivenUp.after(loaded.run.attempts)
        await self._runs.attempt(loaded.run, fresh=loaded.run.attempts == 0)

    async def _execute_call(self, loaded: LoadedRun, call: RequestedCall, asked: ToolCall) -> Outcome:
        caller = replace(loaded.caller, call_id=call.id)
        if call.state is RequestedCallState.DECIDED:
            return await self._resume_call(loaded, call, asked, caller)
        if call.state is RequestedCallState.BEGUN and not call.idempotent:
            return await self._executor.mark_unknown(asked, caller)
        if call.parsed() is None:
            flaw = BadArguments({"arguments": "Not a JSON object. Repeat the call with valid JSON."})
            return await self._executor.fail(asked, caller, flaw)
        return await self._executor.execute(asked, caller)

    async def _resume_call(self, loaded: LoadedRun, call: RequestedCall, asked: ToolCall, caller: Caller) -> Outcome:
        progress = loaded.calls[call.id]
        approved = await self._pauses.approved_call(Tenant(caller.workspace_id), call.id)
        if approved is None:
            if progress.has_child:
                return await self._executor.execute(asked, caller, continues=True)
            return Outcome(call.id, OutcomeState.PAUSED)
        approved = replace(approved, started_before=progress.begun)
        return await self._executor.resume(
            approved, loaded.agent, run_epoch=loaded.run.epoch, continues=progress.has_child
        )

    async def _end_what_failed(
        self,
        loaded: LoadedRun,
        calls: tuple[RequestedCall, ...],
        asked: list[ToolCall],
        failures: Mapping[CallId, BaseException],
    ) -> None:
        """After an unexpected error, take the outcomes from the rows and fail the calls that have none."""
        await self._reload_calls(loaded)
        for call, what in zip(calls, asked, strict=True):
            view = loaded.calls.get(call.id)
            if view is None or view.state is RequestedCallState.BEGUN:
                caller = replace(loaded.caller, call_id=call.id)
                # Its row is written with its changes: what has no outcome in it has changed nothing in the workspace.
                known = NOTHING_CHANGED if call.idempotent else UNKNOWN_EFFECT
                failure = server_failure(failures[call.id], known) if call.id in failures else None
                loaded.record_outcome(
                    call, await self._executor.fail(what, caller, failure or ToolcribError(_OUR_FAULT))
                )
        loaded.violations = await self._runs.violations(loaded.run)

    async def _reload_calls(self, loaded: LoadedRun) -> None:
        """Load the calls again: a person has decided one or cancelled the run, or a child run has ended."""
        loaded.calls |= await self._runs.calls(loaded.run.workspace_id, [call.id for call in loaded.planned])
        run = await self._runs.get(Tenant(loaded.run.workspace_id), loaded.run.id)
        loaded.run = replace(
            loaded.run,
            cancelled_by=run.cancelled_by,
            child_turns=run.child_turns,
            child_tokens=run.child_tokens,
            child_cost=run.child_cost,
            child_unpriced=run.child_unpriced,
        )

    async def _compact(self, loaded: LoadedRun) -> None:
        provider, _ = model_of(loaded.agent)
        credentials = await self._access.of(loaded.run.user_id, provider)
        summary, up_to, used = await summarize(loaded, self._providers, self._slots, credentials)
        tokens = loaded.compacted(summary, up_to)
        position = await self._runs.compact(loaded.run, summary, up_to, context_tokens=tokens, used=used)
        loaded.add_usage(used)
        loaded.messages[0] = replace(summary, position=position)
        self._live.notify(loaded.run.workspace_id, loaded.run.session_id)


def _why(end_reason: RunEnding, loaded: LoadedRun) -> dict[str, str] | None:
    """Return the error that explains an ending that the person did not choose."""
    match end_reason:
        case RunEnding.VIOLATION:
            messages = f"Stopped after {loaded.violations.counted} violations of the sandbox."
            return {"code": "VIOLATION", "message": messages}
        case RunEnding.DEADLINE:
            return {"code": "DEADLINE", "message": "Stopped: the time limit of the run was reached."}
        case RunEnding.BUDGET if loaded.budget_error is not None:
            return {"code": "BUDGET", "message": loaded.budget_error}
        case _:
            return None


def _parsed_calls(calls: Sequence[RequestedCall], executor: Gate) -> tuple[list[ToolCall], list[Effects | None]]:
    """Return the calls with their arguments, and what each would touch."""
    asked = [ToolCall(call.name, call.parsed() or {}) for call in calls]
    return asked, [executor.effects_of(call) for call in asked]


def _is_reported_to_model(error: BaseException) -> bool:
    """Return whether the model receives this error.

    Not if the run was taken over or cancelled, nor if the database is unavailable: then it is unknown what was done.
    Nor if the server had no room: the model cannot do anything about that, and the call is repeated.
    """
    passing = (Superseded, Forbidden, Unauthenticated, Overloaded, OperationalError)
    return isinstance(error, Exception) and not isinstance(error, passing)
