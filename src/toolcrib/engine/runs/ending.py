"""Ends runs, in good order: no call stays without an end, no approval open that nobody would carry out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolcrib.domain.agents import AgentRules
from toolcrib.domain.book import AuditRecord, CallRecord
from toolcrib.domain.callers import Agent, Caller
from toolcrib.domain.errors import Interrupted, ToolcribError
from toolcrib.domain.outcomes import Outcome, OutcomeState
from toolcrib.domain.runs import CallState, Ending, PlannedCall, Run
from toolcrib.engine.approvals import Approvals
from toolcrib.engine.entry import Entry
from toolcrib.engine.questions import Questions
from toolcrib.engine.runs.call_view import CallView
from toolcrib.engine.runs.story import planned_calls
from toolcrib.engine.watchers import Watchers
from toolcrib.storage.database import Tenant
from toolcrib.storage.runs import Runs
from toolcrib.tools.call import ToolCall
from toolcrib.tools.registry import Registry


class Endings:
    """Everything here is done as the system: who the run was for may be gone."""

    def __init__(
        self, runs: Runs, registry: Registry, approvals: Approvals, questions: Questions, live: Watchers
    ) -> None:
        self._runs = runs
        self._registry = registry
        self._approvals = approvals
        self._questions = questions
        self._live = live

    async def end(
        self,
        run: Run,
        calls: Sequence[PlannedCall],
        ending: Ending,
        *,
        error: Mapping[str, Any] | None = None,
        turn: Mapping[str, Any] | None = None,
    ) -> None:
        """Ends a run; ``calls`` are those of the model's last message, ``turn`` its last words."""
        tenant, closing = Tenant(run.workspace_id), []
        for call in calls:
            match call.state:
                case CallState.NEW | CallState.BEGUN:
                    closing.append(self._closed(run, call, ending))
                case CallState.WAITING | CallState.DECIDED:
                    await self._approvals.withdraw_for_run(tenant, call.id)
                    await self._questions.withdraw_for_run(tenant, call.id)
                case CallState.ENDED:
                    pass
        await self._runs.end(run, ending, error=error, turn=turn, closing=closing)
        self._live.wake(run.workspace_id, run.session_id)

    async def fail(self, run: Run, error: ToolcribError, *, turn: Mapping[str, Any] | None = None) -> None:
        """Ends a run that cannot go on, whatever is known of it: how far its calls are is read from the rows."""
        said = await self._runs.conversation(run)
        rows = await self._runs.calls(run, said[-1].call_ids if said else [])
        calls = planned_calls(said, {call_id: CallView.of(row) for call_id, row in rows.items()})
        told = {"code": error.code, "message": error.message, "fields": error.fields}
        await self.end(run, calls, Ending.FAILED, error=told, turn=turn)

    def _closed(self, run: Run, call: PlannedCall, ending: Ending) -> tuple[CallRecord, AuditRecord]:
        entry = Entry(ToolCall(call.name, call.parsed() or {}), _caller(run, call), process="")
        entry.tool = self._registry.get(call.name)
        if call.state is CallState.BEGUN and not call.repeatable:
            why = f"The run ended ({ending}) while this ran, and nobody can tell whether it took effect."
            state = OutcomeState.UNKNOWN
        else:
            why = f"The run ended ({ending}) before this was carried out. Nothing was changed."
            state = OutcomeState.DONE
        error = Interrupted(why)
        result = entry.tool.failure(error) if entry.tool and entry.tool.failure else None
        outcome = Outcome(call.id, state, result=result, error=error)
        return entry.ended(outcome), entry.audit_record("failed", error=error)


def _caller(run: Run, call: PlannedCall) -> Caller:
    agent = Agent(run.agent_id, "", AgentRules()) if run.agent_id else None
    caller = Caller(run.workspace_id, run.user_id, agent=agent, session_id=run.session_id, run_id=run.id, via=run.via)
    return replace(caller, call_id=call.id, fence=run.epoch)
