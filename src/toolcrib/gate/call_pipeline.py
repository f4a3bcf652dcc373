"""The gate: executes one tool call, from whatever client. Independent of HTTP and of model providers."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from toolcrib.core.agents import ApprovalPoint
from toolcrib.core.callers import Agent, Caller
from toolcrib.core.errors import (
    BaseChanged,
    CallDenied,
    Conflict,
    Forbidden,
    NotFound,
    PermissionDenied,
    Superseded,
    TimedOut,
    ToolcribError,
    ToolFailed,
)
from toolcrib.core.paths import WorkspacePath
from toolcrib.core.tool_calls import Effects, Outcome, ToolCall
from toolcrib.gate.approvals import Approvals, arguments_unchanged, recording_of
from toolcrib.gate.call_recorder import CallRecorder
from toolcrib.gate.call_stages import CallRecording, ToolRun, paths_shown_to_person
from toolcrib.gate.execution_log import ExecutionLog
from toolcrib.gate.questions import Questions
from toolcrib.gate.workflow_guard import WorkflowGuard
from toolcrib.policy.authorization import Authorization, AuthorizationAction, Explanation, authorize, explain
from toolcrib.policy.path_guard import PathGuard
from toolcrib.policy.permissions import granted_hosts, permission_for
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.runtime.fair_queue import FairQueue, working_for
from toolcrib.storage.approved_calls import ApprovedCall
from toolcrib.storage.database import OperationalError, Tenant
from toolcrib.tools.context import ToolContext, ToolReport
from toolcrib.tools.tool import Tool
from toolcrib.tools.tool_registry import ToolRegistry
from toolcrib.workspace.changes.draft import Draft
from toolcrib.workspace.changes.untracked_hashes import with_hashes
from toolcrib.workspace.effects.effect_import import overtaken
from toolcrib.workspace.fs.trash import list_restored, list_trashed
from toolcrib.workspace.tree import WorkspaceServices, WorkspaceTree

# How often a change is planned again because a concurrent change was committed first.
_PLANS = 100
# How often an approved change is retried because the disk changed without changing the result.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class GateLimits:
    """Limits on calls."""

    call_seconds: float = 60.0
    # For quick calls. More would only wait for each other and delay everybody else.
    at_once: int = 16
    beside_others: int = 2
    waiting: int = 1_024
    waiting_of_one: int = 128


@dataclass(frozen=True, slots=True)
class ResolvedCall:
    """A parsed call: the tool, its validated arguments and its effects."""

    tool: Tool
    arguments: Any
    effects: Effects

    @property
    def is_repeatable(self) -> bool:
        """Whether a retry is safe if it is unknown whether the call took effect. Not if a command may contact hosts."""
        return self.tool.idempotent and not (self.effects.command and self.effects.hosts)

    def can_be_planned(self, caller: Caller) -> bool:
        """Return whether the whole effect is a change set that can be computed without applying it.

        For a command this means running it, so it applies only if the agent's owner wants to approve the effect.
        """
        if self.effects.hosts:
            return False
        if self.effects.command is None:
            return bool(self.effects.writes) or self.tool.drafts
        permission = permission_for(caller.agent.rules, self.tool.name) if caller.agent else None
        return permission is not None and permission.approve is ApprovalPoint.EFFECT and not self.tool.replannable


class Gate:
    """Executes tool calls: resolve, authorize, pause, run, truncate, record. There is no other way to a tool."""

    def __init__(
        self,
        registry: ToolRegistry,
        workspace_services: WorkspaceServices,
        recorder: CallRecorder,
        journal: ExecutionLog,
        approvals: Approvals,
        questions: Questions,
        workflows: WorkflowGuard,
        *,
        process: str,
        limits: GateLimits | None = None,
    ) -> None:
        self._registry = registry
        self._workspace_services = workspace_services
        self._recorder = recorder
        self._journal = journal
        self._approvals = approvals
        self._questions = questions
        self._workflows = workflows
        self._process = process
        self._limits = limits or GateLimits()
        self._turns = FairQueue(
            self._limits.at_once,
            what="calls",
            beside_others=self._limits.beside_others,
            waiting=self._limits.waiting,
            waiting_of_one=self._limits.waiting_of_one,
        )

    async def execute(self, call: ToolCall, caller: Caller, *, emit: Callable[[str], None] | None = None) -> Outcome:
        """Execute a call if the policy allows it.

        Returns:
            The outcome. A denied call, a declared failure of the tool, and a call that waits for a person are outcomes
                too.

        Raises:
            Forbidden: The caller is not a member of the workspace.
            Superseded: Another process has taken over the run.
        """
        return await self._pass(await self._entry(call, caller), emit)

    async def resume(self, allowed: ApprovedCall, agent: Agent | None, *, run_epoch: int | None = None) -> Outcome:
        """Execute a call that a person approved, or ask again if what they saw is out of date."""
        entry = recording_of(allowed, agent, process=self._process, run_epoch=run_epoch)
        entry.tool = await self._tool(entry.call, entry.caller)
        return await self._pass(entry, None)

    async def fail(self, call: ToolCall, caller: Caller, error: ToolcribError) -> Outcome:
        """End a call that cannot even be tried, so that it has a result like any other."""
        return await self._recorder.fail(await self._entry(call, caller), error)

    async def mark_unknown(self, call: ToolCall, caller: Caller) -> Outcome:
        """End a call that may or may not have taken effect and must not be repeated."""
        return await self._recorder.mark_unknown(await self._entry(call, caller))

    def explain(self, call: ToolCall, caller: Caller, *, tool: Tool | None = None) -> Explanation:
        """Return which rule would decide this call, and why. Runs and writes nothing.

        ``tool`` is the workspace's own tool, if the call means one.
        """
        resolved = self._resolve(call, tool)
        return explain(caller, resolved.tool, _with_hosts(resolved, caller).effects)

    def effects_of(self, call: ToolCall) -> Effects | None:
        """Return what a call would touch, or None if it cannot be parsed."""
        try:
            return self._resolve(call).effects
        except (ToolFailed, CallDenied):
            return None

    async def _pass(self, entry: CallRecording, emit: Callable[[str], None] | None) -> Outcome:
        if not self._journal.is_enabled(entry.caller, entry.tool):
            return await self._execute(entry, emit)
        async with self._journal.line(entry.call.name, entry.call.arguments, entry.caller) as line:
            line.outcome = await self._execute(entry, emit)
        return line.outcome

    async def _execute(self, entry: CallRecording, emit: Callable[[str], None] | None) -> Outcome:
        with working_for(entry.caller.user_id):
            return await self._recorded(entry, emit)

    async def _recorded(self, entry: CallRecording, emit: Callable[[str], None] | None) -> Outcome:
        try:
            return await self._in_turn(entry, emit)
        except (ToolFailed, CallDenied) as error:
            return await self._recorder.fail(entry, error)
        except Forbidden as error:
            await self._recorder.audit_only(entry.audit_record("denied", error=error, rule="membership"))
            raise
        except Superseded as error:
            await self._recorder.audit_only(entry.audit_record("failed", error=error))
            raise
        except asyncio.CancelledError:
            # An approved call survives the server that was about to execute it: the next server does. A run ends its
            # own calls: only the run knows whether a person stopped it or only its process stopped.
            if not entry.committing and entry.allowed is None and entry.caller.run_epoch is None:
                await asyncio.shield(self._recorder.cancelled(entry))
            raise
        except Exception as error:
            # Record the attempt if the audit log can still be written. A commit has written its own record.
            lost_database = isinstance(error, OperationalError) and entry.allowed is not None
            if not entry.committing and not lost_database:
                with suppress(Exception):
                    await self._recorder.fail(
                        entry, ToolcribError("Internal server error. The server log has the details.")
                    )
            raise

    async def _in_turn(self, entry: CallRecording, emit: Callable[[str], None] | None) -> Outcome:
        """Run a quick call in its turn: they queue fairly by account. Other tools have their own queues, or none."""
        if entry.tool is None or not entry.tool.is_quick:
            return await self._decided(entry, emit)
        async with self._turns.turn():
            return await self._decided(entry, emit)

    async def _decided(self, entry: CallRecording, emit: Callable[[str], None] | None) -> Outcome:
        if entry.tool is None and entry.caller.run_id is not None:
            raise NotFound(f"Unknown tool: {entry.call.name}")
        resolved = self._resolve(entry.call, entry.tool)
        resolved = _with_hosts(resolved, entry.caller)
        entry.idempotent = resolved.is_repeatable
        decision = entry.decision = authorize(entry.caller, resolved.tool, resolved.effects)
        if decision.error is not None:
            raise decision.error
        if entry.allowed is not None:
            return await self._resume(resolved, decision, entry, entry.allowed)
        if decision.action is AuthorizationAction.ASK:
            return await self._pause(resolved, decision, entry)
        return await self._run(resolved, decision, entry, emit)

    async def _entry(self, call: ToolCall, caller: Caller) -> CallRecording:
        entry = CallRecording(call, caller, self._process)
        entry.tool = await self._tool(call, caller)
        return entry

    async def _tool(self, call: ToolCall, caller: Caller) -> Tool | None:
        """Return the tool with this name in the caller's workspace."""
        return (await self._registry.for_workspace(caller.workspace_id, call.name)).get(call.name)

    def _resolve(self, call: ToolCall, tool: Tool | None = None) -> ResolvedCall:
        tool = tool or self._registry.require(call.name)
        arguments = tool.parse(call.arguments)
        return ResolvedCall(tool, arguments, tool.effects(arguments))

    async def _pause(
        self,
        resolved: ResolvedCall,
        decision: Authorization,
        entry: CallRecording,
        *,
        replaces: ApprovedCall | None = None,
    ) -> Outcome:
        """Ask a person to decide, and show them the changes where these can be computed beforehand."""
        # That a call would fail, or would change nothing, may reveal the contents of a file: a supervised agent learns
        # it only with permission.
        has_permission = replaces is not None and not replaces.is_stale
        plan = None
        if resolved.can_be_planned(entry.caller):
            try:
                plan = await self._preview(resolved, decision, entry)
            except ToolFailed:
                if not decision.is_supervised or has_permission:
                    raise
            if plan is not None and plan.is_empty and (not decision.is_supervised or has_permission):
                # Return the previewed result instead of running again: a second run might change something.
                await self._recorder.start(entry)
                return await self._recorder.answer(entry, plan.result)
        effect = None if plan is None or plan.is_empty else plan
        return await self._approvals.ask(
            entry, resolved.effects, effect, replaces=replaces.approval if replaces else None
        )

    async def _preview(self, resolved: ResolvedCall, decision: Authorization, entry: CallRecording) -> ToolRun:
        """Compute what the call would do."""
        context = self._context(resolved, decision, entry, None)
        result = await self._call(resolved, context)
        return await _plan_of(context, result)

    async def _resume(
        self, resolved: ResolvedCall, decision: Authorization, entry: CallRecording, allowed: ApprovedCall
    ) -> Outcome:
        tenant = Tenant.of(entry.caller)
        if allowed.is_stale:
            return await self._pause(resolved, decision, entry, replaces=allowed)
        if not arguments_unchanged(allowed):
            raise PermissionDenied("The arguments of the call differ from the approved ones. Nothing was changed.")
        if allowed.begun_before and not resolved.is_repeatable:
            return await self._recorder.mark_unknown(entry)
        proposal = await self._approvals.proposal(tenant, allowed.approval)
        if proposal is None and resolved.can_be_planned(entry.caller):
            # The approval was given without a preview. The changes can be shown now, if there are any.
            return await self._pause(resolved, decision, entry, replaces=allowed)
        if proposal is None:
            return await self._run(resolved, decision, entry, None)
        # The agent's rules may have changed since the approval was requested.
        granted, unseen = paths_shown_to_person(proposal, allowed.approval), list[WorkspacePath]()
        guard = PathGuard(entry.caller, resolved.tool.name, granted=granted, ask=unseen.append)
        on_the_way = proposal.folders_on_the_way
        for path in proposal.paths:
            if path in on_the_way:
                guard.check_name(path)
            else:
                guard.check_write(path)
        if unseen:
            return await self._pause(resolved, decision, entry, replaces=allowed)
        await self._recorder.start(entry)
        for _ in range(_TRIES):
            try:
                return await self._recorder.commit(entry, allowed.result, proposal, decision)
            except BaseChanged as moved_on:
                entry.committing = False
                if moved_on.drifted:
                    await self._workspace_services.sync.reconcile(tenant, proposal.paths)
                if moved_on.unlike_shown or await self._approvals.is_overtaken(tenant, allowed.approval):
                    break
        return await self._pause(resolved, decision, entry, replaces=allowed)

    async def _run(
        self, resolved: ResolvedCall, decision: Authorization, entry: CallRecording, emit: Callable[[str], None] | None
    ) -> Outcome:
        await self._recorder.start(entry)
        deadline = self._deadline(resolved, entry.caller)
        for _ in range(_PLANS):
            context = self._context(resolved, decision, entry, emit, deadline)
            result = await self._call(resolved, context)
            if context.asked:
                return await self._questions.ask(entry, tuple(context.asked))
            if context.draft.is_empty:
                return await self._recorder.answer(entry, result)
            unseen = entry.allowed is not None and resolved.effects.command is None
            if unseen or (context.remarks.protected and entry.caller.is_agent):
                # The approval, if there was one, was given without knowing these changes.
                replaces = entry.allowed.approval if entry.allowed else None
                plan = await _plan_of(context, result)
                return await self._approvals.ask(entry, resolved.effects, plan, replaces=replaces)
            if not resolved.tool.replannable:
                return await self._commit(entry, result, context, decision)
            try:
                return await self._recorder.commit(entry, result, context.draft.change_set(entry.caller), decision)
            except BaseChanged as moved_on:
                # A concurrent change was committed first. The tool plans again on the new state, or reports what is
                # wrong.
                entry.committing = False
                if moved_on.drifted:
                    paths = context.draft.change_set(entry.caller).paths
                    await self._workspace_services.sync.reconcile(Tenant.of(entry.caller), paths)
        raise _others_keep_changing()

    async def _commit(
        self, entry: CallRecording, result: Any, context: ToolContext, decision: Authorization
    ) -> Outcome:
        """Commit a change that cannot be planned again. A concurrent change is a Conflict that names its author."""
        change_set = context.draft.change_set(entry.caller)
        for _ in range(_TRIES):
            try:
                return await self._recorder.commit(entry, result, change_set, decision)
            except BaseChanged as moved_on:
                entry.committing = False
                if moved_on.drifted:
                    await self._workspace_services.sync.reconcile(Tenant.of(entry.caller), change_set.paths)
                if conflict := await overtaken(context.tree, change_set):
                    raise conflict from None
        raise _others_keep_changing()

    def _context(
        self,
        resolved: ResolvedCall,
        decision: Authorization,
        entry: CallRecording,
        emit: Callable[[str], None] | None,
        deadline: float | None = None,
    ) -> ToolContext:
        caller = entry.caller
        remarks = ToolReport()
        guard = PathGuard(caller, resolved.tool.name, ask=remarks.protected.append)
        tree = WorkspaceTree(self._workspace_services, caller, guard, needs=decision.required_role)
        context = ToolContext(
            caller,
            tree,
            Draft(tree),
            deadline or self._deadline(resolved, caller),
            emit or self._recorder.publish_output(caller),
            remarks=remarks,
        )
        entry.remarks = remarks
        return context

    async def _call(self, resolved: ResolvedCall, context: ToolContext) -> Any:
        if not resolved.tool.checks_membership or not resolved.effects.paths:
            await context.tree.check_membership()
        seconds = context.seconds_left
        try:
            async with asyncio.timeout(seconds):
                result = await resolved.tool.function(resolved.arguments, context)
                await self._workflows.check(context)
                return result
        except TimeoutError:
            raise TimedOut(f"`{resolved.tool.name}` timed out after {seconds:.0f} s. Nothing was changed.") from None

    def _deadline(self, resolved: ResolvedCall, caller: Caller) -> float:
        """Return when the call times out: the agent's own limit for the tool, or the server's."""
        if resolved.tool.timeout is not None:
            return time.monotonic() + resolved.tool.timeout(resolved.arguments, caller)
        permission = permission_for(caller.agent.rules, resolved.tool.name) if caller.agent else None
        allowed = permission.timeout if permission and permission.timeout else self._limits.call_seconds
        return time.monotonic() + allowed


def _with_hosts(resolved: ResolvedCall, caller: Caller) -> ResolvedCall:
    """Add the hosts that the agent is granted: a command may contact them, so they are part of the call's effects."""
    if resolved.effects.command is None or caller.agent is None:
        return resolved
    hosts = granted_hosts(caller.agent.rules, resolved.tool.name)
    return replace(resolved, effects=replace(resolved.effects, hosts=(*resolved.effects.hosts, *hosts)))


async def _plan_of(context: ToolContext, result: Any) -> ToolRun:
    change_set, unkept = context.draft.change_set(context.caller), None
    if list_trashed(change_set) or list_restored(change_set):
        change_set, unkept = await in_thread(with_hashes, await context.tree.disks(), change_set)
    remarks = context.remarks
    return ToolRun(change_set, result, tuple(dict.fromkeys(remarks.protected)), remarks.isolation, unkept)


def _others_keep_changing() -> Conflict:
    return Conflict("Other calls keep changing the same files. Try again in a moment.")
