"""Writes down what becomes of calls: rows, the book, events; and shows output live. Decides and runs nothing."""

from collections.abc import Callable
from typing import Any

from toolcrib.domain.book import AuditRecord
from toolcrib.domain.callers import Caller
from toolcrib.domain.changes import ChangeSet
from toolcrib.domain.errors import Interrupted, NotFound, Refused, ToolcribError
from toolcrib.domain.events import Delta, DeltaType
from toolcrib.domain.outcomes import Outcome, OutcomeState
from toolcrib.engine.book import Book
from toolcrib.engine.entry import Entry
from toolcrib.engine.watchers import Watchers
from toolcrib.policy.bounds import bound
from toolcrib.policy.decisions import Decision
from toolcrib.storage.calls import Calls
from toolcrib.storage.database import Tenant
from toolcrib.workspace.commit import Committer

MODEL_RESULT_BYTES = 60_000


class Recorder:
    """One way in for every ending of a call. ``model_result_bytes`` is how much of a result a model is given."""

    def __init__(
        self,
        committer: Committer,
        book: Book,
        call_rows: Calls,
        live: Watchers,
        *,
        model_result_bytes: int = MODEL_RESULT_BYTES,
    ) -> None:
        self._committer = committer
        self._book = book
        self._call_rows = call_rows
        self._live = live
        self._model_result_bytes = model_result_bytes

    async def begin(self, entry: Entry) -> None:
        """Whoever watches the session hears that the call has started; a crash must leave a trace."""
        if entry.caller.session_id is not None:
            await self._call_rows.record(Tenant.of(entry.caller), entry.begun())
            self._wake(entry)

    async def commit(self, entry: Entry, result: Any, change_set: ChangeSet, decision: Decision) -> Outcome:
        """The change, the call's outcome and its record in the book: one transaction."""
        entry.committing = True
        shown, metadata = self._shown(entry, result)
        outcome = Outcome(
            entry.caller.call_id, OutcomeState.DONE, shown, change_set_id=change_set.id, metadata=metadata
        )
        await self._committer.commit(
            Tenant.of(entry.caller),
            change_set,
            needs=decision.needs_role,
            call=entry.ended(outcome, result=result, change_set=change_set),
            audit=entry.audit_record("done", change_set=change_set),
        )
        self._wake(entry)
        return outcome

    async def answer(self, entry: Entry, result: Any) -> Outcome:
        """A call that changed nothing. It is a row only if someone will look at it again."""
        shown, metadata = self._shown(entry, result)
        outcome = Outcome(entry.caller.call_id, OutcomeState.DONE, shown, metadata=metadata)
        if metadata or entry.is_row:
            record, audit = entry.ended(outcome, result=result), entry.audit_record("done")
            await self._call_rows.record(Tenant.of(entry.caller), record, audit)
            self._wake(entry)
        else:
            await self._book.write(entry.audit_record("done"))
        return outcome

    async def end(self, entry: Entry, error: ToolcribError, *, state: OutcomeState | None = None) -> Outcome:
        """A call that was refused, or failed as tools may."""
        refused = isinstance(error, Refused)
        state = state or (OutcomeState.REFUSED if refused else OutcomeState.DONE)
        told = entry.tool.failure(error) if entry.tool and entry.tool.failure else None
        outcome = Outcome(entry.caller.call_id, state, result=told, error=error)
        audit = entry.audit_record("refused" if refused else "failed", error=error)
        if not entry.is_row:
            await self._book.write(audit)
            return outcome
        try:
            await self._call_rows.record(Tenant.of(entry.caller), entry.ended(outcome), audit)
        except NotFound:
            # There is no such session to tell it to.
            await self._book.write(audit)
        self._wake(entry)
        return outcome

    async def give_up(self, entry: Entry) -> Outcome:
        """It had begun when its node died, it has effects elsewhere, and doing it twice may harm."""
        error = Interrupted(
            "The server stopped while this ran, and nobody can tell whether it took effect. It was not repeated: "
            "find out, then decide whether to call it again."
        )
        return await self.end(entry, error, state=OutcomeState.UNKNOWN)

    async def cancelled(self, entry: Entry) -> Outcome:
        """Whoever called wants it no more. What only drafts has changed nothing; of the rest nobody can tell."""
        if entry.may_be_repeated:
            return await self.end(entry, Interrupted("The call was cancelled while it ran. Nothing was changed."))
        error = Interrupted(
            "The call was cancelled while it ran, and nobody can tell whether it took effect. Find out."
        )
        return await self.end(entry, error, state=OutcomeState.UNKNOWN)

    async def write_down(self, record: AuditRecord) -> None:
        """The book alone: whoever does not belong, or came too late, leaves nothing else."""
        await self._book.write(record)

    def shown_live(self, caller: Caller) -> Callable[[str], None]:
        """Output goes to whoever watches the session while the call runs; without a session nobody does."""
        session_id = caller.session_id
        if session_id is None:
            return _unheard
        said = 0

        def show(text: str) -> None:
            nonlocal said
            self._live.delta(
                Delta(caller.workspace_id, session_id, DeltaType.TOOL, str(caller.call_id), text, offset=said)
            )
            said += len(text)

        return show

    def _shown(self, entry: Entry, result: Any) -> tuple[Any, dict[str, Any]]:
        """What the caller gets. A model's result is bounded; what was cut is kept with the call, for fetching."""
        if not entry.caller.is_agent:
            return result, {}
        bounded = bound(result, limit_bytes=self._model_result_bytes)
        if not bounded.cut:
            return result, {}
        return bounded.value, {"cut": True, "bytes": bounded.original_bytes, "call_id": str(entry.caller.call_id)}

    def _wake(self, entry: Entry) -> None:
        if entry.caller.session_id is not None:
            self._live.wake(entry.caller.workspace_id, entry.caller.session_id)


def _unheard(_: str) -> None:
    """Nobody watches this call."""
