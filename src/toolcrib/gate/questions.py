"""Questions: stores a call that asks a person as a row, validates the answer, and ends the call with it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Agent, Caller, WorkspaceRole
from toolcrib.core.errors import BadArguments, Conflict, Forbidden, NotDecided, ToolcribError
from toolcrib.core.ids import CallId, QuestionId, SessionId, new_id
from toolcrib.core.json_text import json_text
from toolcrib.core.questions import Question, QuestionRequest, QuestionState
from toolcrib.core.tool_calls import Outcome, OutcomeState, ToolCall
from toolcrib.events.event_bus import EventPublisher
from toolcrib.events.event_payloads import question_ended_event, question_event, question_items
from toolcrib.gate.call_stages import CallRecording
from toolcrib.policy.authorization import Authorization, AuthorizationAction
from toolcrib.policy.json_schema import size_error
from toolcrib.storage import questions as storage
from toolcrib.storage.audit import audit_row
from toolcrib.storage.database import Connection, Tenant
from toolcrib.storage.questions import PendingQuestion
from toolcrib.storage.tool_calls import save_tool_call
from toolcrib.workspace.text.worker_calls import answer_flaw

log = structlog.get_logger(__name__)


class Questions:
    """Asks questions and records answers."""

    def __init__(
        self,
        rows: storage.QuestionStore,
        live: EventPublisher,
        *,
        process: str,
        patience: timedelta,
        decided: Callable[[], None],
    ) -> None:
        self._rows = rows
        self._live = live
        self._process = process
        self._patience = patience
        self._decided = decided

    async def ask(self, entry: CallRecording, items: tuple[Question, ...]) -> Outcome:
        """Pause the call: write its row, the question and the event in one transaction."""
        tenant, question_id = Tenant.of(entry.caller), QuestionId(new_id())
        async with self._rows.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            await self._rows.add(connection, tenant, question_id, items, entry.caller, patience=self._patience)
            question = (await self._rows.found(connection, tenant, question_id)).question
            await save_tool_call(connection, tenant, entry.waiting(question_event(question)))
        self._wake(question)
        return Outcome(
            entry.caller.call_id,
            OutcomeState.PAUSED,
            result={
                "status": "question_pending",
                "question_id": str(question_id),
                "questions": question_items(question),
            },
            metadata={"question_id": question_id},
        )

    async def answer(
        self,
        tenant: Tenant,
        question_id: QuestionId,
        answers: Mapping[str, Any],
        *,
        by_button: Collection[str] = (),
        via: str,
    ) -> QuestionRequest:
        """Record a person's answer. The first answer counts.

        Raises:
            BadArguments: An answer does not match its item; the error names the item.
            Conflict: The question was answered, withdrawn or expired.
        """
        if tenant.agent_id is not None or tenant.user_id is None:
            raise Forbidden("Only a person can answer a question. An agent's API key cannot.")
        async with self._rows.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            asked = await self._rows.locked(connection, tenant, question_id)
            _reject_unless_open(asked)
        # Outside a transaction: validation may take seconds, and the question itself never changes.
        await _check(asked.question, answers, by_button)
        async with self._rows.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            asked = await self._rows.locked(connection, tenant, question_id)
            _reject_unless_open(asked)
            pressed = tuple(dict.fromkeys(by_button))
            await self._end(
                connection, tenant, asked, QuestionState.ANSWERED, answers=answers, by_button=pressed, via=via
            )
        self._wake(asked.question)
        return await self._rows.get(tenant, question_id)

    async def cancel_for_run(self, tenant: Tenant, call_id: CallId) -> None:
        """Withdraw the question of a run that has ended. Does nothing if the call asked none."""
        denial = NotDecided("The run ended before the question was answered.")
        async with self._rows.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            asked = await self._rows.of_call(connection, tenant, call_id)
            if asked is None or asked.question.state is not QuestionState.OPEN:
                return
            await self._end(connection, tenant, asked, QuestionState.WITHDRAWN, denial=denial)
        self._wake(asked.question)

    async def expire(self, *, limit: int) -> int:
        """Expire overdue questions and return how many. A question that fails to expire does not block the others."""
        ended = 0
        for workspace_id, question_id in await self._rows.expired(limit=limit):
            try:
                ended += await self._expire(Tenant(workspace_id), question_id)
            except ToolcribError as error:
                log.warning("questions.expire_failed", question_id=str(question_id), error=error.message)
        return ended

    async def _expire(self, tenant: Tenant, question_id: QuestionId) -> bool:
        async with self._rows.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            asked = await self._rows.locked(connection, tenant, question_id)
            if asked.question.state is not QuestionState.OPEN or asked.question.expires_at > datetime.now(UTC):
                return False
            denial = NotDecided("The question expired without an answer. Continue without it, or ask again.")
            await self._end(connection, tenant, asked, QuestionState.EXPIRED, denial=denial)
        self._wake(asked.question)
        return True

    async def get(self, tenant: Tenant, question_id: QuestionId) -> QuestionRequest:
        """Return one question request."""
        return await self._rows.get(tenant, question_id)

    async def open(self, tenant: Tenant, *, session_id: SessionId | None = None) -> list[QuestionRequest]:
        """Return the pending questions."""
        return await self._rows.page(tenant, session_id=session_id)

    async def page(
        self, tenant: Tenant, *, session_id: SessionId | None, only_open: bool, after: QuestionId | None, limit: int
    ) -> list[QuestionRequest]:
        """Return one page of questions."""
        return await self._rows.page(tenant, session_id=session_id, only_open=only_open, after=after, limit=limit)

    async def _end(
        self,
        connection: Connection,
        tenant: Tenant,
        asked: PendingQuestion,
        state: QuestionState,
        *,
        answers: Mapping[str, Any] | None = None,
        by_button: tuple[str, ...] = (),
        via: str | None = None,
        denial: ToolcribError | None = None,
    ) -> None:
        """End the question and its call together: rows, events and the audit record."""
        question = asked.question
        if question.session_id is not None and not await self._rows.has_session(connection, question):
            # The session was deleted while the question was pending: it gets no events.
            question = replace(question, session_id=None)
            asked = replace(asked, question=question)
        await self._rows.ended(connection, tenant, question.id, state, answers=answers, by_button=by_button, via=via)
        by = (await self._rows.found(connection, tenant, question.id)).answered_by_name
        if question.session_id is not None:
            event = question_ended_event(question, state, answers, by=by)
            await connection.execute(
                "select toolcrib.append_event(%s, %s, %s, %s)",
                (tenant.workspace_id, question.session_id, event["type"], json_text(event["payload"])),
            )
        entry = self._entry(asked)
        ended = OutcomeState.DONE if denial is None else OutcomeState.DENIED
        outcome = Outcome(question.call_id, ended, result=answers, error=denial)
        await save_tool_call(connection, tenant, entry.ended(outcome))
        audit = entry.audit_record("done" if denial is None else "denied", error=denial, decided_by=tenant.user_id)
        await connection.execute("select toolcrib.append_audit_records(%s)", (json_text([audit_row(audit)]),))

    def _entry(self, asked: PendingQuestion) -> CallRecording:
        question = asked.question
        agent = Agent(question.agent_id, asked.agent_name or "", AgentRules()) if question.agent_id else None
        caller = Caller(
            question.workspace_id,
            question.user_id,
            agent=agent,
            session_id=question.session_id,
            run_id=question.run_id,
            call_id=question.call_id,
            via=asked.via,
        )
        entry = CallRecording(ToolCall("ask_user", {"questions": question_items(question)}), caller, self._process)
        reason = "Asking a person needs no approval."
        entry.decision = Authorization(
            AuthorizationAction.ALLOW, "people.asked", reason, WorkspaceRole.VIEWER, None, ()
        )
        return entry

    def _wake(self, question: QuestionRequest) -> None:
        self._decided()
        if question.session_id is not None:
            self._live.notify(question.workspace_id, question.session_id)


def _reject_unless_open(asked: PendingQuestion) -> None:
    question = asked.question
    match question.state:
        case QuestionState.OPEN if question.expires_at > datetime.now(UTC):
            return
        case QuestionState.OPEN | QuestionState.EXPIRED:
            raise Conflict(f"This question expired at {question.expires_at.isoformat(timespec='seconds')}.")
        case QuestionState.ANSWERED:
            raise Conflict(f"Already answered by {asked.answered_by_name or 'someone'}.")
        case QuestionState.WITHDRAWN:
            raise Conflict("The call was cancelled, so this question is closed.")


async def _check(question: QuestionRequest, answers: Mapping[str, Any], by_button: Collection[str]) -> None:
    items = {item.name: item for item in question.items}
    if flaw := size_error(answers):
        raise BadArguments({"answers": flaw})
    flaws = {
        f"answers.{name[:100]}": f"There is no question with this name. Questions: {', '.join(items)}."
        for name in answers
        if name not in items
    }
    flaws |= {f"answers.{name}": "This answer is missing." for name in items if name not in answers}
    for name, item in items.items():
        # A button's value is always valid, even if the schema does not allow it.
        if name not in answers or not _no_button(item, answers[name]):
            continue
        if flaw := await answer_flaw(item.schema, answers[name]):
            flaws[f"answers.{name}"] = flaw
    for name in by_button:
        if flaw := _no_button(items.get(name), answers.get(name)):
            flaws[f"by_button.{name[:100]}"] = flaw
    if flaws:
        raise BadArguments(flaws)


def _no_button(item: Question | None, answer: Any) -> str | None:
    """Return why this answer cannot come from a button, or None if it can."""
    if item is None or not item.buttons:
        return "This question has no buttons."
    return None if any(button.value == answer for button in item.buttons) else "No button has this value."
