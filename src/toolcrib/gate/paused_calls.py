"""Paused calls: stores a call that waits for a person, records one decision or answer, and ends the call otherwise."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Agent, Caller, WorkspaceRole
from toolcrib.core.change_sets import ChangeSet
from toolcrib.core.errors import BadArguments, CallDenied, Conflict, NotFound, ToolcribError
from toolcrib.core.events import Event
from toolcrib.core.ids import CallId, PauseId
from toolcrib.core.paused_calls import (
    ApprovalDecision,
    ApprovalRequest,
    ApprovedCall,
    FileEdit,
    GrantScope,
    PausedCall,
    PauseKind,
    PauseState,
    QuestionRequest,
)
from toolcrib.core.tool_calls import (
    Outcome,
    OutcomeState,
    ToolCall,
    arguments_sha256,
    canonical_json,
    parse_canonical_json,
)
from toolcrib.events.event_bus import EventPublisher
from toolcrib.events.event_payloads import (
    pause_ended_event,
    question_event,
    question_items,
    tool_confirm_event,
    truncated_input,
)
from toolcrib.gate.call_recorder import audit_record, call_record, ended_record
from toolcrib.gate.call_stages import AuthorizedCall, CallRequest, ToolRun, effects_to_row, pause_reason
from toolcrib.gate.edited_approvals import (
    EditedProposal,
    edited_proposal,
    edited_result,
    require_as_seen,
    require_edit_decision,
)
from toolcrib.gate.pause_checks import (
    arguments_unchanged,
    cancellation_error,
    check_answers,
    check_grant,
    expiry_error,
    rejection_error,
    require_pending,
    require_person,
    require_storable,
    stale_message,
)
from toolcrib.policy.authorization import Authorization, AuthorizationAction
from toolcrib.policy.grants import suggest_rules, ungranted_hosts
from toolcrib.storage.audit import AuditStore
from toolcrib.storage.blobs import BlobStore
from toolcrib.storage.database import Connection, Tenant
from toolcrib.storage.events import EventStore
from toolcrib.storage.paused_calls import PausedCallStore
from toolcrib.storage.proposed_change_sets import (
    changed_since_proposal,
    load_proposal,
    load_proposed_changes,
    replace_proposal,
    save_proposal,
)
from toolcrib.storage.tool_calls import save_tool_call
from toolcrib.storage.trash import extend_staged
from toolcrib.tools.tool_registry import ToolRegistry
from toolcrib.workspace.changes.change_preview import MOST_ON_PAGE, PreviewPage, preview_changes, preview_page
from toolcrib.workspace.changes.proposal_edit import proposed_text

log = structlog.get_logger(__name__)

_SESSION_DELETED = "The session of this call was deleted"
_EXPIRED_AT_ONCE = 100


class PausedCalls:
    """Pauses calls, and ends their pauses: each once.

    The gate executes approved calls when a run or ``gate/resume_worker`` passes them to it. An answered call has ended.
    """

    def __init__(
        self,
        store: PausedCallStore,
        blobs: BlobStore,
        registry: ToolRegistry,
        live: EventPublisher,
        *,
        process: str,
        timeout: timedelta,
        on_ended: Callable[[PausedCall], None],
    ) -> None:
        """Create the service.

        Args:
            timeout: How long a call waits before it expires.
            on_ended: Called after each end of a pause, to wake the workers.
        """
        self._store = store
        self._blobs = blobs
        self._registry = registry
        self._live = live
        self._process = process
        self._timeout = timeout
        self._on_ended = on_ended
        # Reading needs no more than the store.
        self.get = store.get
        self.of_call = store.of_call
        self.list = store.list
        self.approved_call = store.approved_call
        self.approved_folders = store.approved_folders

    async def pause_for_approval(self, authorized: AuthorizedCall, run: ToolRun | None) -> Outcome:
        """Pause the call: write its row, the proposed change set and the event in one transaction.

        If the call resumes, the new pause replaces the one with which it did.

        Args:
            run: The previewed run, whose change set the person sees, if it could be computed beforehand.
        """
        caller, call = authorized.caller, authorized.call
        tenant, arguments = Tenant.of(caller), canonical_json(call.arguments)
        change_set = run.change_set if run else None
        rule, reason = pause_reason(authorized.authorization, run)
        hosts = ungranted_hosts(caller, authorized.tool, authorized.effects)
        suggested, *others = suggest_rules(authorized.tool, authorized.effects, hosts=hosts)
        approval = ApprovalRequest(
            # Where no change set shows the effect, the arguments are all that a person can judge.
            input=dict(call.arguments) if change_set is None else truncated_input(call.arguments),
            arguments_sha256=arguments_sha256(arguments).hex(),
            changes=await preview_changes(self._blobs, tenant, change_set, run.untracked) if run and change_set else [],
            change_set_id=change_set.id if change_set else None,
            effects=effects_to_row(authorized.effects, run),
            rule=rule,
            reason=reason,
            isolation=run.report.isolation if run else None,
            suggested_rule=suggested,
            other_rules=tuple(others),
            replaces=authorized.approved.pause.id if authorized.approved else None,
        )
        async with self._store.transaction(tenant, authorized.authorization.required_role) as connection:
            if approval.replaces is not None:
                await self._store.replace(connection, tenant, approval.replaces)
            if change_set is not None:
                await save_proposal(connection, tenant, change_set)
                staged = [one.trash_id for one in change_set.restored]
                await extend_staged(connection, tenant, staged, self._timeout)
            result = run.result if run else None
            pause = await self._insert(connection, authorized, approval, arguments=arguments, planned_result=result)
        self._notify(pause)
        return paused_outcome(pause)

    async def pause_for_answers(self, authorized: AuthorizedCall, run: ToolRun) -> Outcome:
        """Pause the call: write its row, its questions and the event in one transaction."""
        caller = authorized.caller
        async with self._store.transaction(Tenant.of(caller), WorkspaceRole.MEMBER) as connection:
            pause = await self._insert(connection, authorized, QuestionRequest(run.questions))
        self._notify(pause)
        return paused_outcome(pause)

    async def decide(self, tenant: Tenant, pause_id: PauseId, decision: ApprovalDecision, *, via: str) -> PausedCall:
        """Record a person's decision. The first decision counts.

        Raises:
            Conflict: Somebody decided before, the approval expired, the files have changed since it was requested, or
                the change set is not the one that the person saw.
            BadArguments: The reason, the rule to store or an edit is invalid.
        """
        require_person(tenant, to="approve or reject a call")
        require_storable(decision)
        require_edit_decision(decision)
        # Outside the transaction: comparing texts takes time, and only a decision changes what is proposed.
        edited = await self._edited(tenant, pause_id, decision.edits) if decision.edits else None
        always = decision.approved and decision.scope is GrantScope.ALWAYS
        needs = WorkspaceRole.OWNER if always else WorkspaceRole.MEMBER
        conflict: str | None = None
        async with self._store.transaction(tenant, needs) as connection:
            pause = await self._store.lock(connection, tenant, pause_id)
            require_pending(pause, PauseKind.APPROVAL)
            if await self._store.lost_session(connection, pause):
                error = cancellation_error(pause, _SESSION_DELETED)
                pause = await self._end(connection, tenant, pause, PauseState.CANCELLED, error)
                conflict = error.message
            elif conflict := await self._stale_reason(connection, tenant, pause, decision, edited):
                await self._store.end(connection, tenant, pause, PauseState.STALE)
                pause = replace(pause, state=PauseState.STALE)
                await self._append_ended_event(connection, tenant, pause, conflict)
            else:
                pause = await self._store.save_decision(connection, tenant, pause, decision, via=via)
                if edited is not None and edited.edits:
                    pause = await self._save_edits(connection, tenant, pause, edited)
                if decision.approved:
                    await self._append_ended_event(connection, tenant, pause, decision.reason)
                else:
                    await self._end(connection, tenant, pause, PauseState.REJECTED, rejection_error(pause))
        self._notify_ended(pause)
        if conflict is not None:
            raise Conflict(conflict)
        return pause

    async def preview_edits(self, tenant: Tenant, pause_id: PauseId, edits: Sequence[FileEdit]) -> EditedProposal:
        """Return what would be committed with these edits, and its hash. Stores nothing.

        Raises:
            BadArguments: An edit is not possible.
            Conflict: The approval was decided, has expired, or has no change set.
        """
        require_person(tenant, to="edit a proposed change set")
        return await self._edited(tenant, pause_id, edits)

    async def changes_page(self, tenant: Tenant, pause_id: PauseId, *, first: int, from_line: int) -> PreviewPage:
        """Return some changes of a pending call with all their lines.

        Raises:
            Conflict: The approval was decided, or has expired.
        """
        pause = await self._store.get(tenant, pause_id)
        require_pending(pause, PauseKind.APPROVAL)
        if pause.approval.change_set_id is None:
            # What it would change is not known before it runs.
            return PreviewPage([], None)
        async with self._store.transaction(tenant, WorkspaceRole.VIEWER) as connection:
            changes, total = await load_proposed_changes(
                connection, tenant, pause.approval.change_set_id, first=first, limit=MOST_ON_PAGE
            )
        return await preview_page(self._blobs, tenant, changes, first=first, total=total, from_line=from_line)

    async def proposed_text(self, tenant: Tenant, pause_id: PauseId, path: str) -> str:
        """Return the content that a pending call would give to a file, for a person who edits it."""
        require_person(tenant, to="edit a proposed change set")
        return proposed_text(await self._proposed(tenant, pause_id), path)

    async def _edited(self, tenant: Tenant, pause_id: PauseId, edits: Sequence[FileEdit]) -> EditedProposal:
        return await edited_proposal(self._blobs, tenant, await self._proposed(tenant, pause_id), edits)

    async def _proposed(self, tenant: Tenant, pause_id: PauseId) -> ChangeSet:
        """Return what a pending call proposes to change."""
        pause = await self._store.get(tenant, pause_id, needs=WorkspaceRole.MEMBER)
        require_pending(pause, PauseKind.APPROVAL)
        proposal = await self.proposal(tenant, pause.approval)
        if proposal is None:
            raise Conflict("The effect of this call is not known before it runs, so there is nothing to edit.")
        return proposal

    async def _save_edits(
        self, connection: Connection, tenant: Tenant, pause: PausedCall, edited: EditedProposal
    ) -> PausedCall:
        """Replace the proposal by what the person made of it: that is committed, and the model is told."""
        assert pause.resolution is not None
        await replace_proposal(connection, tenant, edited.change_set)
        planned = await self._store.planned_result(connection, pause)
        result = edited_result(planned, edited.edits, by=pause.resolution.decided_by_name)
        return await self._store.save_edits(
            connection, tenant, pause, changes=edited.changes, edits=edited.edits, planned_result=result
        )

    async def answer(
        self,
        tenant: Tenant,
        pause_id: PauseId,
        answers: Mapping[str, Any],
        *,
        buttons: Collection[str] = (),
        via: str,
    ) -> PausedCall:
        """Record a person's answers, which end the call. The first answers count.

        Args:
            buttons: The names of the questions that were answered with a button.

        Raises:
            BadArguments: An answer does not match its question; the error names the question.
            Conflict: The questions were answered or cancelled, or have expired.
        """
        require_person(tenant, to="answer a question")
        pause = await self._store.get(tenant, pause_id, needs=WorkspaceRole.MEMBER)
        require_pending(pause, PauseKind.QUESTION)
        # Outside a transaction: validation may take seconds, and the questions themselves never change.
        await check_answers(pause.questions, answers, buttons)
        async with self._store.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            pause = await self._store.lock(connection, tenant, pause_id)
            require_pending(pause, PauseKind.QUESTION)
            pressed = tuple(dict.fromkeys(buttons))
            pause = await self._store.save_answers(connection, tenant, pause, answers, buttons=pressed, via=via)
            await self._end(connection, tenant, pause, PauseState.ANSWERED)
        self._notify_ended(pause)
        return pause

    async def cancel(self, tenant: Tenant, call_id: CallId) -> PausedCall:
        """Cancel a pending call at its caller's request."""
        async with self._store.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            pause = await self._store.lock_latest(connection, tenant, call_id)
            require_pending(pause, pause.kind)
            error = cancellation_error(pause, "The call was cancelled")
            pause = await self._end(connection, tenant, pause, PauseState.CANCELLED, error)
        self._notify_ended(pause)
        return pause

    async def cancel_for_run(self, tenant: Tenant, call_id: CallId) -> bool:
        """Cancel the paused call of a run that has ended. Returns False if the call does not wait for a person."""
        async with self._store.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            try:
                pause = await self._store.lock_latest(connection, tenant, call_id)
            except NotFound:
                return False
            if pause.state not in (PauseState.PENDING, PauseState.APPROVED, PauseState.STALE):
                return True
            error = cancellation_error(pause, "The run ended")
            pause = await self._end(connection, tenant, pause, PauseState.CANCELLED, error)
        self._notify_ended(pause)
        return True

    async def abandon(self, approved: ApprovedCall, error: CallDenied) -> None:
        """End an approved call that cannot be executed any more."""
        tenant = Tenant(approved.pause.workspace_id)
        async with self._store.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            pause = await self._store.lock(connection, tenant, approved.pause.id)
            pause = await self._end(connection, tenant, pause, PauseState.CANCELLED, error)
        self._notify_ended(pause)

    async def expire_all(self) -> None:
        """End all overdue pauses."""
        while await self.expire(limit=_EXPIRED_AT_ONCE):
            pass

    async def expire(self, *, limit: int) -> int:
        """End overdue pauses and return how many. One that fails to end does not block the others."""
        ended = 0
        for workspace_id, pause_id in await self._store.list_expired(limit=limit):
            try:
                ended += await self._expire(Tenant(workspace_id), pause_id)
            except ToolcribError as error:
                log.warning("paused_calls.expire_failed", pause_id=str(pause_id), code=error.code)
        return ended

    async def _expire(self, tenant: Tenant, pause_id: PauseId) -> bool:
        async with self._store.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            pause = await self._store.lock(connection, tenant, pause_id)
            if not pause.is_pending or pause.expires_at > datetime.now(UTC):
                return False
            if await self._store.lost_session(connection, pause):
                state, error = PauseState.CANCELLED, cancellation_error(pause, _SESSION_DELETED)
            else:
                state, error = PauseState.EXPIRED, expiry_error(pause)
            pause = await self._end(connection, tenant, pause, state, error)
        self._notify_ended(pause)
        return True

    async def proposal(self, tenant: Tenant, approval: ApprovalRequest) -> ChangeSet | None:
        """Return the exact change set that the approval is about, or None."""
        if approval.change_set_id is None:
            return None
        async with self._store.transaction(tenant, WorkspaceRole.VIEWER) as connection:
            return await load_proposal(connection, tenant, approval.change_set_id)

    async def is_overtaken(self, tenant: Tenant, approval: ApprovalRequest) -> bool:
        """Return whether any file of the proposal has changed since the approval was requested."""
        if approval.change_set_id is None:
            return False
        async with self._store.transaction(tenant, WorkspaceRole.VIEWER) as connection:
            return bool(await changed_since_proposal(connection, tenant, approval.change_set_id))

    async def _stale_reason(
        self,
        connection: Connection,
        tenant: Tenant,
        pause: PausedCall,
        decision: ApprovalDecision,
        edited: EditedProposal | None,
    ) -> str | None:
        """Return why a person must be asked again, or None.

        Raises:
            BadArguments: The decision itself is invalid; the person can correct it.
        """
        approval, arguments = pause.approval, await self._store.arguments(connection, pause)
        if decision.approved and decision.scope is not GrantScope.ONCE:
            tool = await self._registry.find(pause.workspace_id, pause.tool) or self._registry.require(pause.tool)
            check_grant(pause, decision, tool, arguments)
            await self._check_tools(pause, decision)
        if not arguments_unchanged(approval, arguments):
            return "The arguments of the call differ from those in the approval. Decide on the new approval."
        if decision.arguments_sha256 is not None and decision.arguments_sha256 != approval.arguments_sha256:
            raise Conflict("`arguments_sha256` does not match this approval. Fetch the approval again, then decide.")
        if decision.change_set_sha256 is not None:
            if approval.change_set_id is None:
                raise Conflict(
                    "`change_set_sha256` was given, but the effect of this call is not known before it runs."
                )
            proposal = await load_proposal(connection, tenant, approval.change_set_id)
            require_as_seen(decision, proposal if edited is None else edited.change_set)
        if not decision.approved or approval.change_set_id is None:
            return None
        paths = await changed_since_proposal(connection, tenant, approval.change_set_id)
        return stale_message(paths) if paths else None

    async def _check_tools(self, pause: PausedCall, decision: ApprovalDecision) -> None:
        """Raise BadArguments for a tool of the rule that the workspace does not have."""
        for number, name in enumerate(decision.rule.tools if decision.rule else ()):
            if await self._registry.find(pause.workspace_id, name) is None:
                raise BadArguments({f"rule.tools.{number}": f"There is no tool `{name}` in this workspace."})

    async def _insert(
        self,
        connection: Connection,
        authorized: AuthorizedCall,
        request: ApprovalRequest | QuestionRequest,
        *,
        arguments: str | None = None,
        planned_result: Any = None,
    ) -> PausedCall:
        """Write the pause, the paused call and the event that asks a person."""
        caller = authorized.caller
        pause = await self._store.insert(
            connection,
            caller,
            authorized.call.name,
            request,
            expires_in=self._timeout,
            arguments=arguments,
            planned_result=planned_result,
        )
        event = tool_confirm_event(pause) if pause.kind is PauseKind.APPROVAL else question_event(pause)
        record = call_record(authorized, OutcomeState.PAUSED, process=self._process, events=(event,))
        await save_tool_call(connection, Tenant.of(caller), record)
        return pause

    async def _end(
        self,
        connection: Connection,
        tenant: Tenant,
        pause: PausedCall,
        state: PauseState,
        error: CallDenied | None = None,
    ) -> PausedCall:
        """End the pause and its call, which does not run: their rows, the audit record and the events.

        Without an error the call is done: the answers are its result.
        """
        if await self._store.lost_session(connection, pause):
            # Its events have no session to go to.
            pause = replace(pause, session_id=None)
        request = await self._request(connection, pause)
        await self._store.end(connection, tenant, pause, state)
        decided = pause.resolution if state in (PauseState.REJECTED, PauseState.ANSWERED) else None
        pause = replace(pause, state=state, resolution=decided)
        if error is None:
            assert decided is not None
            outcome = Outcome(pause.call_id, OutcomeState.DONE, result=decided.answers)
        else:
            result = request.encode_error(error)
            outcome = Outcome(pause.call_id, OutcomeState.DENIED, result=result, error=error)
        reason = decided.rejection_reason if decided else error.message if error else None
        await self._append_ended_event(connection, tenant, pause, reason)
        await save_tool_call(connection, tenant, ended_record(request, outcome, process=self._process))
        decided_by = decided.decided_by if decided else None
        await AuditStore.append_within(
            connection, audit_record(request, outcome.state, error=error, decided_by=decided_by)
        )
        return pause

    async def _request(self, connection: Connection, pause: PausedCall) -> CallRequest:
        """Return the paused call as its records need it. It did not run by the pause, so they do not name it."""
        if pause.kind is PauseKind.APPROVAL:
            arguments = parse_canonical_json(await self._store.arguments(connection, pause))
            rule, reason = pause.approval.rule, pause.approval.reason
            authorization = Authorization(AuthorizationAction.ASK, rule, reason, WorkspaceRole.MEMBER, None, ())
        else:
            arguments = {"questions": question_items(pause.questions)}
            reason = "Asking a person needs no approval."
            authorization = Authorization(
                AuthorizationAction.ALLOW, "people.asked", reason, WorkspaceRole.VIEWER, None, ()
            )
        caller = Caller(
            workspace_id=pause.workspace_id,
            user_id=pause.user_id,
            agent=Agent(pause.agent_id, pause.agent_name or "", AgentRules()) if pause.agent_id else None,
            session_id=pause.session_id,
            run_id=pause.run_id,
            call_id=pause.call_id,
            via=pause.via,
        )
        tool = self._registry.get(pause.tool)
        return CallRequest(ToolCall(pause.tool, arguments), caller, tool, authorization=authorization)

    async def _append_ended_event(
        self, connection: Connection, tenant: Tenant, pause: PausedCall, reason: str | None
    ) -> None:
        if pause.session_id is not None:
            event = pause_ended_event(pause, reason=reason)
            await EventStore.append_within(connection, tenant, Event(pause.session_id, event["type"], event["payload"]))

    def _notify_ended(self, pause: PausedCall) -> None:
        self._on_ended(pause)
        self._notify(pause)

    def _notify(self, pause: PausedCall) -> None:
        if pause.session_id is not None:
            self._live.notify(pause.workspace_id, pause.session_id)


def paused_outcome(pause: PausedCall) -> Outcome:
    """Return what the caller of a paused call receives."""
    if pause.kind is PauseKind.QUESTION:
        items = {
            "status": "question_pending",
            "question_id": str(pause.id),
            "questions": question_items(pause.questions),
        }
        metadata = {"status": "question_pending", "pause_id": pause.id}
        return Outcome(pause.call_id, OutcomeState.PAUSED, result=items, metadata=metadata)
    return Outcome(
        pause.call_id,
        OutcomeState.PAUSED,
        metadata={
            "status": "approval_pending",
            "pause_id": pause.id,
            "call_id": pause.call_id,
            "reason": pause.approval.reason,
            "expires_at": pause.expires_at,
        },
    )
