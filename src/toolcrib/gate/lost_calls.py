"""Settles calls whose answer was lost: they were sent to another node, or their server was killed."""

from typing import Any

from toolcrib.core.callers import Caller
from toolcrib.core.errors import DatabaseBusy, Interrupted, NotFound, Superseded, ToolcribError, ToolFailed
from toolcrib.core.tool_calls import Outcome, OutcomeState, ToolCall
from toolcrib.events.event_bus import EventPublisher
from toolcrib.gate.call_recorder import audit_record, ended_record
from toolcrib.gate.call_stages import CallRequest
from toolcrib.gate.paused_calls import PausedCalls, paused_outcome
from toolcrib.policy.model_results import model_result
from toolcrib.policy.permissions import granted_hosts
from toolcrib.storage.database import Tenant
from toolcrib.storage.tool_calls import StoredCall, ToolCallStore
from toolcrib.tools.tool_registry import ToolRegistry


class LostCalls:
    """Finds out how a call ended, or ends it: its row and what it changes are committed together, and only once."""

    def __init__(
        self,
        registry: ToolRegistry,
        calls: ToolCallStore,
        paused_calls: PausedCalls,
        events: EventPublisher,
        *,
        process: str | None,
    ) -> None:
        self._registry = registry
        self._calls = calls
        self._pauses = paused_calls
        self._events = events
        self._process = process

    async def may_repeat(self, call: ToolCall, caller: Caller) -> bool:
        """Return whether the call only reads, so that it does no harm twice."""
        tool = await self._registry.find(caller.workspace_id, call.name)
        return tool is None or (tool.read_only and tool.idempotent and not tool.drafts)

    async def stored(self, caller: Caller) -> Outcome | None:
        """Return the outcome that the other node has stored, if it has."""
        try:
            row = await self._calls.get(Tenant.of(caller), caller.call_id)
        except NotFound:
            return None
        if row.state != OutcomeState.PAUSED:
            return None if row.state == "running" else _outcome(row, caller)
        try:
            return paused_outcome(await self._pauses.of_call(Tenant.of(caller), caller.call_id))
        except NotFound:
            # It waits for a child run.
            return Outcome(row.id, OutcomeState.PAUSED)

    async def after_crash(self, call: ToolCall, caller: Caller) -> Outcome | None:
        """Return how the call ended, or None if it can be made again with its id: then it is committed only once."""
        if (known := await self.stored(caller)) is not None:
            return known
        request = CallRequest(call, caller, await self._registry.find(caller.workspace_id, call.name))
        if request.is_repeatable and not _may_contact_hosts(request):
            return None
        return await self.settle(call, caller)

    async def settle(self, call: ToolCall, caller: Caller) -> Outcome:
        """Return how the call ended. If it has not, end it: what the other node does of it is never committed.

        Only what it did outside the workspace remains unknown.
        """
        if (known := await self.stored(caller)) is not None:
            return known
        request = CallRequest(call, caller, await self._registry.find(caller.workspace_id, call.name))
        if request.is_repeatable and not _may_contact_hosts(request):
            state, rest = OutcomeState.DONE, "Nothing was changed. Call again."
        else:
            state, rest = OutcomeState.UNKNOWN, "It is unknown whether it took effect. Check before you repeat it."
        error = Interrupted(f"The node with the files of this workspace stopped answering during the call. {rest}")
        outcome = Outcome(caller.call_id, state, request.encode_error(error), error)
        record = ended_record(request, outcome, process=self._process)
        try:
            await self._calls.record(Tenant.of(caller), record, audit_record(request, "failed", error=error))
        except Superseded:
            # The other node was faster by a moment.
            if (known := await self.stored(caller)) is None:
                raise
            return known
        except DatabaseBusy:
            # The other node does not run and does not end either: its transaction is open.
            raise Interrupted(
                "The node with the files of this workspace stopped answering during the call. Whether it takes effect "
                f"is not known yet: ask for call {caller.call_id} later."
            ) from None
        if caller.session_id is not None:
            self._events.notify(caller.workspace_id, caller.session_id)
        return outcome


def _may_contact_hosts(request: CallRequest) -> bool:
    """Whether the call is a command that may have contacted a host before its node was lost."""
    tool, agent = request.tool, request.caller.agent
    if tool is None:
        return False
    try:
        effects = tool.effects(tool.parse(request.call.arguments))
    except ToolcribError:
        return False
    return effects.command is not None and bool(effects.hosts or (agent and granted_hosts(agent.rules, tool.name)))


def _outcome(row: StoredCall, caller: Caller) -> Outcome:
    """Return the outcome of a stored call, as the other node would have returned it."""
    error = None if row.error is None else _error(row.error)
    if caller.agent is None or row.result is None:
        return Outcome(row.id, OutcomeState(row.state), row.result, error, row.change_set_id)
    bounded = model_result(row.result, row.id)
    metadata = {"truncated": dict(bounded.truncation)} if bounded.truncation else {}
    return Outcome(row.id, OutcomeState(row.state), bounded.value, error, row.change_set_id, metadata)


def _error(row: Any) -> ToolcribError:
    error = ToolFailed(row["message"], fields=row["fields"])
    error.code = row["code"]
    return error
