"""Approvals: stores a call that needs a decision, records one decision, and keeps exactly what was approved."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from toolcrib.core.agents import AgentRules
from toolcrib.core.approvals import Approval, ApprovalDecision, ApprovalState, GrantScope
from toolcrib.core.callers import Agent, Caller, WorkspaceRole
from toolcrib.core.change_sets import ChangeSet
from toolcrib.core.errors import (
    BadArguments,
    CallDenied,
    Conflict,
    NotDecided,
    NotFound,
    ToolcribError,
)
from toolcrib.core.ids import ApprovalId, CallId, SessionId, UserId, new_id
from toolcrib.core.json_text import json_text
from toolcrib.core.tool_calls import (
    Effects,
    Outcome,
    OutcomeState,
    ToolCall,
    arguments_sha256,
    canonical_json,
    parse_canonical_json,
)
from toolcrib.events.event_bus import EventPublisher
from toolcrib.events.event_payloads import (
    approval_ended_event,
    approval_payload,
    tool_confirm_event,
    tool_decided_event,
    truncated_input,
)
from toolcrib.gate.approval_checks import (
    rejection_error,
    require_pending,
    require_person,
    require_storable,
    stale_message,
)
from toolcrib.gate.call_stages import CallRecording, ToolRun, effects_to_row, pause_reason
from toolcrib.policy.authorization import PROTECTED_NAME, Authorization, AuthorizationAction
from toolcrib.policy.grants import check_rule, suggest_rule
from toolcrib.storage import approvals as storage
from toolcrib.storage.approvals import ApprovalRequest
from toolcrib.storage.approved_calls import ApprovedCall
from toolcrib.storage.audit import audit_row
from toolcrib.storage.blobs import BlobStore
from toolcrib.storage.database import Connection, Tenant
from toolcrib.storage.proposed_change_sets import changed_since_proposal, drop_proposal, load_proposal, save_proposal
from toolcrib.storage.tool_calls import save_tool_call
from toolcrib.storage.trash import extend_staged
from toolcrib.tools.tool_registry import ToolRegistry
from toolcrib.workspace.changes.change_preview import preview_changes
from toolcrib.workspace.fs.trash import list_restored

log = structlog.get_logger(__name__)

_LONGEST_REASON = 2_000


class Approvals:
    """Requests and records decisions.

    The gate executes approved calls when ``gate/resume_worker`` passes them to it.
    """

    def __init__(
        self,
        rows: storage.ApprovalStore,
        blobs: BlobStore,
        registry: ToolRegistry,
        live: EventPublisher,
        *,
        process: str,
        patience: timedelta,
        decided: Callable[[], None],
    ) -> None:
        """Create the service.

        Args:
            patience: How long an approval stays open before it expires.
            decided: Called after each decision, to wake the resume worker.
        """
        self._rows = rows
        self._blobs = blobs
        self._registry = registry
        self._live = live
        self._process = process
        self._patience = patience
        self._decided = decided

    async def ask(
        self,
        entry: CallRecording,
        effects: Effects,
        plan: ToolRun | None,
        *,
        replaces: Approval | None = None,
    ) -> Outcome:
        """Pause the call: write its row, the proposed change set and the event in one transaction.

        Args:
            plan: The change set that the person sees, if it could be computed beforehand.
            replaces: The earlier approval of the same call that this one replaces.
        """
        caller, decision = entry.caller, entry.decision
        assert decision is not None and entry.tool is not None
        tenant, arguments = Tenant.of(caller), canonical_json(entry.call.arguments)
        rule, reason = pause_reason(decision, plan)
        approval = ApprovalRequest(
            id=ApprovalId(new_id()),
            arguments=arguments,
            arguments_sha256=arguments_sha256(arguments),
            shown=truncated_input(entry.call.arguments),
            changes=await preview_changes(self._blobs, tenant, plan.change_set, plan.unkept) if plan else [],
            change_set_id=plan.change_set.id if plan else None,
            result=plan.result if plan else None,
            effects=effects_to_row(effects, plan),
            rule=rule,
            reason=reason,
            isolation=plan.isolation if plan else None,
            offered=suggest_rule(entry.tool, effects),
            patience=self._patience,
            replaces=replaces.id if replaces else None,
        )
        async with self._rows.transaction(tenant, decision.required_role) as connection:
            if replaces is not None:
                await self._rows.replace(connection, tenant, replaces.id)
            if plan is not None:
                await save_proposal(connection, tenant, plan.change_set)
                staged = [one.token for one in list_restored(plan.change_set)]
                await extend_staged(connection, tenant, staged, self._patience)
            await self._rows.insert(connection, tenant, approval, caller, entry.call.name)
            asked = (await self._rows.lock(connection, tenant, approval.id)).approval
            await save_tool_call(connection, tenant, entry.waiting(tool_confirm_event(approval_payload(asked))))
        self._wake(asked)
        return Outcome(
            caller.call_id,
            OutcomeState.PAUSED,
            metadata={
                "status": "approval_pending",
                "approval_id": asked.id,
                "call_id": caller.call_id,
                "reason": reason,
                "expires_at": asked.expires_at,
            },
        )

    async def decide(
        self, tenant: Tenant, approval_id: ApprovalId, decision: ApprovalDecision, *, via: str
    ) -> Approval:
        """Record a person's decision. The first decision counts.

        Raises:
            Conflict: Somebody decided before, the approval expired, or the files have changed since it was requested.
            BadArguments: The reason or the rule to store is invalid.
        """
        require_person(tenant)
        require_storable(decision)
        needs = (
            WorkspaceRole.OWNER if decision.approved and decision.scope is GrantScope.ALWAYS else WorkspaceRole.MEMBER
        )
        async with self._rows.transaction(tenant, needs) as connection:
            found = await self._rows.lock(connection, tenant, approval_id)
            approval = found.approval
            require_pending(approval)
            stale = await self._sessionless(connection, tenant, found)
            if stale is None:
                stale = await self._flaw(found, decision)
                stale = stale or await self._staleness(connection, tenant, approval, decision)
                if stale is not None:
                    await self._rows.end(connection, tenant, approval_id, ApprovalState.STALE)
                    event = approval_ended_event(approval, ApprovalState.STALE, stale)
                    await self._publish(connection, tenant, approval, event)
            if stale is None:
                await self._rows.save_decision(connection, tenant, approval, decision, via=via)
                approval = (await self._rows.lock(connection, tenant, approval_id)).approval
                event = tool_decided_event(approval, decision, by=approval.decided_by_name)
                await self._publish(connection, tenant, approval, event)
                if not decision.approved:
                    denial = rejection_error(approval, decision)
                    await self._close(connection, tenant, found, ApprovalState.DENIED, denial, by=tenant.user_id)
        self._wake(approval)
        self._decided()
        if stale is not None:
            raise Conflict(stale)
        return approval

    async def cancel(self, tenant: Tenant, call_id: CallId) -> Approval:
        """Withdraw a pending call at its caller's request."""
        denial = NotDecided("The call was cancelled before it was approved. Nothing was changed.")
        async with self._rows.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            approval = await self._rows.latest_of_call(connection, tenant, call_id)
            found = await self._rows.lock(connection, tenant, approval.id)
            require_pending(found.approval)
            await self._close(connection, tenant, found, ApprovalState.WITHDRAWN, denial)
        self._wake(approval)
        return await self._rows.get(tenant, approval.id)

    async def cancel_for_run(self, tenant: Tenant, call_id: CallId) -> None:
        """Withdraw the pending call of a run that has ended. Does nothing if the call has no approval."""
        async with self._rows.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            try:
                approval = await self._rows.latest_of_call(connection, tenant, call_id)
            except NotFound:
                return
            found = await self._rows.lock(connection, tenant, approval.id)
            if found.approval.state in (ApprovalState.OPEN, ApprovalState.ALLOWED, ApprovalState.STALE):
                allowed = found.approval.state is ApprovalState.ALLOWED
                what = "this ran" if allowed else "this was approved"
                denial = NotDecided(f"The run ended before {what}. Nothing was changed.")
                await self._close(connection, tenant, found, ApprovalState.WITHDRAWN, denial)
        self._wake(approval)

    async def abandon(self, allowed: ApprovedCall, denial: CallDenied) -> None:
        """End an approved call that cannot be executed any more."""
        tenant = Tenant(allowed.approval.workspace_id)
        async with self._rows.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            found = await self._rows.lock(connection, tenant, allowed.approval.id)
            await self._close(connection, tenant, found, ApprovalState.WITHDRAWN, denial)
        self._wake(allowed.approval)

    async def expire(self, *, limit: int) -> int:
        """Expire overdue approvals and return how many. An approval that fails to expire does not block the others."""
        ended = 0
        for workspace_id, approval_id in await self._rows.list_expired(limit=limit):
            try:
                ended += await self._expire(Tenant(workspace_id), approval_id)
            except ToolcribError as error:
                log.warning("approvals.expire_failed", approval_id=str(approval_id), error=error.message)
        return ended

    async def _expire(self, tenant: Tenant, approval_id: ApprovalId) -> bool:
        async with self._rows.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            found = await self._rows.lock(connection, tenant, approval_id)
            if found.approval.state is not ApprovalState.OPEN or found.approval.expires_at > datetime.now(UTC):
                return False
            if await self._sessionless(connection, tenant, found) is None:
                asked = found.approval.created_at.isoformat(timespec="minutes")
                denial = NotDecided(
                    f"The approval requested at {asked} expired. Nothing was changed. Repeat the call if needed."
                )
                await self._close(connection, tenant, found, ApprovalState.EXPIRED, denial)
        self._wake(found.approval)
        return True

    async def proposal(self, tenant: Tenant, approval: Approval) -> ChangeSet | None:
        """Return the exact change set that the approval is about, or None."""
        if approval.change_set_id is None:
            return None
        async with self._rows.transaction(tenant, WorkspaceRole.VIEWER) as connection:
            return await load_proposal(connection, tenant, approval.change_set_id)

    async def is_overtaken(self, tenant: Tenant, approval: Approval) -> bool:
        """Return whether any file of the proposal has changed since the approval was requested."""
        if approval.change_set_id is None:
            return False
        async with self._rows.transaction(tenant, WorkspaceRole.VIEWER) as connection:
            return bool(await changed_since_proposal(connection, tenant, approval.change_set_id))

    async def get(self, tenant: Tenant, approval_id: ApprovalId) -> Approval:
        """Return one approval."""
        return await self._rows.get(tenant, approval_id)

    async def of_call(self, tenant: Tenant, call_id: CallId) -> Approval:
        """Return the latest approval of a call."""
        return await self._rows.of_call(tenant, call_id)

    async def open(self, tenant: Tenant, *, session_id: SessionId | None = None) -> list[Approval]:
        """Return the pending approvals."""
        return await self._rows.page(tenant, session_id=session_id)

    async def page(
        self,
        tenant: Tenant,
        *,
        session_id: SessionId | None,
        only_open: bool,
        after: ApprovalId | None,
        limit: int,
    ) -> list[Approval]:
        """Return one page of approvals."""
        return await self._rows.page(tenant, session_id=session_id, only_open=only_open, after=after, limit=limit)

    async def _sessionless(self, connection: Connection, tenant: Tenant, found: ApprovedCall) -> str | None:
        """End the approval if its session was deleted. Returns why it cannot be decided any more, or None."""
        approval = found.approval
        if approval.session_id is None or await self._rows.session_exists(connection, approval):
            return None
        denial = NotDecided("The session of this call was deleted before it was approved. Nothing was changed.")
        await self._close(connection, tenant, found, ApprovalState.WITHDRAWN, denial)
        return denial.message

    async def _flaw(self, found: ApprovedCall, decision: ApprovalDecision) -> str | None:
        """Return why the approval is stale, or None.

        Raises:
            BadArguments: The decision itself is invalid; the person can correct it.
        """
        if decision.reason is not None and len(decision.reason) > _LONGEST_REASON:
            raise BadArguments({"reason": f"At most {_LONGEST_REASON:,} characters."})
        if decision.scope is not GrantScope.ONCE and decision.approved:
            await self._check_grant(found, decision)
        if not arguments_unchanged(found):
            return "The arguments of the call differ from those in the approval. Decide on the new approval."
        return None

    async def _check_grant(self, found: ApprovedCall, decision: ApprovalDecision) -> None:
        approval, rule = found.approval, decision.rule
        if approval.agent_id is None:
            raise BadArguments({"scope": "A grant is only possible for calls of an agent."})
        if decision.scope is GrantScope.SESSION and approval.session_id is None:
            raise BadArguments({"scope": "This call has no session. Use the scope `once` or `always`."})
        if approval.rule == PROTECTED_NAME:
            raise BadArguments({"scope": "Calls on protected paths can only be approved `once`."})
        if rule is None:
            raise BadArguments({"rule": "Give the rule to store: the suggested rule or another one."})
        registry = await self._registry.for_workspace(approval.workspace_id, approval.tool)
        tool = registry.require(approval.tool)
        check_rule(rule, tool, tool.effects(tool.parse(parse_canonical_json(found.arguments))))

    async def _staleness(
        self, connection: Connection, tenant: Tenant, approval: Approval, decision: ApprovalDecision
    ) -> str | None:
        if decision.arguments_sha256 is not None and decision.arguments_sha256 != approval.arguments_sha256:
            raise Conflict("`arguments_sha256` does not match this approval. Fetch the approval again, then decide.")
        if not decision.approved or approval.change_set_id is None:
            return None
        paths = await changed_since_proposal(connection, tenant, approval.change_set_id)
        return stale_message(paths) if paths else None

    async def _close(
        self,
        connection: Connection,
        tenant: Tenant,
        found: ApprovedCall,
        state: ApprovalState,
        denial: CallDenied,
        *,
        by: UserId | None = None,
    ) -> None:
        """End the call without running it: its row, its audit record and its events."""
        approval = found.approval
        if approval.session_id is not None and not await self._rows.session_exists(connection, approval):
            approval = replace(approval, session_id=None)
            found = replace(found, approval=approval)
        await self._rows.end(connection, tenant, approval.id, state)
        if approval.change_set_id is not None:
            await drop_proposal(connection, tenant, approval.change_set_id)
        if state is not ApprovalState.DENIED:
            await self._publish(connection, tenant, approval, approval_ended_event(approval, state, denial.message))
        entry = recording_of(found, _agent_then(approval), process=self._process)
        entry.allowed = None
        entry.decision = Authorization(
            AuthorizationAction.ASK, approval.rule, approval.reason, WorkspaceRole.MEMBER, None, ()
        )
        tool = self._registry.get(approval.tool)
        result = tool.encode_error(denial) if tool and tool.encode_error else None
        outcome = Outcome(approval.call_id, OutcomeState.DENIED, result=result, error=denial)
        await save_tool_call(connection, tenant, entry.ended(outcome))
        audit = entry.audit_record("denied", error=denial, decided_by=by)
        await connection.execute("select toolcrib.append_audit_records(%s)", (json_text([audit_row(audit)]),))

    async def _publish(
        self, connection: Connection, tenant: Tenant, approval: Approval, event: Mapping[str, Any]
    ) -> None:
        if approval.session_id is not None:
            await connection.execute(
                "select toolcrib.append_event(%s, %s, %s, %s)",
                (tenant.workspace_id, approval.session_id, event["type"], json_text(event["payload"])),
            )

    def _wake(self, approval: Approval) -> None:
        if approval.session_id is not None:
            self._live.notify(approval.workspace_id, approval.session_id)


def arguments_unchanged(found: ApprovedCall) -> bool:
    """Return whether the arguments are byte for byte those that the person saw."""
    return arguments_sha256(found.arguments).hex() == found.approval.arguments_sha256


def recording_of(
    found: ApprovedCall, agent: Agent | None, *, process: str, run_epoch: int | None = None
) -> CallRecording:
    """Recreate the paused call for its second pass through the gate, with exactly the arguments that were approved."""
    approval = found.approval
    caller = Caller(
        workspace_id=approval.workspace_id,
        user_id=approval.user_id,
        agent=agent,
        session_id=approval.session_id,
        run_id=approval.run_id,
        call_id=approval.call_id,
        run_epoch=run_epoch,
        via=found.via,
    )
    return CallRecording(ToolCall(approval.tool, parse_canonical_json(found.arguments)), caller, process, found)


def _agent_then(approval: Approval) -> Agent | None:
    """Return as much of the agent as the audit record needs."""
    if approval.agent_id is None:
        return None
    return Agent(approval.agent_id, approval.agent_name or "", AgentRules())
