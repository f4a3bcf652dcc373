"""Records calls: rows, audit records and events; and publishes live output. Makes no decisions and runs no tools."""

import asyncio
from collections.abc import Callable
from typing import Any

from toolcrib.core.audit import AuditRecord
from toolcrib.core.callers import Caller
from toolcrib.core.change_sets import ChangeSet
from toolcrib.core.errors import CallDenied, Interrupted, NotFound, Overloaded, ToolcribError
from toolcrib.core.events import Delta, DeltaType
from toolcrib.core.tool_calls import Outcome, OutcomeState
from toolcrib.events.event_bus import EventPublisher
from toolcrib.gate.call_stages import CallRecording
from toolcrib.policy.authorization import Authorization
from toolcrib.policy.model_results import model_result
from toolcrib.storage.audit import AuditStore
from toolcrib.storage.database import Tenant
from toolcrib.storage.tool_calls import ToolCallStore
from toolcrib.storage.workspace_quota import WorkspaceQuota
from toolcrib.workspace.changes.commit import Committer

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

    async def append(self, record: AuditRecord) -> None:
        """Append a record; returns once it is committed."""
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((record, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        # Cancelling one caller must not cancel the write that others wait for.
        await asyncio.shield(written)

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


class CallRecorder:
    """Records how calls start and end."""

    def __init__(
        self,
        committer: Committer,
        room: WorkspaceQuota,
        audit_writer: AuditWriter,
        call_rows: ToolCallStore,
        live: EventPublisher,
    ) -> None:
        self._committer = committer
        self._room = room
        self._audit_writer = audit_writer
        self._call_rows = call_rows
        self._live = live

    async def start(self, entry: CallRecording) -> None:
        """Record that the call started, so that subscribers see it and a crash leaves a trace."""
        if entry.caller.session_id is not None:
            await self._call_rows.record(Tenant.of(entry.caller), entry.begun())
            self._wake(entry)

    async def commit(
        self, entry: CallRecording, result: Any, change_set: ChangeSet, decision: Authorization
    ) -> Outcome:
        """Commit the change set, the call's outcome and its audit record in one transaction."""
        tenant = Tenant.of(entry.caller)
        await self._room.require(tenant, change_set)
        entry.committing = True
        shown, metadata = self._truncate_for_model(entry, result)
        outcome = Outcome(
            entry.caller.call_id, OutcomeState.DONE, shown, change_set_id=change_set.id, metadata=metadata
        )
        await self._committer.commit(
            tenant,
            change_set,
            needs=decision.required_role,
            call=entry.ended(outcome, result=result, change_set=change_set),
            audit=entry.audit_record("done", change_set=change_set),
        )
        self._room.took(tenant, change_set)
        self._wake(entry)
        return outcome

    async def answer(self, entry: CallRecording, result: Any) -> Outcome:
        """Record a call that changed nothing. It gets a row only if somebody can look it up later."""
        shown, metadata = self._truncate_for_model(entry, result)
        outcome = Outcome(entry.caller.call_id, OutcomeState.DONE, shown, metadata=metadata)
        if metadata or entry.is_row:
            record, audit = entry.ended(outcome, result=result), entry.audit_record("done")
            await self._call_rows.record(Tenant.of(entry.caller), record, audit)
            self._wake(entry)
        else:
            await self._audit_writer.append(entry.audit_record("done"))
        return outcome

    async def fail(self, entry: CallRecording, error: ToolcribError, *, state: OutcomeState | None = None) -> Outcome:
        """Record a call that was denied, or that failed in a way that the tool declares."""
        refused = isinstance(error, CallDenied)
        state = state or (OutcomeState.DENIED if refused else OutcomeState.DONE)
        # Overload keeps its own error in every dialect: the same call may succeed in a moment.
        in_dialect = entry.tool.encode_error if entry.tool and not isinstance(error, Overloaded) else None
        dialect_error = in_dialect(error) if in_dialect else None
        outcome = Outcome(entry.caller.call_id, state, result=dialect_error, error=error)
        audit = entry.audit_record("denied" if refused else "failed", error=error)
        if not entry.is_row:
            await self._audit_writer.append(audit)
            return outcome
        try:
            await self._call_rows.record(Tenant.of(entry.caller), entry.ended(outcome), audit)
        except NotFound:
            # The session does not exist, so only the audit log can record the call.
            await self._audit_writer.append(audit)
        self._wake(entry)
        return outcome

    async def mark_unknown(self, entry: CallRecording) -> Outcome:
        """Record a call that had started when its node died, has external effects and may not be repeated."""
        error = Interrupted(
            "The server stopped while this ran; it is unknown whether it took effect. It was not repeated: "
            "check, then decide whether to call it again."
        )
        return await self.fail(entry, error, state=OutcomeState.UNKNOWN)

    async def cancelled(self, entry: CallRecording) -> Outcome:
        """Record a cancelled call. A tool that only drafts changed nothing; for others the effect is unknown."""
        if entry.may_be_repeated:
            return await self.fail(entry, Interrupted("The call was cancelled while it ran. Nothing was changed."))
        error = Interrupted(
            "The call was cancelled while it ran; it is unknown whether it took effect. Check before you repeat it."
        )
        return await self.fail(entry, error, state=OutcomeState.UNKNOWN)

    async def audit_only(self, record: AuditRecord) -> None:
        """Write only the audit record, for a caller who is not a member or whose run another process took over."""
        await self._audit_writer.append(record)

    def publish_output(self, caller: Caller) -> Callable[[str], None]:
        """Return the function that publishes the call's output to subscribers; a no-op without a session."""
        session_id = caller.session_id
        if session_id is None:
            return _unheard
        offset = 0

        def show(text: str) -> None:
            nonlocal offset
            self._live.publish_delta(
                Delta(caller.workspace_id, session_id, DeltaType.TOOL, str(caller.call_id), text, offset=offset)
            )
            offset += len(text)

        return show

    def _truncate_for_model(self, entry: CallRecording, result: Any) -> tuple[Any, dict[str, Any]]:
        """Return what the caller receives. Results for models are bounded; the call's row keeps the full result."""
        if not entry.caller.is_agent:
            return result, {}
        shown = model_result(result, entry.caller.call_id)
        return shown.value, {"truncated": dict(shown.truncation)} if shown.truncation else {}

    def _wake(self, entry: CallRecording) -> None:
        if entry.caller.session_id is not None:
            self._live.notify(entry.caller.workspace_id, entry.caller.session_id)


def _unheard(_: str) -> None:
    """Discard output: the call has no session."""
