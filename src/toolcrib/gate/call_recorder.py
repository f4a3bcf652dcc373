"""Writes down what becomes of calls: rows, the book, events; and shows output live. Decides and runs nothing."""

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
from toolcrib.policy.model_text import model_result
from toolcrib.storage.audit import AuditStore
from toolcrib.storage.database import Tenant
from toolcrib.storage.tool_calls import ToolCallStore
from toolcrib.storage.workspace_quota import WorkspaceQuota
from toolcrib.workspace.changes.commit import Committer

# The book's pen: records of concurrent calls share a commit. Nothing is answered before it is written down.

# What one statement takes.
_BATCH = 500


class AuditWriter:
    """Writes records in batches: while one batch is on its way, the next gathers. An idle server adds no delay."""

    def __init__(self, audit: AuditStore) -> None:
        self._audit = audit
        self._waiting: list[tuple[AuditRecord, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def append(self, record: AuditRecord) -> None:
        """Returns when the record is committed."""
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((record, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        # One caller's cancellation must not cancel what others wait for too.
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
        except Exception as error:  # noqa: BLE001 - each waiter gets it, and decides
            for _, written in batch:
                if not written.done():
                    written.set_exception(error)
            return
        for _, written in batch:
            if not written.done():
                written.set_result(None)


class CallRecorder:
    """One way in for every ending of a call."""

    def __init__(
        self,
        committer: Committer,
        room: WorkspaceQuota,
        book: AuditWriter,
        call_rows: ToolCallStore,
        live: EventPublisher,
    ) -> None:
        self._committer = committer
        self._room = room
        self._book = book
        self._call_rows = call_rows
        self._live = live

    async def start(self, entry: CallRecording) -> None:
        """Whoever watches the session hears that the call has started; a crash must leave a trace."""
        if entry.caller.session_id is not None:
            await self._call_rows.record(Tenant.of(entry.caller), entry.begun())
            self._wake(entry)

    async def commit(
        self, entry: CallRecording, result: Any, change_set: ChangeSet, decision: Authorization
    ) -> Outcome:
        """The change, the call's outcome and its record in the book: one transaction."""
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
        """A call that changed nothing. It is a row only if someone will look at it again."""
        shown, metadata = self._truncate_for_model(entry, result)
        outcome = Outcome(entry.caller.call_id, OutcomeState.DONE, shown, metadata=metadata)
        if metadata or entry.is_row:
            record, audit = entry.ended(outcome, result=result), entry.audit_record("done")
            await self._call_rows.record(Tenant.of(entry.caller), record, audit)
            self._wake(entry)
        else:
            await self._book.append(entry.audit_record("done"))
        return outcome

    async def fail(self, entry: CallRecording, error: ToolcribError, *, state: OutcomeState | None = None) -> Outcome:
        """A call that was refused, or failed as tools may."""
        refused = isinstance(error, CallDenied)
        state = state or (OutcomeState.REFUSED if refused else OutcomeState.DONE)
        # That there is no room is told as such in every dialect: the same call may succeed in a moment.
        in_dialect = entry.tool.encode_error if entry.tool and not isinstance(error, Overloaded) else None
        told = in_dialect(error) if in_dialect else None
        outcome = Outcome(entry.caller.call_id, state, result=told, error=error)
        audit = entry.audit_record("refused" if refused else "failed", error=error)
        if not entry.is_row:
            await self._book.append(audit)
            return outcome
        try:
            await self._call_rows.record(Tenant.of(entry.caller), entry.ended(outcome), audit)
        except NotFound:
            # There is no such session to tell it to.
            await self._book.append(audit)
        self._wake(entry)
        return outcome

    async def mark_unknown(self, entry: CallRecording) -> Outcome:
        """It had begun when its node died, it has effects elsewhere, and doing it twice may harm."""
        error = Interrupted(
            "The server stopped while this ran, and nobody can tell whether it took effect. It was not repeated: "
            "find out, then decide whether to call it again."
        )
        return await self.fail(entry, error, state=OutcomeState.UNKNOWN)

    async def cancelled(self, entry: CallRecording) -> Outcome:
        """Whoever called wants it no more. What only drafts has changed nothing; of the rest nobody can tell."""
        if entry.may_be_repeated:
            return await self.fail(entry, Interrupted("The call was cancelled while it ran. Nothing was changed."))
        error = Interrupted(
            "The call was cancelled while it ran, and nobody can tell whether it took effect. Find out."
        )
        return await self.fail(entry, error, state=OutcomeState.UNKNOWN)

    async def audit_only(self, record: AuditRecord) -> None:
        """The book alone: whoever does not belong, or came too late, leaves nothing else."""
        await self._book.append(record)

    def publish_output(self, caller: Caller) -> Callable[[str], None]:
        """Output goes to whoever watches the session while the call runs; without a session nobody does."""
        session_id = caller.session_id
        if session_id is None:
            return _unheard
        said = 0

        def show(text: str) -> None:
            nonlocal said
            self._live.publish_delta(
                Delta(caller.workspace_id, session_id, DeltaType.TOOL, str(caller.call_id), text, offset=said)
            )
            said += len(text)

        return show

    def _truncate_for_model(self, entry: CallRecording, result: Any) -> tuple[Any, dict[str, Any]]:
        """What the caller gets. A model's result is bounded; what was cut is kept with the call, for fetching."""
        if not entry.caller.is_agent:
            return result, {}
        shown = model_result(result, entry.caller.call_id)
        return shown.value, dict(shown.cut)

    def _wake(self, entry: CallRecording) -> None:
        if entry.caller.session_id is not None:
            self._live.notify(entry.caller.workspace_id, entry.caller.session_id)


def _unheard(_: str) -> None:
    """Nobody watches this call."""
