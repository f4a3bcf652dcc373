"""The gate: executes one tool call, from whatever client. Independent of HTTP and of model providers.

A call passes these stages, each a frozen value of ``call_stages``: resolve, authorize, pause or run, commit, record.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from toolcrib.core.callers import Agent, Caller
from toolcrib.core.errors import (
    BaseChanged,
    CallDenied,
    Conflict,
    HomeMoved,
    MayHaveBegun,
    NotFound,
    Overloaded,
    PermissionDenied,
    Quarantined,
    TimedOut,
    ToolcribError,
    ToolFailed,
)
from toolcrib.core.paused_calls import ApprovedCall
from toolcrib.core.tool_calls import Effects, Outcome, OutcomeState, ToolCall, parse_canonical_json
from toolcrib.gate.call_explanation import explain_call
from toolcrib.gate.call_observer import OnCallEnded, observed
from toolcrib.gate.call_recorder import CallRecorder, CommitInterrupted, UnconfirmedOutcome
from toolcrib.gate.call_stages import AuthorizedCall, CallRequest, ToolRun
from toolcrib.gate.effect_authorization import EffectAuthorization, asking_again, was_shown
from toolcrib.gate.execution_log import ExecutionLog
from toolcrib.gate.pause_checks import arguments_unchanged
from toolcrib.gate.paused_calls import PausedCalls
from toolcrib.gate.workflow_guard import WorkflowGuard
from toolcrib.policy.authorization import AuthorizationAction, Explanation, PathGuard, authorize
from toolcrib.policy.permissions import granted_hosts, permission_for
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.runtime.fair_queue import FairQueue, working_for
from toolcrib.storage.database import Tenant
from toolcrib.tools.context import ToolContext, ToolReport
from toolcrib.tools.tool import Tool
from toolcrib.tools.tool_registry import ToolRegistry
from toolcrib.workspace.changes.change_preview import with_hashes
from toolcrib.workspace.changes.draft import Draft
from toolcrib.workspace.effects.effect_import import overtaken, without_existing_folders
from toolcrib.workspace.tree import WorkspaceTree
from toolcrib.workspace.workspace_services import WorkspaceServices

# How often a call is planned again because a concurrent change was committed first.
_MAX_REPLANS = 100
# How often a finished change set is committed again because the disk changed without changing the result.
_MAX_COMMITS = 5


@dataclass(frozen=True, slots=True)
class GateLimits:
    """Limits on calls."""

    call_seconds: float = 60.0
    # For quick calls. More would only wait for each other and delay everybody else.
    at_once: int = 16
    beside_others: int = 2
    waiting: int = 1_024
    waiting_of_one: int = 128
    # For the other calls, which mostly wait for programs, models and people of their own queues.
    long_at_once: int = 1_024
    long_waiting_of_one: int = 256


class _RunFailed(Exception):
    """A tool's function failed or was cancelled. Carries what the tool had reported until then."""

    def __init__(self, error: BaseException, report: ToolReport) -> None:
        super().__init__(str(error))
        self.error = error
        self.report = report


class Gate:
    """Executes tool calls: resolve, authorize, pause or run, commit, record. There is no other way to a tool."""

    def __init__(
        self,
        registry: ToolRegistry,
        workspace_services: WorkspaceServices,
        recorder: CallRecorder,
        execution_log: ExecutionLog,
        paused_calls: PausedCalls,
        workflows: WorkflowGuard,
        *,
        limits: GateLimits | None = None,
        on_ended: OnCallEnded | None = None,
    ) -> None:
        self._registry = registry
        self._workspace_services = workspace_services
        self._recorder = recorder
        self._execution_log = execution_log
        self._pauses = paused_calls
        self._workflows = workflows
        self._effects = EffectAuthorization(paused_calls)
        self._limits = limits or GateLimits()
        self._on_ended = on_ended
        self._queue = FairQueue(
            self._limits.at_once,
            what="calls",
            beside_others=self._limits.beside_others,
            waiting=self._limits.waiting,
            waiting_of_one=self._limits.waiting_of_one,
        )
        self._long_queue = FairQueue(
            self._limits.long_at_once,
            what="long calls",
            waiting=self._limits.waiting,
            waiting_of_one=self._limits.long_waiting_of_one,
        )

    async def execute(
        self,
        call: ToolCall,
        caller: Caller,
        *,
        emit: Callable[[str], None] | None = None,
        continues: bool = False,
    ) -> Outcome:
        """Execute a call if the policy allows it.

        Args:
            continues: The call has started before and waited for a child run, which has ended.

        Returns:
            The outcome. A denied call, a declared failure of the tool, and a call that waits for a person are outcomes
                too.

        Raises:
            Forbidden: The caller is not a member of the workspace.
            Superseded: Another process has taken over the run.
            HomeMoved: Another node has the workspace's files. The call may be made there.
        """
        tool = await self._find_tool(call, caller)
        request = CallRequest(call, caller, tool, emit=emit, continues=continues)
        return await observed(request, self._logged, self._on_ended)

    async def resume(
        self,
        approved: ApprovedCall,
        agent: Agent | None,
        *,
        run_epoch: int | None = None,
        continues: bool = False,
    ) -> Outcome:
        """Execute a call with the arguments that a person approved, or ask again if what they saw is out of date."""
        pause = approved.pause
        caller = Caller(
            workspace_id=pause.workspace_id,
            user_id=pause.user_id,
            agent=agent,
            session_id=pause.session_id,
            run_id=pause.run_id,
            call_id=pause.call_id,
            run_epoch=run_epoch,
            via=pause.via,
        )
        call = ToolCall(pause.tool, parse_canonical_json(approved.arguments))
        tool = await self._find_tool(call, caller)
        request = CallRequest(call, caller, tool, approved, continues=continues)
        return await observed(request, self._logged, self._on_ended)

    async def fail(self, call: ToolCall, caller: Caller, error: ToolcribError) -> Outcome:
        """End a call that cannot even be tried, so that it has a result like any other."""
        return await self._recorder.fail(CallRequest(call, caller, await self._find_tool(call, caller)), error)

    async def mark_unknown(self, call: ToolCall, caller: Caller) -> Outcome:
        """End a call that may or may not have taken effect and must not be repeated."""
        return await self._recorder.mark_unknown(CallRequest(call, caller, await self._find_tool(call, caller)))

    async def explain(self, call: ToolCall, caller: Caller, *, is_new: bool = False) -> Explanation:
        """Return which rule would decide this call, and why. Runs and writes nothing.

        Args:
            is_new: The caller's agent is not stored yet, so the membership that counts is its person's.
        """
        authorized = self._authorize(CallRequest(call, caller, await self._find_tool(call, caller)))
        member = replace(authorized, caller=replace(caller, agent=None)) if is_new else authorized
        return await explain_call(authorized, self._tree(member, ToolReport()))

    def effects_of(self, call: ToolCall) -> Effects | None:
        """Return what a call would touch, or None if it cannot be parsed."""
        try:
            tool = self._registry.require(call.name)
            return tool.effects(tool.parse(call.arguments))
        except (ToolFailed, CallDenied):
            return None

    @property
    def waiting_calls(self) -> dict[str, int]:
        """How many calls wait for their turn, by queue."""
        return {"calls": self._queue.waiting, "long_calls": self._long_queue.waiting}

    async def _logged(self, request: CallRequest) -> Outcome:
        """Execute a call. The execution log has agents' calls, and people's calls of tools that expose that log."""
        if request.caller.agent is None and (request.tool is None or not request.tool.in_execution_log):
            return await self._stages(request)
        return await self._execution_log.around(request, self._stages)

    async def _stages(self, request: CallRequest) -> Outcome:
        """Pass a call through its stages. One that fails is recorded at the stage that it reached."""
        reached = request
        with working_for(request.caller.user_id):
            try:
                # Without a turn: others need not wait for the recovery of this workspace.
                await self._workspace_services.sync.recover_first(request.caller.workspace_id)
                async with self._turn(request):
                    authorized = reached = self._authorize(request)
                    if authorized.authorization.error is not None:
                        raise authorized.authorization.error
                    if request.approved is not None:
                        ended = await self._resume(authorized, request.approved)
                    elif authorized.authorization.action is AuthorizationAction.ASK:
                        ended = await self._pause(authorized)
                    else:
                        ended = await self._run(authorized)
                if isinstance(ended, Outcome):
                    return ended
                # Without a turn: others may run while the audit records of many calls are written together.
                await ended.written
                return ended.outcome
            except CommitInterrupted as interrupted:
                raise interrupted.error  # noqa: B904 - the caller gets the error itself; its record belongs to the commit
            except _RunFailed as failed:
                return await self._recorder.fail_or_raise(reached, _as_begun(reached, failed.error), failed.report)
            except BaseException as error:  # noqa: BLE001 - raised again unless it is an outcome
                if isinstance(error, HomeMoved):
                    # The tool has run, or might have, by any step after the authorization.
                    error.has_begun = isinstance(reached, AuthorizedCall)
                return await self._recorder.fail_or_raise(reached, _as_begun(reached, error))

    def _turn(self, request: CallRequest) -> AbstractAsyncContextManager[None]:
        """Return the wait for the call's turn, by account. Long calls, such as commands, also have their own queues."""
        is_quick = request.tool is not None and request.tool.is_quick
        return self._queue.turn() if is_quick else self._long_queue.turn()

    async def _find_tool(self, call: ToolCall, caller: Caller) -> Tool | None:
        """Return the tool with this name in the caller's workspace."""
        return await self._registry.find(caller.workspace_id, call.name)

    def _authorize(self, request: CallRequest) -> AuthorizedCall:
        tool, arguments, effects = self._resolve(request)
        return AuthorizedCall(
            request.call,
            request.caller,
            approved=request.approved,
            emit=request.emit,
            continues=request.continues,
            received_at=request.received_at,
            received_ns=request.received_ns,
            tool=tool,
            arguments=arguments,
            effects=effects,
            authorization=authorize(request.caller, tool, effects),
        )

    def _resolve(self, request: CallRequest) -> tuple[Tool, Any, Effects]:
        """Parse the arguments and ask the tool for its effects. The hosts granted to its agent are part of them."""
        call, caller, tool = request.call, request.caller, request.tool
        if tool is None:
            if caller.run_id is not None:
                raise NotFound(f"Unknown tool: {call.name}")
            tool = self._registry.require(call.name)
        arguments = tool.parse(call.arguments)
        effects = tool.effects(arguments)
        if effects.command is not None and caller.agent is not None:
            effects = replace(effects, hosts=(*effects.hosts, *granted_hosts(caller.agent.rules, tool.name)))
        return tool, arguments, effects

    async def _pause(self, authorized: AuthorizedCall) -> "_Ended":
        """Ask a person to decide, and show them the changes where these can be computed beforehand."""
        if not authorized.can_preview:
            return await self._pause_for_approval(authorized, None)
        try:
            run = await self._call_tool(authorized, self._deadline(authorized))
        except _RunFailed as failed:
            if isinstance(failed.error, ToolFailed) and not authorized.may_reveal:
                return await self._pause_for_approval(authorized, None)
            raise
        if run.change_set is None and authorized.may_reveal:
            # Return the previewed result instead of running again: a second run might change something.
            await self._start(authorized)
            return await self._recorder.answer(authorized, run)
        run, allowed = await self._effects.if_not_worth_asking(authorized, run, self._tree(authorized, ToolReport()))
        if allowed is not None:
            authorized = replace(authorized, authorization=allowed)
            await self._start(authorized)
            return await self._commit_once(authorized, run)
        return await self._pause_for_approval(authorized, run if run.change_set is not None else None)

    async def _resume(self, authorized: AuthorizedCall, approved: ApprovedCall) -> "_Ended":
        """Continue an approved call: commit what the person saw, or run it, or ask again if they saw something else."""
        tenant = Tenant.of(authorized.caller)
        if approved.is_stale:
            return await self._pause(authorized)
        if not arguments_unchanged(approved.approval, approved.arguments):
            raise PermissionDenied("The arguments of the call differ from the approved ones. Nothing was changed.")
        if approved.started_before and not authorized.is_repeatable:
            return await self._recorder.mark_unknown(authorized)
        proposal = await self._pauses.proposal(tenant, approved.approval)
        if proposal is None and authorized.can_preview and not authorized.authorization.undoable_only:
            # The approval was given without a preview. The changes can be shown now, if there are any.
            return await self._pause(authorized)
        if proposal is None:
            again = asking_again(authorized, approved)
            return await self._run(authorized) if again is None else await self._pause(again)
        if not await was_shown(authorized, approved, proposal):
            return await self._pause(authorized)
        await self._start(authorized)

        async def approved_run() -> ToolRun:
            tree = self._tree(authorized, ToolReport())
            return ToolRun(approved.planned_result, await without_existing_folders(tree, proposal), ToolReport())

        reasons: list[str] = []

        async def pause_if_overtaken(changed: BaseChanged | None) -> _Ended | None:
            if changed is not None:
                reasons.append(changed.message)
            is_final = changed is None or changed.unlike_shown
            if not is_final and not await self._pauses.is_overtaken(tenant, approved.approval):
                return None
            if changed is None and approved.approval.replaces is not None:
                # The history knows of no change, and asking again has not helped. It might go on forever.
                raise Conflict(
                    f"{reasons[-1]} So what was approved could not be applied, again. Nothing was changed. "
                    "Check the current state, then call the tool again."
                )
            return await self._pause(authorized)

        return await self._commit(authorized, approved_run, pause_if_overtaken, attempts=_MAX_COMMITS)

    async def _start(self, authorized: AuthorizedCall) -> None:
        if authorized.caller.session_id is not None and not authorized.continues:
            await self._recorder.start(authorized)

    async def _run(self, authorized: AuthorizedCall) -> "_Ended":
        await self._start(authorized)
        deadline = self._deadline(authorized)
        if authorized.tool.replannable:
            # If a concurrent change is committed first, the tool plans again on the new state, or says what is wrong.
            return await self._commit(
                authorized, lambda: self._attempt(authorized, deadline), _retry_always, attempts=_MAX_REPLANS
            )
        run = await self._attempt(authorized, deadline)
        return await self._commit_once(authorized, run) if isinstance(run, ToolRun) else run

    async def _commit_once(self, authorized: AuthorizedCall, run: ToolRun) -> "_Ended":
        """Commit the effect of a command, which is not planned again if a concurrent change is committed first."""
        change_set = run.change_set

        async def raise_if_overtaken(_: BaseChanged | None) -> None:
            """Raise a conflict that names the author of the concurrent change: a command runs only once."""
            assert change_set is not None
            if conflict := await overtaken(self._tree(authorized, ToolReport()), change_set):
                raise conflict from None

        return await self._commit(authorized, _always(run), raise_if_overtaken, attempts=_MAX_COMMITS)

    async def _attempt(self, authorized: AuthorizedCall, deadline: float) -> "ToolRun | _Ended":
        """Run the tool once. Returns the run if there is something to commit, else the call's outcome."""
        run = await self._call_tool(authorized, deadline)
        if run.questions:
            return await self._pauses.pause_for_answers(authorized, run)
        if run.report.child_session_id is not None:
            # Its row says that it waits since the transaction that created the child run.
            return Outcome(
                authorized.caller.call_id, OutcomeState.PAUSED, metadata={"session_id": run.report.child_session_id}
            )
        if run.change_set is None:
            return await self._recorder.answer(authorized, run)
        was_unseen = authorized.approved is not None and authorized.effects.command is None
        if was_unseen or (run.report.needs_approval and authorized.caller.agent is not None):
            # The approval, if there was one, was given without knowing these changes.
            return await self._pause_for_approval(authorized, run)
        tree = self._tree(authorized, ToolReport())
        if (asking := await self._effects.if_irreversible(authorized, run, tree)) is not None:
            return await self._pause_for_approval(replace(authorized, authorization=asking), run)
        return run

    async def _commit(
        self, authorized: AuthorizedCall, produce: "_Produce", on_conflict: "_OnConflict", *, attempts: int
    ) -> "_Ended":
        """Commit what ``produce`` returns; again if its base has changed. The only retry loop.

        ``on_conflict`` raises or returns an outcome to give up. It is called without an error after the last attempt.
        """
        for _ in range(attempts):
            if not isinstance(run := await produce(), ToolRun):
                return run
            try:
                return await self._recorder.commit(authorized, run)
            except BaseChanged as changed:
                if changed.drifted and run.change_set is not None:
                    tenant = Tenant.of(authorized.caller)
                    await self._workspace_services.sync.reconcile(tenant, run.change_set.paths)
                if (outcome := await on_conflict(changed)) is not None:
                    return outcome
        if (outcome := await on_conflict(None)) is not None:
            return outcome
        raise Conflict("Other calls keep changing the same files. Try again in a moment.")

    async def _pause_for_approval(self, authorized: AuthorizedCall, run: ToolRun | None) -> Outcome:
        change_set = run.change_set if run is not None else None
        if run is not None and change_set is not None and (change_set.trashed or change_set.restored):
            disks = await self._tree(authorized, ToolReport()).disks()
            change_set, untracked = await in_thread(with_hashes, disks, change_set)
            run = replace(run, change_set=change_set, untracked=untracked)
        return await self._pauses.pause_for_approval(authorized, run)

    async def _call_tool(self, authorized: AuthorizedCall, deadline: float) -> ToolRun:
        """Call the tool's function with a fresh context, so that nothing of an earlier attempt is left.

        Raises:
            _RunFailed: The function failed, timed out or was cancelled.
        """
        caller, tool, report = authorized.caller, authorized.tool, ToolReport()
        tree = self._tree(authorized, report)
        draft = Draft(tree)
        emit = authorized.emit or (_ignore if caller.session_id is None else self._recorder.publish_output(caller))
        context = ToolContext(caller, tree, draft, deadline, emit, remarks=report, resources=self._registry.resources)
        seconds, has_begun = deadline - time.monotonic(), False
        try:
            if not tool.checks_membership or not authorized.effects.paths:
                await tree.check_membership()
            has_begun = True
            async with asyncio.timeout(seconds if isfinite(seconds) else None):
                result = await tool.run(authorized.arguments, context)
                if draft.changes and caller.agent is not None and caller.session_id is not None:
                    await self._workflows.check(context, caller.session_id)
        except TimeoutError:
            context.cancelled.set()
            timed_out = TimedOut(f"`{tool.name}` timed out after {seconds:.0f} s. Nothing was changed.")
            raise _RunFailed(timed_out, report) from None
        except BaseException as error:
            # A function that runs in a thread goes on; it can learn that nobody waits for it.
            context.cancelled.set()
            if isinstance(error, HomeMoved):
                error.has_begun = has_begun
            raise _RunFailed(error, report) from error
        change_set = draft.change_set(caller) if draft.changes else None
        if change_set is not None and tree.guard.asks_about_outward_links:
            report.outward_links |= await self._effects.outward_links(change_set, tree)
        return ToolRun(result, change_set, report, tuple(context.asked))

    def _tree(self, authorized: AuthorizedCall, report: ToolReport) -> WorkspaceTree:
        """Return the tree as the caller may see it. ``report`` gets the protected paths that a person must approve."""
        guard = PathGuard(authorized.caller, authorized.tool.name, ask=report.protected.append)
        role = authorized.authorization.required_role
        return WorkspaceTree(self._workspace_services, authorized.caller, guard, needs=role)

    def _deadline(self, authorized: AuthorizedCall) -> float:
        """Return when the call times out: by the tool's limit, the agent's for the tool, or the server's."""
        tool, caller = authorized.tool, authorized.caller
        if tool.timeout is not None:
            return time.monotonic() + tool.timeout(authorized.arguments, caller)
        permission = permission_for(caller.agent.rules, tool.name) if caller.agent else None
        return time.monotonic() + ((permission and permission.timeout) or self._limits.call_seconds)


def _as_begun(reached: CallRequest, error: BaseException) -> BaseException:
    """Return the error of a call that was let in and may have had an effect outside: no client repeats it by itself."""
    is_early = not isinstance(reached, AuthorizedCall) or reached.is_repeatable
    if is_early or not isinstance(error, Overloaded | Quarantined):
        return error
    return MayHaveBegun(error.message)


def _ignore(_: str) -> None:
    """Drop the output of a call that nobody watches."""


_Ended = Outcome | UnconfirmedOutcome
_Produce = Callable[[], Awaitable[ToolRun | _Ended]]
_OnConflict = Callable[[BaseChanged | None], Awaitable[_Ended | None]]


def _always(run: ToolRun) -> _Produce:
    async def produce() -> ToolRun:
        return run

    return produce


async def _retry_always(_: BaseChanged | None) -> None:
    return None
