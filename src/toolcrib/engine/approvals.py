"""Approvals: a call that must wait becomes a row, a person decides it once, and the row is what is carried out."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from toolcrib.domain.agents import AgentRules
from toolcrib.domain.approvals import Approval, ApprovalState, Judgement, Scope
from toolcrib.domain.arguments import digest_of, spelled, unspelled
from toolcrib.domain.callers import Agent, Caller, Role
from toolcrib.domain.changes import ChangeSet
from toolcrib.domain.effects import Effects
from toolcrib.domain.errors import (
    BadArguments,
    Conflict,
    NotDecided,
    NotFound,
    Refused,
    ToolcribError,
)
from toolcrib.domain.ids import ApprovalId, CallId, SessionId, UserId, new_id
from toolcrib.domain.outcomes import Outcome, OutcomeState
from toolcrib.engine.entry import Entry
from toolcrib.engine.foresight import Plan, effects_row, why
from toolcrib.engine.objections import denied, moved_on, refuse_agents, refuse_unless_open, refuse_unwritable
from toolcrib.engine.telling import approval_ended, approval_payload, shown_input, tool_asked, tool_decided
from toolcrib.engine.watchers import Watchers
from toolcrib.policy.decisions import Decision, Verdict
from toolcrib.policy.grants import check_rule, offer
from toolcrib.storage import approvals as storage
from toolcrib.storage.approvals import Allowed, NewApproval
from toolcrib.storage.audit import audit_row
from toolcrib.storage.blobs import Blobs
from toolcrib.storage.calls import record_call
from toolcrib.storage.database import Connection, Tenant
from toolcrib.storage.json_text import json_text
from toolcrib.storage.proposals import drop, overtaken, propose, proposed
from toolcrib.storage.trash import keep_staged
from toolcrib.tools.call import ToolCall
from toolcrib.tools.registry import Registry
from toolcrib.workspace.preview import preview
from toolcrib.workspace.trash import returned_by

log = structlog.get_logger(__name__)

_LONGEST_REASON = 2_000


class Approvals:
    """Asking and deciding. Carrying out is the gate's, when ``engine/waiting`` brings it what was allowed."""

    def __init__(
        self,
        rows: storage.Approvals,
        blobs: Blobs,
        registry: Registry,
        live: Watchers,
        *,
        process: str,
        patience: timedelta,
        decided: Callable[[], None],
    ) -> None:
        """``decided`` is called whenever something was, for whoever carries it out."""
        self._rows = rows
        self._blobs = blobs
        self._registry = registry
        self._live = live
        self._process = process
        self._patience = patience
        self._decided = decided

    async def ask(
        self,
        entry: Entry,
        effects: Effects,
        plan: Plan | None,
        *,
        replaces: Approval | None = None,
    ) -> Outcome:
        """The call waits from here on: its row, the proposed set and the event are one transaction."""
        caller, decision = entry.caller, entry.decision
        assert decision is not None and entry.tool is not None
        tenant, arguments = Tenant.of(caller), spelled(entry.call.arguments)
        rule, reason = why(decision, plan)
        approval = NewApproval(
            id=ApprovalId(new_id()),
            arguments=arguments,
            arguments_sha256=digest_of(arguments),
            shown=shown_input(entry.call.arguments),
            changes=await preview(self._blobs, tenant, plan.change_set) if plan else [],
            change_set_id=plan.change_set.id if plan else None,
            result=plan.result if plan else None,
            effects=effects_row(effects, plan),
            rule=rule,
            reason=reason,
            isolation=plan.isolation if plan else None,
            offered=offer(entry.tool, effects),
            patience=self._patience,
            replaces=replaces.id if replaces else None,
        )
        async with self._rows.transaction(tenant, decision.needs_role) as connection:
            if replaces is not None:
                await self._rows.replaced(connection, tenant, replaces.id)
            if plan is not None:
                await propose(connection, tenant, plan.change_set)
                staged = [one.token for one in returned_by(plan.change_set)]
                await keep_staged(connection, tenant, staged, self._patience)
            await self._rows.add(connection, tenant, approval, caller, entry.call.name)
            asked = (await self._rows.locked(connection, tenant, approval.id)).approval
            await record_call(connection, tenant, entry.waiting(tool_asked(approval_payload(asked))))
        self._wake(asked)
        return Outcome(
            caller.call_id,
            OutcomeState.WAITING,
            metadata={
                "status": "approval_pending",
                "approval_id": asked.id,
                "call_id": caller.call_id,
                "reason": reason,
                "expires_at": asked.expires_at,
            },
        )

    async def decide(self, tenant: Tenant, approval_id: ApprovalId, judgement: Judgement, *, via: str) -> Approval:
        """A person's decision. The first one counts; Conflict tells the second who it was, and the late that it is."""
        refuse_agents(tenant)
        refuse_unwritable(judgement)
        needs = Role.OWNER if judgement.approved and judgement.scope is Scope.ALWAYS else Role.MEMBER
        async with self._rows.transaction(tenant, needs) as connection:
            found = await self._rows.locked(connection, tenant, approval_id)
            approval = found.approval
            refuse_unless_open(approval)
            stale = await self._sessionless(connection, tenant, found)
            if stale is None:
                stale = await self._flaw(found, judgement)
                stale = stale or await self._staleness(connection, tenant, approval, judgement)
                if stale is not None:
                    await self._rows.ended(connection, tenant, approval_id, ApprovalState.STALE)
                    event = approval_ended(approval, ApprovalState.STALE, stale)
                    await self._tell(connection, tenant, approval, event)
            if stale is None:
                await self._rows.decided(connection, tenant, approval, judgement, via=via)
                approval = (await self._rows.locked(connection, tenant, approval_id)).approval
                event = tool_decided(approval, judgement, by=approval.decided_by_name)
                await self._tell(connection, tenant, approval, event)
                if not judgement.approved:
                    refusal = denied(approval, judgement)
                    await self._close(connection, tenant, found, ApprovalState.DENIED, refusal, by=tenant.user_id)
        self._wake(approval)
        self._decided()
        if stale is not None:
            raise Conflict(stale)
        return approval

    async def withdraw(self, tenant: Tenant, call_id: CallId) -> Approval:
        """Whoever called wants it no more."""
        refusal = NotDecided("The call was withdrawn before anyone decided. Nothing was changed.")
        async with self._rows.transaction(tenant, Role.MEMBER) as connection:
            approval = await self._rows.newest(connection, tenant, call_id)
            found = await self._rows.locked(connection, tenant, approval.id)
            refuse_unless_open(found.approval)
            await self._close(connection, tenant, found, ApprovalState.WITHDRAWN, refusal)
        self._wake(approval)
        return await self._rows.get(tenant, approval.id)

    async def withdraw_for_run(self, tenant: Tenant, call_id: CallId) -> None:
        """The run that called has ended; nothing if the call waits for no decision."""
        refusal = NotDecided("The run ended before anyone decided. Nothing was changed.")
        async with self._rows.transaction(tenant, Role.MEMBER) as connection:
            try:
                approval = await self._rows.newest(connection, tenant, call_id)
            except NotFound:
                return
            found = await self._rows.locked(connection, tenant, approval.id)
            if found.approval.state in (ApprovalState.OPEN, ApprovalState.ALLOWED, ApprovalState.STALE):
                await self._close(connection, tenant, found, ApprovalState.WITHDRAWN, refusal)
        self._wake(approval)

    async def abandon(self, allowed: Allowed, refusal: Refused) -> None:
        """What was allowed cannot be carried out any more."""
        tenant = Tenant(allowed.approval.workspace_id)
        async with self._rows.transaction(tenant, Role.MEMBER) as connection:
            found = await self._rows.locked(connection, tenant, allowed.approval.id)
            await self._close(connection, tenant, found, ApprovalState.WITHDRAWN, refusal)
        self._wake(allowed.approval)

    async def expire(self, *, limit: int) -> int:
        """Ends what nobody decided in time. Returns how many it has ended; one that cannot be holds up no other."""
        ended = 0
        for workspace_id, approval_id in await self._rows.expired(limit=limit):
            try:
                ended += await self._expire(Tenant(workspace_id), approval_id)
            except ToolcribError as error:
                log.warning("approvals.not_expired", approval_id=str(approval_id), error=error.message)
        return ended

    async def _expire(self, tenant: Tenant, approval_id: ApprovalId) -> bool:
        async with self._rows.transaction(tenant, Role.MEMBER) as connection:
            found = await self._rows.locked(connection, tenant, approval_id)
            if found.approval.state is not ApprovalState.OPEN or found.approval.expires_at > datetime.now(UTC):
                return False
            if await self._sessionless(connection, tenant, found) is None:
                asked = found.approval.created_at.isoformat(timespec="minutes")
                refusal = NotDecided(
                    f"Nobody decided in time: it was asked at {asked}. Nothing was changed. Ask for it again if needed."
                )
                await self._close(connection, tenant, found, ApprovalState.EXPIRED, refusal)
        self._wake(found.approval)
        return True

    async def proposal(self, tenant: Tenant, approval: Approval) -> ChangeSet | None:
        """The very set that the approval is about, if there is one."""
        if approval.change_set_id is None:
            return None
        async with self._rows.transaction(tenant, Role.VIEWER) as connection:
            return await proposed(connection, tenant, approval.change_set_id)

    async def is_overtaken(self, tenant: Tenant, approval: Approval) -> bool:
        """Whether the history has moved on since it was asked about."""
        if approval.change_set_id is None:
            return False
        async with self._rows.transaction(tenant, Role.VIEWER) as connection:
            return bool(await overtaken(connection, tenant, approval.change_set_id))

    async def get(self, tenant: Tenant, approval_id: ApprovalId) -> Approval:
        return await self._rows.get(tenant, approval_id)

    async def of_call(self, tenant: Tenant, call_id: CallId) -> Approval:
        return await self._rows.of_call(tenant, call_id)

    async def open(self, tenant: Tenant, *, session_id: SessionId | None = None) -> list[Approval]:
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
        return await self._rows.page(tenant, session_id=session_id, only_open=only_open, after=after, limit=limit)

    async def _sessionless(self, connection: Connection, tenant: Tenant, found: Allowed) -> str | None:
        """Ends what waits in a session that was deleted. Why nothing can be decided any more, if it was."""
        approval = found.approval
        if approval.session_id is None or await self._rows.has_session(connection, approval):
            return None
        refusal = NotDecided("The session of this call was deleted before anyone decided. Nothing was changed.")
        await self._close(connection, tenant, found, ApprovalState.WITHDRAWN, refusal)
        return refusal.message

    async def _flaw(self, found: Allowed, judgement: Judgement) -> str | None:
        """Why the decision cannot stand: BadArguments for what the person must mend, words for what changed."""
        if judgement.reason is not None and len(judgement.reason) > _LONGEST_REASON:
            raise BadArguments({"reason": f"At most {_LONGEST_REASON:,} characters."})
        if judgement.scope is not Scope.ONCE and judgement.approved:
            await self._check_grant(found, judgement)
        if not is_as_asked(found):
            return "The call's arguments are not those that were asked about. It is asked again."
        return None

    async def _check_grant(self, found: Allowed, judgement: Judgement) -> None:
        approval, rule = found.approval, judgement.rule
        if approval.agent_id is None:
            raise BadArguments({"scope": "Only an agent's calls can be allowed beforehand."})
        if judgement.scope is Scope.SESSION and approval.session_id is None:
            raise BadArguments({"scope": "This call belongs to no session. Allow it `once` or `always`."})
        if rule is None:
            raise BadArguments(
                {"rule": "Say the rule that is to be stored: the one offered, or another you have read."}
            )
        registry = await self._registry.within(approval.workspace_id, approval.tool)
        tool = registry.require(approval.tool)
        check_rule(rule, tool.name, tool.effects(tool.parse(unspelled(found.arguments))))

    async def _staleness(
        self, connection: Connection, tenant: Tenant, approval: Approval, judgement: Judgement
    ) -> str | None:
        if judgement.arguments_sha256 is not None and judgement.arguments_sha256 != approval.arguments_sha256:
            raise Conflict("What you were shown is not what this approval is about. Look at it again, then decide.")
        if not judgement.approved or approval.change_set_id is None:
            return None
        places = await overtaken(connection, tenant, approval.change_set_id)
        return moved_on(places) if places else None

    async def _close(
        self,
        connection: Connection,
        tenant: Tenant,
        found: Allowed,
        state: ApprovalState,
        refusal: Refused,
        *,
        by: UserId | None = None,
    ) -> None:
        """The call ends without having run: its row, its record in the book, its events."""
        approval = found.approval
        if approval.session_id is not None and not await self._rows.has_session(connection, approval):
            approval = replace(approval, session_id=None)
            found = replace(found, approval=approval)
        await self._rows.ended(connection, tenant, approval.id, state)
        if approval.change_set_id is not None:
            await drop(connection, tenant, approval.change_set_id)
        if state is not ApprovalState.DENIED:
            await self._tell(connection, tenant, approval, approval_ended(approval, state, refusal.message))
        entry = entry_of(found, _agent_then(approval), process=self._process)
        entry.allowed = None
        entry.decision = Decision(Verdict.ASK, approval.rule, approval.reason, Role.MEMBER, None, ())
        tool = self._registry.get(approval.tool)
        result = tool.failure(refusal) if tool and tool.failure else None
        outcome = Outcome(approval.call_id, OutcomeState.REFUSED, result=result, error=refusal)
        await record_call(connection, tenant, entry.ended(outcome))
        audit = entry.audit_record("refused", error=refusal, approver_id=by)
        await connection.execute("select toolcrib.record_audit(%s)", (json_text([audit_row(audit)]),))

    async def _tell(self, connection: Connection, tenant: Tenant, approval: Approval, event: Mapping[str, Any]) -> None:
        if approval.session_id is not None:
            await connection.execute(
                "select toolcrib.append_event(%s, %s, %s, %s)",
                (tenant.workspace_id, approval.session_id, event["type"], json_text(event["payload"])),
            )

    def _wake(self, approval: Approval) -> None:
        if approval.session_id is not None:
            self._live.wake(approval.workspace_id, approval.session_id)


def is_as_asked(found: Allowed) -> bool:
    """Whether the arguments are, byte for byte, those that a person was asked about."""
    return digest_of(found.arguments).hex() == found.approval.arguments_sha256


def entry_of(found: Allowed, agent: Agent | None, *, process: str, fence: int | None = None) -> Entry:
    """The call that waited, as it passes the gate again: with exactly the arguments that were approved."""
    approval = found.approval
    caller = Caller(
        workspace_id=approval.workspace_id,
        user_id=approval.user_id,
        agent=agent,
        session_id=approval.session_id,
        run_id=approval.run_id,
        call_id=approval.call_id,
        fence=fence,
        via=found.via,
    )
    return Entry(ToolCall(approval.tool, unspelled(found.arguments)), caller, process, found)


def _agent_then(approval: Approval) -> Agent | None:
    """Enough of the agent to write down that it was its call."""
    if approval.agent_id is None:
        return None
    return Agent(approval.agent_id, approval.agent_name or "", AgentRules())
