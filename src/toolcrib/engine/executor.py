"""The gate. Executes one tool call, whoever makes it. Knows nothing of HTTP or of models."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from toolcrib.domain.agents import Approve
from toolcrib.domain.callers import Agent, Caller
from toolcrib.domain.effects import Effects
from toolcrib.domain.errors import (
    BaseChanged,
    Conflict,
    Forbidden,
    NotPermitted,
    Refused,
    Superseded,
    TimedOut,
    ToolcribError,
    ToolFailed,
)
from toolcrib.domain.outcomes import Outcome
from toolcrib.engine.approvals import Approvals, entry_of, is_as_asked
from toolcrib.engine.entry import Entry
from toolcrib.engine.foresight import Plan, granted_in
from toolcrib.engine.journal import Journal
from toolcrib.engine.questions import Questions
from toolcrib.engine.recorder import Recorder
from toolcrib.policy.decisions import Decision, Verdict, decide
from toolcrib.policy.explain import Explanation, explain
from toolcrib.policy.guard import Guard
from toolcrib.policy.permissions import hosts_granted, permission_for
from toolcrib.storage.approvals import Allowed
from toolcrib.storage.database import Tenant
from toolcrib.storage.health import OperationalError
from toolcrib.tools.call import ToolCall
from toolcrib.tools.context import ToolContext
from toolcrib.tools.registry import Registry
from toolcrib.tools.tool import Tool
from toolcrib.workspace.base import overtaken
from toolcrib.workspace.draft import Draft
from toolcrib.workspace.tree import Shelves, Tree

# How often a change is planned anew because someone else was quicker.
_PLANS = 100
# How often a change that a person approved is tried again because the disk looked different and was not.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """What a call may cost."""

    call_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class _Heard:
    """A call that was understood: the tool, its checked arguments, and what it would touch."""

    tool: Tool
    arguments: Any
    effects: Effects

    @property
    def is_repeatable(self) -> bool:
        """Whether doing it again is safe when nobody knows whether it was done. Not if it may speak to others."""
        return self.tool.repeatable and not (self.effects.runs and self.effects.contacts)

    def can_be_planned(self, caller: Caller) -> bool:
        """Whether all that it would do is a change set, which can be worked out without doing it.

        Of a command it is worked out by running it, so only if the agent's owner wants to be asked about the effect.
        """
        if self.effects.contacts:
            return False
        if self.effects.runs is None:
            return bool(self.effects.writes)
        permission = permission_for(caller.agent.rules, self.tool.name) if caller.agent else None
        return permission is not None and permission.approve is Approve.EFFECT and not self.tool.replans


class Executor:
    """Find, validate, effects, decide, ask, run, bound, record: the one way to any tool."""

    def __init__(
        self,
        registry: Registry,
        shelves: Shelves,
        recorder: Recorder,
        journal: Journal,
        approvals: Approvals,
        questions: Questions,
        *,
        process: str,
        limits: Limits | None = None,
    ) -> None:
        self._registry = registry
        self._shelves = shelves
        self._recorder = recorder
        self._journal = journal
        self._approvals = approvals
        self._questions = questions
        self._process = process
        self._limits = limits or Limits()

    async def execute(self, call: ToolCall, caller: Caller, *, emit: Callable[[str], None] | None = None) -> Outcome:
        """Does what is asked, if it may be. What was refused or failed as tools may fail is an outcome too, and so
        is that a person must decide first; who does not belong here, and what is our own fault, is raised."""
        return await self._pass(await self._entry(call, caller), emit)

    async def carry_on(self, allowed: Allowed, agent: Agent | None, *, fence: int | None = None) -> Outcome:
        """Does what waited for a person and was allowed, or asks again if what they saw is not so any more."""
        entry = entry_of(allowed, agent, process=self._process, fence=fence)
        entry.tool = await self._tool(entry.call, entry.caller)
        return await self._pass(entry, None)

    async def fail(self, call: ToolCall, caller: Caller, error: ToolcribError) -> Outcome:
        """Ends a call that cannot even be tried, so that it has a result like any other."""
        return await self._recorder.end(await self._entry(call, caller), error)

    async def give_up(self, call: ToolCall, caller: Caller) -> Outcome:
        """Ends a call of which nobody knows whether it took effect, and which must not be done twice."""
        return await self._recorder.give_up(await self._entry(call, caller))

    def explain(self, call: ToolCall, caller: Caller, *, tool: Tool | None = None) -> Explanation:
        """Which rule would decide this call, and why. Runs nothing and writes nothing down.

        ``tool`` is the workspace's own, if it is one of those.
        """
        heard = self._hear(call, tool)
        return explain(caller, heard.tool, _with_hosts(heard, caller).effects)

    def effects_of(self, call: ToolCall) -> Effects | None:
        """What a call would touch; nothing is known of one that cannot be understood."""
        try:
            return self._hear(call).effects
        except (ToolFailed, Refused):
            return None

    async def _pass(self, entry: Entry, emit: Callable[[str], None] | None) -> Outcome:
        if not self._journal.keeps(entry.caller, entry.tool):
            return await self._execute(entry, emit)
        async with self._journal.line(entry.call.name, entry.call.arguments, entry.caller) as line:
            line.outcome = await self._execute(entry, emit)
        return line.outcome

    async def _execute(self, entry: Entry, emit: Callable[[str], None] | None) -> Outcome:
        try:
            heard = self._hear(entry.call, entry.tool)
            heard = _with_hosts(heard, entry.caller)
            entry.repeatable = heard.is_repeatable
            decision = entry.decision = decide(entry.caller, heard.tool, heard.effects)
            if decision.error is not None:
                raise decision.error
            if entry.allowed is not None:
                return await self._carry_on(heard, decision, entry, entry.allowed)
            if decision.verdict is Verdict.ASK:
                return await self._ask(heard, decision, entry)
            return await self._run(heard, decision, entry, emit)
        except (ToolFailed, Refused) as error:
            return await self._recorder.end(entry, error)
        except Forbidden as error:
            await self._recorder.write_down(entry.audit_record("refused", error=error, rule="membership"))
            raise
        except Superseded as error:
            await self._recorder.write_down(entry.audit_record("failed", error=error))
            raise
        except asyncio.CancelledError:
            # What a person allowed is not lost with the server that was about to do it: the next one does. Neither is
            # a run's call, which is ended by its run: that knows whether a person stopped it, or only its process.
            if not entry.committing and entry.allowed is None and entry.caller.fence is None:
                await asyncio.shield(self._recorder.cancelled(entry))
            raise
        except Exception as error:
            # The book says that it was tried, if it can still be written. A commit has written its own record.
            lost_database = isinstance(error, OperationalError) and entry.allowed is not None
            if not entry.committing and not lost_database:
                with suppress(Exception):
                    await self._recorder.end(entry, ToolcribError("Our own fault. The server's log says more."))
            raise

    async def _entry(self, call: ToolCall, caller: Caller) -> Entry:
        entry = Entry(call, caller, self._process)
        entry.tool = await self._tool(call, caller)
        return entry

    async def _tool(self, call: ToolCall, caller: Caller) -> Tool | None:
        """The tool that this name means in the caller's workspace."""
        return (await self._registry.within(caller.workspace_id, call.name)).get(call.name)

    def _hear(self, call: ToolCall, tool: Tool | None = None) -> _Heard:
        tool = tool or self._registry.require(call.name)
        arguments = tool.parse(call.arguments)
        return _Heard(tool, arguments, tool.effects(arguments))

    async def _ask(
        self, heard: _Heard, decision: Decision, entry: Entry, *, replaces: Allowed | None = None
    ) -> Outcome:
        """A person must decide. They are shown what would change, where that can be worked out beforehand."""
        # Why a call would fail, or that it would change nothing, may tell what a file holds: one who is supervised
        # hears it with permission only.
        has_permission = replaces is not None and not replaces.is_stale
        plan = None
        if heard.can_be_planned(entry.caller):
            try:
                plan = await self._plan(heard, decision, entry)
            except ToolFailed:
                if not decision.is_supervised or has_permission:
                    raise
            if plan is not None and plan.is_empty and (not decision.is_supervised or has_permission):
                # Answered with what was found, not run again: by then it might change something.
                await self._recorder.begin(entry)
                return await self._recorder.answer(entry, plan.result)
        effect = None if plan is None or plan.is_empty else plan
        return await self._approvals.ask(entry, heard.effects, effect, replaces=replaces.approval if replaces else None)

    async def _plan(self, heard: _Heard, decision: Decision, entry: Entry) -> Plan:
        """What the call would do."""
        context = self._context(heard, decision, entry, None)
        result = await self._call(heard, context)
        return _plan_of(context, result)

    async def _carry_on(self, heard: _Heard, decision: Decision, entry: Entry, allowed: Allowed) -> Outcome:
        tenant = Tenant.of(entry.caller)
        if allowed.is_stale:
            return await self._ask(heard, decision, entry, replaces=allowed)
        if not is_as_asked(allowed):
            raise NotPermitted("The call's arguments are not those that were approved. Nothing was done.")
        if allowed.begun_before and not heard.is_repeatable:
            return await self._recorder.give_up(entry)
        proposal = await self._approvals.proposal(tenant, allowed.approval)
        if proposal is None and heard.can_be_planned(entry.caller):
            # The yes was given without knowing what would change. Now it can be shown, if anything would.
            return await self._ask(heard, decision, entry, replaces=allowed)
        if proposal is None:
            return await self._run(heard, decision, entry, None)
        # The agent's rules may have changed since it was asked.
        guard = Guard(entry.caller, heard.tool.name, granted=granted_in(proposal, allowed.approval))
        for place in proposal.places:
            guard.check_write(place)
        await self._recorder.begin(entry)
        for _ in range(_TRIES):
            try:
                return await self._recorder.commit(entry, allowed.result, proposal, decision)
            except BaseChanged as moved_on:
                entry.committing = False
                if moved_on.drifted:
                    await self._shelves.sync.reconcile(tenant, proposal.places)
                if await self._approvals.is_overtaken(tenant, allowed.approval):
                    break
        return await self._ask(heard, decision, entry, replaces=allowed)

    async def _run(
        self, heard: _Heard, decision: Decision, entry: Entry, emit: Callable[[str], None] | None
    ) -> Outcome:
        await self._recorder.begin(entry)
        deadline = self._deadline(heard, entry.caller)
        for _ in range(_PLANS):
            context = self._context(heard, decision, entry, emit, deadline)
            result = await self._call(heard, context)
            if context.asked:
                return await self._questions.ask(entry, tuple(context.asked))
            if context.draft.is_empty:
                return await self._recorder.answer(entry, result)
            if context.remarks.protected and entry.caller.is_agent:
                replaces = entry.allowed.approval if entry.allowed else None
                return await self._approvals.ask(entry, heard.effects, _plan_of(context, result), replaces=replaces)
            if not heard.tool.replans:
                return await self._commit_as_it_is(entry, result, context, decision)
            try:
                return await self._recorder.commit(entry, result, context.draft.change_set(entry.caller), decision)
            except BaseChanged as moved_on:
                # Someone was quicker. The tool looks again and plans on what it finds, or says what is wrong.
                entry.committing = False
                if moved_on.drifted:
                    places = context.draft.change_set(entry.caller).places
                    await self._shelves.sync.reconcile(Tenant.of(entry.caller), places)
        raise _others_keep_changing()

    async def _commit_as_it_is(self, entry: Entry, result: Any, context: ToolContext, decision: Decision) -> Outcome:
        """What cannot be planned anew is in conflict with whoever was quicker, and says who that was."""
        change_set = context.draft.change_set(entry.caller)
        for _ in range(_TRIES):
            try:
                return await self._recorder.commit(entry, result, change_set, decision)
            except BaseChanged as moved_on:
                entry.committing = False
                if moved_on.drifted:
                    await self._shelves.sync.reconcile(Tenant.of(entry.caller), change_set.places)
                if conflict := await overtaken(context.tree, change_set):
                    raise conflict from None
        raise _others_keep_changing()

    def _context(
        self,
        heard: _Heard,
        decision: Decision,
        entry: Entry,
        emit: Callable[[str], None] | None,
        deadline: float | None = None,
    ) -> ToolContext:
        caller = entry.caller
        tree = Tree(self._shelves, caller, Guard(caller, heard.tool.name), needs=decision.needs_role)
        context = ToolContext(
            caller,
            tree,
            Draft(tree),
            deadline or self._deadline(heard, caller),
            emit or self._recorder.shown_live(caller),
        )
        entry.remarks = context.remarks
        return context

    async def _call(self, heard: _Heard, context: ToolContext) -> Any:
        if not heard.tool.looks or not heard.effects.places:
            await context.tree.admit()
        seconds = context.seconds_left
        try:
            async with asyncio.timeout(seconds):
                return await heard.tool.function(heard.arguments, context)
        except TimeoutError:
            raise TimedOut(f"`{heard.tool.name}` was ended after {seconds:.0f} s. Nothing was changed.") from None

    def _deadline(self, heard: _Heard, caller: Caller) -> float:
        """When the call will be ended: an agent's own limit for the tool, or the server's."""
        if heard.tool.seconds is not None:
            return time.monotonic() + heard.tool.seconds(heard.arguments, caller)
        permission = permission_for(caller.agent.rules, heard.tool.name) if caller.agent else None
        allowed = permission.timeout if permission and permission.timeout else self._limits.call_seconds
        return time.monotonic() + allowed


def _with_hosts(heard: _Heard, caller: Caller) -> _Heard:
    """A program may contact what its agent was granted: that is part of what the call would do."""
    if heard.effects.runs is None or caller.agent is None:
        return heard
    hosts = hosts_granted(caller.agent.rules, heard.tool.name)
    return replace(heard, effects=replace(heard.effects, contacts=(*heard.effects.contacts, *hosts)))


def _plan_of(context: ToolContext, result: Any) -> Plan:
    remarks = context.remarks
    return Plan(context.draft.change_set(context.caller), result, tuple(remarks.protected), remarks.isolation)


def _others_keep_changing() -> Conflict:
    return Conflict("Others keep changing the same files. Try again in a moment.")
