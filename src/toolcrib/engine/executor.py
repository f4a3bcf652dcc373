"""The gate. Executes one tool call, whoever makes it. Knows nothing of HTTP or of models."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from toolcrib.domain.book import AuditRecord, CallRecord, files_changed, without_content
from toolcrib.domain.callers import Caller
from toolcrib.domain.changes import ChangeSet
from toolcrib.domain.effects import Effects
from toolcrib.domain.errors import (
    ApprovalRequired,
    BaseChanged,
    Conflict,
    Forbidden,
    Refused,
    Superseded,
    TimedOut,
    ToolcribError,
    ToolFailed,
)
from toolcrib.domain.outcomes import Outcome, OutcomeState
from toolcrib.engine.book import Book
from toolcrib.engine.journal import Journal
from toolcrib.policy.bounds import bound
from toolcrib.policy.decisions import Decision, Verdict, decide
from toolcrib.policy.explain import Explanation, explain
from toolcrib.policy.guard import Guard
from toolcrib.policy.permissions import permission_for
from toolcrib.storage.calls import Calls
from toolcrib.storage.database import Tenant
from toolcrib.tools.context import ToolContext
from toolcrib.tools.registry import Registry
from toolcrib.tools.tool import Tool
from toolcrib.workspace.commit import Committer
from toolcrib.workspace.draft import Draft
from toolcrib.workspace.tree import Shelves, Tree

# How often a change is planned anew because someone else was quicker.
_PLANS = 100


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What is asked for: a tool's name and its arguments as they came."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a call may cost, and how much of its result a model is given."""

    call_seconds: float = 60.0
    model_result_bytes: int = 60_000


@dataclass(frozen=True, slots=True)
class _Heard:
    """A call that was understood: the tool, its checked arguments, and what it would touch."""

    tool: Tool
    arguments: Any
    effects: Effects


class Executor:
    """Find, validate, effects, decide, ask, run, bound, record: the one way to any tool."""

    def __init__(
        self,
        registry: Registry,
        shelves: Shelves,
        committer: Committer,
        book: Book,
        journal: Journal,
        call_rows: Calls,
        *,
        limits: Limits | None = None,
    ) -> None:
        self._registry = registry
        self._shelves = shelves
        self._committer = committer
        self._book = book
        self._journal = journal
        self._call_rows = call_rows
        self._limits = limits or Limits()

    async def execute(self, call: ToolCall, caller: Caller, *, emit: Callable[[str], None] | None = None) -> Outcome:
        """Does what is asked, if it may be. What was refused or failed as tools may fail is an outcome too;
        who does not belong here, and what is our own fault, is raised."""
        if not self._journal.keeps(caller, self._registry.get(call.name)):
            return await self._execute(call, caller, emit)
        async with self._journal.line(call.name, call.arguments, caller) as line:
            line.outcome = await self._execute(call, caller, emit)
        return line.outcome

    async def _execute(self, call: ToolCall, caller: Caller, emit: Callable[[str], None] | None) -> Outcome:
        entry = _Entry(call, caller)
        try:
            heard = self._hear(call)
            decision = entry.decision = decide(caller, heard.tool, heard.effects)
            _refuse_or_ask(decision)
            return await self._run(heard, decision, caller, entry, emit)
        except (ToolFailed, Refused) as error:
            return await self._end(entry, error)
        except Forbidden as error:
            await self._end(entry, error, rule="membership")
            raise
        except Superseded as error:
            await self._end(entry, error)
            raise
        except Exception:
            # The book says that it was tried, if it can still be written. A commit has written its own record.
            if not entry.committing:
                with suppress(Exception):
                    await self._book.write(entry.audit_record("failed", error=ToolcribError("Our own fault.")))
            raise

    def explain(self, call: ToolCall, caller: Caller) -> Explanation:
        """Which rule would decide this call, and why. Runs nothing and writes nothing down."""
        heard = self._hear(call)
        return explain(caller, heard.tool, heard.effects)

    def effects_of(self, call: ToolCall) -> Effects | None:
        """What a call would touch; nothing is known of one that cannot be understood."""
        try:
            return self._hear(call).effects
        except (ToolFailed, Refused):
            return None

    def _hear(self, call: ToolCall) -> _Heard:
        tool = self._registry.require(call.name)
        arguments = tool.parse(call.arguments)
        return _Heard(tool, arguments, tool.effects(arguments))

    async def _run(
        self,
        heard: _Heard,
        decision: Decision,
        caller: Caller,
        entry: "_Entry",
        emit: Callable[[str], None] | None,
    ) -> Outcome:
        tree = Tree(self._shelves, caller, Guard(caller, heard.tool.name), needs=decision.needs_role)
        if not heard.tool.looks or not heard.effects.places:
            await tree.admit()
        deadline = self._deadline(heard, caller)
        for _ in range(_PLANS):
            draft = Draft(tree)
            context = ToolContext(caller, tree, draft, deadline, emit or _unheard)
            result = await self._call(heard, context)
            if draft.is_empty:
                return await self._answer(entry, result)
            try:
                return await self._commit(entry, result, draft.change_set(caller), decision)
            except BaseChanged as moved_on:
                # Someone was quicker. The tool looks again and plans on what it finds, or says what is wrong.
                entry.committing = False
                if moved_on.drifted:
                    await self._shelves.sync.reconcile(Tenant.of(caller), draft.change_set(caller).places)
        raise Conflict("Others keep changing the same files. Try again in a moment.")

    async def _call(self, heard: _Heard, context: ToolContext) -> Any:
        seconds = context.seconds_left
        try:
            async with asyncio.timeout(seconds):
                return await heard.tool.function(heard.arguments, context)
        except TimeoutError:
            raise TimedOut(f"`{heard.tool.name}` was ended after {seconds:.0f} s. Nothing was changed.") from None

    async def _commit(self, entry: "_Entry", result: Any, change_set: ChangeSet, decision: Decision) -> Outcome:
        """The change, the call's outcome and its record in the book: one transaction."""
        entry.committing = True
        await self._committer.commit(
            Tenant.of(entry.caller),
            change_set,
            needs=decision.needs_role,
            call=entry.call_record("done", result, change_set),
            audit=entry.audit_record("done", change_set=change_set),
        )
        shown, metadata = self._shown(entry, result)
        return Outcome(entry.caller.call_id, OutcomeState.DONE, shown, change_set_id=change_set.id, metadata=metadata)

    async def _answer(self, entry: "_Entry", result: Any) -> Outcome:
        """A call that changed nothing. It is kept only if its reader did not get all of it."""
        shown, metadata = self._shown(entry, result)
        if metadata:
            await self._call_rows.record(Tenant.of(entry.caller), entry.call_record("done", result, None))
        await self._book.write(entry.audit_record("done"))
        return Outcome(entry.caller.call_id, OutcomeState.DONE, shown, metadata=metadata)

    def _shown(self, entry: "_Entry", result: Any) -> tuple[Any, dict[str, Any]]:
        """What the caller gets. A model's result is bounded; what was cut is kept with the call, for fetching."""
        if not entry.caller.is_agent:
            return result, {}
        bounded = bound(result, limit_bytes=self._limits.model_result_bytes)
        if not bounded.cut:
            return result, {}
        return bounded.value, {"cut": True, "bytes": bounded.original_bytes, "call_id": str(entry.caller.call_id)}

    async def _end(self, entry: "_Entry", error: ToolcribError, *, rule: str | None = None) -> Outcome:
        """A call that was refused, or failed as tools may."""
        refused = isinstance(error, Refused | Forbidden)
        await self._book.write(entry.audit_record("refused" if refused else "failed", error=error, rule=rule))
        state = OutcomeState.REFUSED if refused else OutcomeState.DONE
        return Outcome(entry.caller.call_id, state, result=self._told(entry.tool_name, error), error=error)

    def _told(self, tool_name: str, error: ToolcribError) -> Any:
        """The failure in the words of the tool's own dialect, if it has any."""
        tool = self._registry.get(tool_name)
        return tool.failure(error) if tool and tool.failure else None

    def _deadline(self, heard: _Heard, caller: Caller) -> float:
        """When the call will be ended: an agent's own limit for the tool, or the server's."""
        permission = permission_for(caller.agent.rules, heard.tool.name) if caller.agent else None
        allowed = permission.timeout if permission and permission.timeout else self._limits.call_seconds
        return time.monotonic() + allowed


def _unheard(_: str) -> None:
    """Nobody watches this call."""


def _refuse_or_ask(decision: Decision) -> None:
    if decision.error is not None:
        raise decision.error
    if decision.verdict is Verdict.ASK:
        raise ApprovalRequired(f"{decision.reason} Approvals are not available on this server yet, so it was refused.")


class _Entry:
    """What the book will say of one call."""

    def __init__(self, call: ToolCall, caller: Caller) -> None:
        self.caller = caller
        self.decision: Decision | None = None
        self.committing = False
        self.tool_name = call.name
        self._call = call
        self._at = datetime.now(UTC)
        self._started = time.perf_counter_ns()

    def audit_record(
        self,
        outcome: str,
        *,
        error: ToolcribError | None = None,
        rule: str | None = None,
        change_set: ChangeSet | None = None,
    ) -> AuditRecord:
        decision = self.decision
        refused_by_gate = outcome == "refused" and (rule is not None or decision is None)
        return AuditRecord(
            caller=self.caller,
            tool=self._call.name,
            decision="refuse" if refused_by_gate else str(decision.verdict) if decision else "none",
            rule=rule or (decision.rule if decision else "arguments"),
            input=without_content(self._call.arguments),
            outcome=outcome,
            at=self._at,
            duration_us=(time.perf_counter_ns() - self._started) // 1000,
            error_code=error.code if error else None,
            files=files_changed(change_set) if change_set else (),
        )

    def call_record(self, state: str, result: Any, change_set: ChangeSet | None) -> CallRecord:
        return CallRecord(
            caller=self.caller,
            tool=self._call.name,
            arguments=without_content(self._call.arguments),
            state=state,
            result=result,
            change_set_id=change_set.id if change_set else None,
        )
