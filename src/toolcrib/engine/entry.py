"""What is written down of one call while it passes the gate: its row, its record in the book, its events."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from toolcrib.domain.book import AuditRecord, CallRecord, files_changed, without_content
from toolcrib.domain.callers import Caller
from toolcrib.domain.changes import ChangeSet
from toolcrib.domain.errors import ToolcribError, Violation
from toolcrib.domain.ids import UserId
from toolcrib.domain.outcomes import Outcome
from toolcrib.engine.telling import Told, tool_ended, tool_started
from toolcrib.policy.decisions import Decision
from toolcrib.storage.approvals import Allowed
from toolcrib.tools.call import ToolCall
from toolcrib.tools.context import Remarks
from toolcrib.tools.tool import Tool


@dataclass
class Entry:
    """One call, from when it is heard to when it has ended. ``allowed`` is the person's yes that carries it on."""

    call: ToolCall
    caller: Caller
    process: str
    allowed: Allowed | None = None
    tool: Tool | None = None
    decision: Decision | None = None
    remarks: Remarks | None = None
    # Whether doing it again is safe when nobody knows whether it was done.
    repeatable: bool = True
    # From here on the commit writes the record, and nobody else may.
    committing: bool = False

    def __post_init__(self) -> None:
        self._at = datetime.now(UTC)
        self._started = time.perf_counter_ns()

    @property
    def is_row(self) -> bool:
        """Whether the call is kept as a row however it ends: someone watches its session, or fetches it later."""
        return self.caller.session_id is not None or self.allowed is not None

    @property
    def may_be_repeated(self) -> bool:
        """Whether nothing is harmed if it was done and is done again: so it is with what only drafts."""
        return self.repeatable and (self.tool is None or self.tool.repeatable)

    @property
    def _isolation(self) -> str | None:
        """How well what ran was held; of what a person was asked about, how well it was then."""
        if self.remarks is not None and self.remarks.isolation is not None:
            return self.remarks.isolation
        return self.allowed.approval.isolation if self.allowed else None

    @property
    def _contacts(self) -> list[dict[str, Any]]:
        """Whom a program spoke to, or tried to, for the book."""
        contacted = self.remarks.contacted if self.remarks else ()
        return [{"contacted": host, "refused": refused} for host, refused in contacted]

    @property
    def _is_watched(self) -> bool:
        return self.caller.session_id is not None

    def audit_record(
        self,
        outcome: str,
        *,
        error: ToolcribError | None = None,
        rule: str | None = None,
        change_set: ChangeSet | None = None,
        approver_id: UserId | None = None,
    ) -> AuditRecord:
        decision = self.decision
        refused_by_gate = outcome == "refused" and (rule is not None or decision is None)
        return AuditRecord(
            caller=self.caller,
            tool=self.call.name,
            decision="refuse" if refused_by_gate else str(decision.verdict) if decision else "none",
            rule=rule or (decision.rule if decision else "arguments"),
            input=without_content(self.call.arguments),
            outcome=outcome,
            at=self._at,
            duration_us=self._duration_us,
            error_code=error.code if error else None,
            approver_id=self.allowed.approval.decided_by if self.allowed else approver_id,
            files=[*(files_changed(change_set) if change_set else ()), *self._contacts],
            isolation=self._isolation,
        )

    def begun(self) -> CallRecord:
        """The call as it starts to run."""
        return self._record("running", events=(tool_started(self.caller.call_id, self.call.name, self.call.arguments),))

    def waiting(self, *events: Told) -> CallRecord:
        """The call as it waits for a person."""
        return self._record("waiting", events=events)

    def ended(self, outcome: Outcome, *, result: Any = None, change_set: ChangeSet | None = None) -> CallRecord:
        """The call as it ended. ``result`` is the whole one, if its reader gets less."""
        error = outcome.error
        events: tuple[Told, ...] = ()
        if self._is_watched:
            events = (tool_ended(self.call.name, outcome, duration_us=self._duration_us, isolation=self._isolation),)
        return self._record(
            outcome.state,
            result=outcome.result if result is None else result,
            error=None if error is None else {"code": error.code, "message": error.message, "fields": error.fields},
            change_set=change_set,
            events=events,
            violation=isinstance(error, Violation),
        )

    @property
    def _duration_us(self) -> int:
        return (time.perf_counter_ns() - self._started) // 1000

    def _record(
        self,
        state: str,
        *,
        result: Any = None,
        error: dict[str, Any] | None = None,
        change_set: ChangeSet | None = None,
        events: tuple[Told, ...] = (),
        violation: bool = False,
    ) -> CallRecord:
        return CallRecord(
            caller=self.caller,
            tool=self.call.name,
            arguments=without_content(self.call.arguments),
            state=state,
            result=result,
            error=error,
            change_set_id=change_set.id if change_set else None,
            node=self.process,
            repeatable=self.may_be_repeated,
            approval_id=self.allowed.approval.id if self.allowed else None,
            events=events if self._is_watched else (),
            violation=violation,
        )
