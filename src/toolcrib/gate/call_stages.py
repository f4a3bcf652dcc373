"""What the gate records about one call at each stage: its row, its audit record, its events, and its preview."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from toolcrib.core.approvals import Approval
from toolcrib.core.audit import AuditRecord, CallRecord, audit_files, redact_content
from toolcrib.core.callers import Caller
from toolcrib.core.change_sets import ChangeSet
from toolcrib.core.errors import ProtectedPath, SandboxViolation, ToolcribError
from toolcrib.core.ids import UserId
from toolcrib.core.paths import WorkspacePath, shown
from toolcrib.core.tool_calls import Effects, Outcome, ToolCall
from toolcrib.events.event_payloads import EventPayload, tool_result_event, tool_start_event
from toolcrib.policy.authorization import PROTECTED_NAME, Authorization
from toolcrib.policy.truncation import truncate
from toolcrib.storage.approved_calls import ApprovedCall
from toolcrib.tools.context import ToolReport
from toolcrib.tools.tool import Tool
from toolcrib.workspace.changes.untracked_hashes import UntrackedHash


@dataclass
class CallRecording:
    """One call, from its arrival to its end. ``allowed`` is the approval with which it runs, if there was one."""

    call: ToolCall
    caller: Caller
    process: str
    allowed: ApprovedCall | None = None
    tool: Tool | None = None
    decision: Authorization | None = None
    remarks: ToolReport | None = None
    # Whether a retry is safe if it is unknown whether the call took effect.
    idempotent: bool = True
    # From here on the commit writes the audit record; no other code may write it.
    committing: bool = False

    def __post_init__(self) -> None:
        self._at = datetime.now(UTC)
        self._started = time.perf_counter_ns()

    @property
    def is_row(self) -> bool:
        """Whether the call always gets a row: it has a session with subscribers, or its caller fetches it later."""
        return self.caller.session_id is not None or self.allowed is not None

    @property
    def may_be_repeated(self) -> bool:
        """Whether executing the call twice does no harm. This holds for tools that only draft changes."""
        return self.idempotent and (self.tool is None or self.tool.idempotent)

    @property
    def _isolation(self) -> str | None:
        """The isolation of the sandbox that ran the command; for an approved effect, that of the previewed run."""
        if self.remarks is not None and self.remarks.isolation is not None:
            return self.remarks.isolation
        return self.allowed.approval.isolation if self.allowed else None

    @property
    def _hosts(self) -> list[dict[str, Any]]:
        """The hosts that a command contacted or tried to contact, for the audit record."""
        contacted = self.remarks.contacted if self.remarks else ()
        return [{"host": host, "denied_reason": reason} for host, reason in contacted]

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
        decided_by: UserId | None = None,
    ) -> AuditRecord:
        """Return the audit record of the call.

        Args:
            rule: The gate's rule that denied the call, if it is not the one of ``decision``.
            approver_id: The person who decided, if the call did not run with an approval.
        """
        decision = self.decision
        denied_by_gate = outcome == "denied" and (rule is not None or decision is None)
        return AuditRecord(
            caller=self.caller,
            tool=self.call.name,
            decision="deny" if denied_by_gate else str(decision.action) if decision else "none",
            rule=rule or (decision.rule if decision else "arguments"),
            arguments=redact_content(self.call.arguments),
            outcome=outcome,
            created_at=self._at,
            duration_us=self._duration_us,
            error_code=error.code if error else None,
            decided_by=self.allowed.approval.decided_by if self.allowed else decided_by,
            files=audit_files(change_set) if change_set else (),
            hosts=self._hosts,
            isolation=self._isolation,
        )

    def begun(self) -> CallRecord:
        """Return the row of the call as it starts to run."""
        return self._record(
            "running", events=(tool_start_event(self.caller.call_id, self.call.name, self.call.arguments),)
        )

    def waiting(self, *events: EventPayload) -> CallRecord:
        """Return the row of the call as it waits for a person."""
        return self._record("paused", events=events)

    def ended(self, outcome: Outcome, *, result: Any = None, change_set: ChangeSet | None = None) -> CallRecord:
        """Return the row of the call as it ended. ``result`` is the full result if the caller gets a shortened one."""
        error = outcome.error
        events: tuple[EventPayload, ...] = ()
        if self._is_watched:
            events = (
                tool_result_event(self.call.name, outcome, duration_us=self._duration_us, isolation=self._isolation),
            )
        return self._record(
            outcome.state,
            result=outcome.result if result is None else result,
            error=None if error is None else _kept(error),
            change_set=change_set,
            events=events,
            is_violation=isinstance(error, SandboxViolation),
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
        events: tuple[EventPayload, ...] = (),
        is_violation: bool = False,
    ) -> CallRecord:
        return CallRecord(
            caller=self.caller,
            tool=self.call.name,
            arguments=redact_content(self.call.arguments),
            state=state,
            result=result,
            error=error,
            change_set_id=change_set.id if change_set else None,
            process_id=self.process,
            idempotent=self.may_be_repeated,
            approval_id=self.allowed.approval.id if self.allowed else None,
            events=events if self._is_watched else (),
            is_violation=is_violation,
        )


def _kept(error: ToolcribError) -> dict[str, Any]:
    """Serialize an error for the row. A protected path is marked, because a run's first few do not count against it."""
    kept = {"code": error.code, "message": error.message, "fields": error.fields}
    return {**kept, "protected": True} if isinstance(error, ProtectedPath) else kept


_NAMED = 10
_OUTPUT_PREVIEW_BYTES = 10_000


@dataclass(frozen=True, slots=True)
class ToolRun:
    """What a call would change and return, computed before a person is asked. Nothing is written."""

    change_set: ChangeSet
    result: Any
    # Protected paths that agents may not write, and the isolation of the command that would write them.
    protected: tuple[WorkspacePath, ...] = ()
    isolation: str | None = None
    # Hashes of contents that the file history does not keep, so that they can be shown.
    unkept: UntrackedHash | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the call would change nothing."""
        return not self.change_set.changes


def paths_shown_to_person(change_set: ChangeSet, approval: Approval) -> frozenset[WorkspacePath]:
    """Return the protected paths of a proposed change set that the person was shown."""
    seen = frozenset(approval.effects.get("protected", ()))
    return frozenset(path for path in change_set.paths if shown(path) in seen)


def pause_reason(decision: Authorization, plan: ToolRun | None) -> tuple[str, str]:
    """Return the rule that requires a decision and the reason. Protected paths take precedence."""
    if plan is None or not plan.protected:
        return decision.rule, decision.reason
    names = [shown(path) for path in plan.protected]
    others = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return PROTECTED_NAME, (
        f"It would write {', '.join(names[:_NAMED])}{others}: protected paths, which contain secrets or run as code. "
        "Only a person can approve that."
    )


def effects_to_row(effects: Effects, plan: ToolRun | None) -> dict[str, Any]:
    """Serialize the effects for the approval row."""
    protected = {"protected": [shown(path) for path in plan.protected]} if plan and plan.protected else {}
    ran = {"output": _output_preview(plan.result)} if plan and effects.command is not None else {}
    # For a tool that drafts, only the preview knows the paths.
    writes = effects.writes or (plan.change_set.paths if plan and effects.command is None else ())
    return {
        "reads": [shown(path) for path in (*effects.reads, *effects.reads_batch)],
        "writes": [shown(path) for path in writes],
        "runs": effects.command,
        "contacts": list(effects.hosts),
        **protected,
        **ran,
    }


def _output_preview(result: Any) -> Any:
    """Return the output of a command whose effect needs approval, shortened."""
    output = result.get("output") if isinstance(result, Mapping) else result
    return truncate(output, limit_bytes=_OUTPUT_PREVIEW_BYTES).value
