"""Records calls: rows, audit records and events; and publishes live output. Makes no decisions and runs no tools."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import structlog

from toolcrib.core.audit import AUDITED_BYTES, AuditRecord, CallRecord, audit_files, redact_content
from toolcrib.core.callers import Caller
from toolcrib.core.change_sets import ChangeSet
from toolcrib.core.errors import (
    CallDenied,
    Forbidden,
    HomeMoved,
    Interrupted,
    NotFound,
    Overloaded,
    ProtectedPath,
    Quarantined,
    SandboxViolation,
    Superseded,
    ToolcribError,
    ToolFailed,
)
from toolcrib.core.events import Delta, DeltaType
from toolcrib.core.ids import UserId
from toolcrib.core.json_text import json_text
from toolcrib.core.tool_calls import Outcome, OutcomeState
from toolcrib.events.event_bus import EventPublisher
from toolcrib.events.event_payloads import EventPayload, tool_result_event, tool_start_event
from toolcrib.gate.call_stages import AuthorizedCall, CallRequest, ToolRun
from toolcrib.gate.server_failures import NOTHING_CHANGED, UNKNOWN_EFFECT, server_failure
from toolcrib.policy.authorization import MEMBERSHIP
from toolcrib.policy.model_results import model_result
from toolcrib.policy.truncation import truncate
from toolcrib.storage.audit import AuditStore
from toolcrib.storage.database import OperationalError, Tenant
from toolcrib.storage.quotas import WorkspaceQuota
from toolcrib.storage.tool_calls import ToolCallStore
from toolcrib.tools.context import ContactedHost, ToolReport
from toolcrib.workspace.changes.commit import Committer

_log = structlog.get_logger(__name__)

# Records per statement.
_BATCH = 500


class AuditWriter:
    """Writes audit records in batches, so that concurrent calls share a commit.

    While one batch is being written, the next one fills. An idle server adds no delay. No call is answered before its
    record is committed.
    """

    def __init__(self, audit: AuditStore) -> None:
        self._audit = audit
        self._waiting: list[tuple[AuditRecord, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    def append(self, record: AuditRecord) -> asyncio.Future[None]:
        """Append a record; the future is done once it is committed. Cancelling it does not cancel the write."""
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((record, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        return written

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
                await self._write_batch(batch)
        finally:
            self._writing = None

    async def _write_batch(self, batch: list[tuple[AuditRecord, asyncio.Future[None]]]) -> None:
        try:
            await self._audit.append([record for record, _ in batch])
        except Exception as error:  # noqa: BLE001 - every waiter receives the error
            for _, written in batch:
                if not written.done():
                    written.set_exception(error)
            return
        for _, written in batch:
            if not written.done():
                written.set_result(None)


@dataclass(frozen=True, slots=True)
class UnconfirmedOutcome:
    """An outcome whose audit record is being written. Nobody may get it before ``written`` is done."""

    outcome: Outcome
    written: asyncio.Future[None]


class CommitInterrupted(Exception):
    """A commit had begun when ``error`` ended it. The commit wrote the call's record; no other code may write it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class CallRecorder:
    """Records how calls start and end."""

    def __init__(
        self,
        committer: Committer,
        quota: WorkspaceQuota,
        audit_writer: AuditWriter,
        calls: ToolCallStore,
        events: EventPublisher,
        *,
        process: str | None,
    ) -> None:
        self._committer = committer
        self._quota = quota
        self._audit_writer = audit_writer
        self._calls = calls
        self._events = events
        self._process = process

    async def start(self, request: AuthorizedCall) -> None:
        """Record that a session's call started, so that subscribers see it and a crash leaves a trace."""
        caller, call = request.caller, request.call
        event = tool_start_event(caller.call_id, call.name, call.arguments)
        record = call_record(request, "running", process=self._process, events=(event,))
        await self._calls.record(Tenant.of(caller), record, needs=request.authorization.required_role)
        self._notify(caller)

    async def commit(self, request: AuthorizedCall, run: ToolRun) -> Outcome:
        """Commit the change set, the call's outcome and its audit record in one transaction.

        Raises:
            BaseChanged: A concurrent change was committed first.
            CommitInterrupted: The commit was cancelled or failed unexpectedly.
        """
        tenant, change_set = Tenant.of(request.caller), run.change_set
        assert change_set is not None
        await self._quota.require(tenant, change_set)
        outcome = replace(self._outcome(request.caller, run.result), change_set_id=change_set.id)
        record = ended_record(
            request, outcome, process=self._process, report=run.report, result=run.result, change_set=change_set
        )
        audit = audit_record(request, "done", report=run.report, change_set=change_set, redacted=record.arguments)
        try:
            role, progress = request.authorization.required_role, run.report.progress
            await self._committer.commit(tenant, change_set, needs=role, call=record, audit=audit, progress=progress)
        except (ToolFailed, CallDenied, Forbidden, Superseded):
            raise
        except BaseException as error:
            raise CommitInterrupted(error) from error
        self._quota.took(tenant, change_set)
        self._notify(request.caller)
        return outcome

    async def answer(self, request: AuthorizedCall, run: ToolRun) -> Outcome | UnconfirmedOutcome:
        """Record a call that changed nothing. It gets a row only if somebody can look it up later."""
        outcome = self._outcome(request.caller, run.result)
        audit = audit_record(request, "done", report=run.report)
        if outcome.metadata or run.report.decides or _has_row(request):
            record = ended_record(request, outcome, process=self._process, report=run.report, result=run.result)
            await self._calls.record(Tenant.of(request.caller), record, audit)
            self._notify(request.caller)
            return outcome
        return UnconfirmedOutcome(outcome, self._audit_writer.append(audit))

    async def fail_or_raise(
        self, request: CallRequest, error: BaseException, report: ToolReport | None = None
    ) -> Outcome:
        """Record how a call failed. An error that the caller can do something about becomes an outcome."""
        match error:
            case Overloaded() if request.caller.run_epoch is not None or request.approved is not None:
                # Nothing was begun, and nobody has to repeat it: the run or the worker does, in a moment.
                pass
            case ToolFailed() | CallDenied():
                return await self.fail(request, error, report=report)
            case Forbidden():
                await self._audit_writer.append(audit_record(request, "denied", error=error, rule=MEMBERSHIP))
            case HomeMoved(has_begun=True) if not request.is_repeatable and request.caller.run_epoch is None:
                return await self.mark_unknown(request)
            case Superseded():
                await self._audit_writer.append(audit_record(request, "failed", error=error, report=report))
            case asyncio.CancelledError():
                # An approved call survives the server that was about to execute it: the next server does. A run ends
                # its own calls: only the run knows whether a person stopped it or only its process stopped.
                if request.approved is None and request.caller.run_epoch is None:
                    await asyncio.shield(self._fail_cancelled(request, report))
            case OperationalError():
                # The database is away, so it is unknown what happened, and nothing can be recorded.
                pass
            case OSError() if (failure := server_failure(error, _known(request))) is not None:
                call_id = str(request.caller.call_id)
                _log.error("call.server_failed", tool=request.call.name, call_id=call_id, exc_info=error)
                state = None if request.is_repeatable else OutcomeState.UNKNOWN
                return await self.fail(request, failure, report=report, state=state)
            case Exception():
                with suppress(Exception):
                    fault = ToolcribError("Internal server error. The server log has the details.")
                    await self.fail(request, fault, report=report)
        raise error

    async def fail(
        self,
        request: CallRequest,
        error: ToolcribError,
        *,
        report: ToolReport | None = None,
        state: OutcomeState | None = None,
    ) -> Outcome:
        """Record a call that was denied, or that failed in a way that the tool declares."""
        denied = isinstance(error, CallDenied)
        outcome = Outcome(
            request.caller.call_id,
            state or (OutcomeState.DENIED if denied else OutcomeState.DONE),
            # These keep their own error in every dialect: the same call may succeed later.
            result=None if isinstance(error, Overloaded | Quarantined) else request.encode_error(error),
            error=error,
        )
        audit = audit_record(request, "denied" if denied else "failed", error=error, report=report)
        if not _has_row(request):
            await self._audit_writer.append(audit)
            return outcome
        record = ended_record(request, outcome, process=self._process, report=report)
        try:
            await self._calls.record(Tenant.of(request.caller), record, audit)
        except NotFound:
            # The session does not exist, so only the audit log can record the call.
            await self._audit_writer.append(audit)
        self._notify(request.caller)
        return outcome

    async def mark_unknown(self, request: CallRequest) -> Outcome:
        """Record a call that had started when its node or the database failed, and that may not be repeated."""
        error = Interrupted(
            "The server or its database stopped while this ran; it is unknown whether it took effect. "
            "It was not repeated: check, then decide whether to call it again."
        )
        return await self.fail(request, error, state=OutcomeState.UNKNOWN)

    async def _fail_cancelled(self, request: CallRequest, report: ToolReport | None) -> None:
        """Record a cancelled call. A tool that only drafts changed nothing; for others the effect is unknown."""
        if request.is_repeatable:
            error = Interrupted("The call was cancelled while it ran. Nothing was changed.")
            await self.fail(request, error, report=report)
        else:
            error = Interrupted(
                "The call was cancelled while it ran; it is unknown whether it took effect. Check before you repeat it."
            )
            await self.fail(request, error, report=report, state=OutcomeState.UNKNOWN)

    def publish_output(self, caller: Caller) -> Callable[[str], None]:
        """Return the function that publishes the output of a session's call to its subscribers."""
        session_id, offset = caller.session_id, 0
        assert session_id is not None

        def publish(text: str) -> None:
            nonlocal offset
            self._events.publish_delta(
                Delta(caller.workspace_id, session_id, DeltaType.TOOL, str(caller.call_id), text, offset=offset)
            )
            offset += len(text)

        return publish

    def _outcome(self, caller: Caller, result: Any) -> Outcome:
        """Return what the caller receives. Results for models are bounded; the call's row keeps the full result."""
        if caller.agent is None:
            return Outcome(caller.call_id, OutcomeState.DONE, result)
        bounded = model_result(result, caller.call_id)
        metadata = {"truncated": dict(bounded.truncation)} if bounded.truncation else {}
        return Outcome(caller.call_id, OutcomeState.DONE, bounded.value, metadata=metadata)

    def _notify(self, caller: Caller) -> None:
        if caller.session_id is not None:
            self._events.notify(caller.workspace_id, caller.session_id)


def audit_record(
    request: CallRequest,
    outcome: str,
    *,
    error: ToolcribError | None = None,
    report: ToolReport | None = None,
    rule: str | None = None,
    change_set: ChangeSet | None = None,
    decided_by: UserId | None = None,
    redacted: Mapping[str, Any] | None = None,
) -> AuditRecord:
    """Return the audit record of a call, as far as it came.

    Args:
        rule: The gate's rule that denied the call, if it is not the one of the authorization.
        decided_by: The person who decided, if the call did not run with an approval.
        redacted: The arguments without contents, if the call's row has them already.
    """
    authorization = request.authorization
    denied_by_gate = outcome == "denied" and (rule is not None or authorization is None)
    return AuditRecord(
        caller=request.caller,
        tool=request.call.name,
        decision="deny" if denied_by_gate else str(authorization.action) if authorization else "none",
        rule=rule or (authorization.rule if authorization else "arguments"),
        arguments=_bounded(redact_content(request.call.arguments) if redacted is None else redacted),
        outcome=outcome,
        created_at=request.received_at,
        duration_us=_duration_us(request),
        error_code=error.code if error else None,
        decided_by=request.approved.approved_by if request.approved else decided_by,
        files=audit_files(change_set, request.approved.edits if request.approved else ()) if change_set else (),
        hosts=[_audit_host(one) for one in report.contacted] if report else (),
        isolation=_isolation(request, report),
    )


def _audit_host(contact: ContactedHost) -> dict[str, Any]:
    host = {"host": contact.host, "denied_reason": contact.denied_reason}
    return host if contact.made is None else {**host, "made": contact.made}


def call_record(
    request: CallRequest,
    state: str,
    *,
    process: str | None,
    result: Any = None,
    error: ToolcribError | None = None,
    change_set: ChangeSet | None = None,
    events: tuple[EventPayload, ...] = (),
) -> CallRecord:
    """Return the row of a call, as far as it came. Its events are published if it has a session."""
    return CallRecord(
        caller=request.caller,
        tool=request.call.name,
        arguments=redact_content(request.call.arguments),
        state=state,
        result=result,
        error=None if error is None else _error_to_row(error),
        change_set_id=change_set.id if change_set else None,
        process_id=process,
        idempotent=request.is_repeatable,
        pause_id=request.approved.pause.id if request.approved else None,
        events=events if request.caller.session_id is not None else (),
        is_violation=isinstance(error, SandboxViolation),
    )


def ended_record(
    request: CallRequest,
    outcome: Outcome,
    *,
    process: str | None,
    report: ToolReport | None = None,
    result: Any = None,
    change_set: ChangeSet | None = None,
) -> CallRecord:
    """Return the row of a call as it ended. ``result`` is the full result if the caller gets a shortened one."""
    events: tuple[EventPayload, ...] = ()
    if request.caller.session_id is not None:
        duration_us, isolation = _duration_us(request), _isolation(request, report)
        events = (tool_result_event(request.call.name, outcome, duration_us=duration_us, isolation=isolation),)
    return call_record(
        request,
        outcome.state,
        process=process,
        result=outcome.result if result is None else result,
        error=outcome.error,
        change_set=change_set,
        events=events,
    )


def _isolation(request: CallRequest, report: ToolReport | None) -> str | None:
    """Return the isolation of the sandbox that ran the command; for an approved effect, that of the previewed run."""
    if report is not None and report.isolation is not None:
        return report.isolation
    return request.approved.approval.isolation if request.approved else None


def _error_to_row(error: ToolcribError) -> dict[str, Any]:
    """Serialize an error for the row. A protected path is marked, because a run's first few do not count against it."""
    row = {"code": error.code, "message": error.message, "fields": error.fields}
    return {**row, "protected": True} if isinstance(error, ProtectedPath) else row


def _known(request: CallRequest) -> str:
    """Say what is known about the effect of a call that failed before its changes were committed."""
    return NOTHING_CHANGED if request.is_repeatable else UNKNOWN_EFFECT


def _has_row(request: CallRequest) -> bool:
    """Whether the call always gets a row: it has a session with subscribers, or its caller fetches it later."""
    return request.caller.session_id is not None or request.approved is not None


def _duration_us(request: CallRequest) -> int:
    return (time.perf_counter_ns() - request.received_ns) // 1000


def _bounded(arguments: Any) -> Any:
    """Shorten arguments for the audit log: a long value loses its middle and says how much is missing."""
    if len(json_text(arguments).encode()) <= AUDITED_BYTES:
        return arguments
    return truncate(arguments, limit_bytes=AUDITED_BYTES).value
