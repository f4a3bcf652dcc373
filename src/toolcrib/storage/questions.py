"""Questions as rows: asked once, answered once."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from psycopg.rows import dict_row

from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.errors import NotFound
from toolcrib.core.ids import CallId, QuestionId, SessionId, WorkspaceId
from toolcrib.core.json_text import json_text
from toolcrib.core.questions import AnswerButton, Question, QuestionRequest, QuestionState
from toolcrib.storage.database import Connection, Database, Tenant


@dataclass(frozen=True, slots=True)
class PendingQuestion:
    """A question, and where its call came from."""

    question: QuestionRequest
    via: str
    agent_name: str | None
    answered_by_name: str | None


class QuestionStore:
    """Queries on questions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def transaction(self, tenant: Tenant, needs: WorkspaceRole) -> AsyncIterator[Connection]:
        """Open a transaction in the workspace."""
        async with self._database.transaction(tenant, needs) as connection:
            yield connection

    async def add(
        self,
        connection: Connection,
        tenant: Tenant,
        question_id: QuestionId,
        items: tuple[Question, ...],
        caller: Caller,
        *,
        patience: timedelta,
    ) -> None:
        """Insert a pending question."""
        await connection.execute(
            """
            insert into toolcrib.questions
                (workspace_id, id, call_id, session_id, run_id, user_id, agent_id, via, items, expires_at)
            values (%s, %s, %s, %s, %s, %s, %s, %s, %s, now() + %s)
            """,
            (
                tenant.workspace_id,
                question_id,
                caller.call_id,
                caller.session_id,
                caller.run_id,
                caller.user_id,
                caller.agent_id,
                caller.via,
                json_text(items),
                patience,
            ),
        )

    async def get(self, tenant: Tenant, question_id: QuestionId) -> QuestionRequest:
        """Return one question."""
        async with self._database.transaction(tenant) as connection:
            return (await self.found(connection, tenant, question_id)).question

    async def found(self, connection: Connection, tenant: Tenant, question_id: QuestionId) -> PendingQuestion:
        """Return one question, within a transaction."""
        cursor = connection.cursor(row_factory=dict_row)
        await cursor.execute(_SELECT + "where q.workspace_id = %s and q.id = %s", (tenant.workspace_id, question_id))
        row = await cursor.fetchone()
        if row is None or tenant.agent_id not in (None, row["agent_id"]):
            raise NotFound(f"Question {question_id} not found in this workspace.")
        return _asked(row)

    async def locked(self, connection: Connection, tenant: Tenant, question_id: QuestionId) -> PendingQuestion:
        """Lock the question, so that no other transaction can answer it."""
        await connection.execute(
            "select from toolcrib.questions where workspace_id = %s and id = %s for update",
            (tenant.workspace_id, question_id),
        )
        return await self.found(connection, tenant, question_id)

    async def of_call(self, connection: Connection, tenant: Tenant, call_id: CallId) -> PendingQuestion | None:
        """Lock the question of a call; None if it asked none."""
        cursor = await connection.execute(
            "select id from toolcrib.questions where workspace_id = %s and call_id = %s for update",
            (tenant.workspace_id, call_id),
        )
        row = await cursor.fetchone()
        return None if row is None else await self.found(connection, tenant, QuestionId(row[0]))

    async def page(
        self,
        tenant: Tenant,
        *,
        session_id: SessionId | None = None,
        only_open: bool = True,
        after: QuestionId | None = None,
        limit: int = 100,
    ) -> list[QuestionRequest]:
        """Return a page, oldest first; an agent sees its own only."""
        async with self._database.transaction(tenant) as connection:
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(
                # Two statements: a single one for both would scan everything ever answered to find what is pending.
                _PAGE_OF_OPEN if only_open else _PAGE,
                {
                    "workspace": tenant.workspace_id,
                    "session": session_id,
                    "agent": tenant.agent_id,
                    "after": after,
                    "limit": limit,
                },
            )
            return [_asked(row).question for row in await cursor.fetchall()]

    async def ended(
        self,
        connection: Connection,
        tenant: Tenant,
        question_id: QuestionId,
        state: QuestionState,
        *,
        answers: Mapping[str, Any] | None = None,
        by_button: tuple[str, ...] = (),
        via: str | None = None,
    ) -> None:
        """Write the answer to a pending question, or that there will be none."""
        await connection.execute(
            """
            update toolcrib.questions
            set state = %s, answers = %s, by_button = %s, answered_by = %s, answered_via = %s, answered_at = now()
            where workspace_id = %s and id = %s and state = 'open'
            """,
            (
                state,
                None if answers is None else json_text(answers),
                list(by_button),
                tenant.user_id,
                via,
                tenant.workspace_id,
                question_id,
            ),
        )

    async def has_session(self, connection: Connection, question: QuestionRequest) -> bool:
        """Return whether the session exists."""
        cursor = await connection.execute(
            "select from toolcrib.sessions where workspace_id = %s and id = %s",
            (question.workspace_id, question.session_id),
        )
        return await cursor.fetchone() is not None

    async def expired(self, *, limit: int) -> list[tuple[WorkspaceId, QuestionId]]:
        """Return pending questions that have expired, with the system role."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select workspace_id, id from toolcrib.questions where state = 'open' and expires_at <= now()
                order by expires_at limit %s
                """,
                (limit,),
            )
            return [(WorkspaceId(workspace), QuestionId(question)) for workspace, question in await cursor.fetchall()]


_SELECT = """
    select q.*, g.name as agent_name, coalesce(u.full_name, u.email) as answered_by_name
    from toolcrib.questions q
    left join lateral (select name from toolcrib.agents where workspace_id = q.workspace_id and id = q.agent_id
                       limit 1) g on true
    left join lateral (select full_name, email from toolcrib.users where id = q.answered_by limit 1) u on true
"""
_WANTED = """
    where q.workspace_id = %(workspace)s
      and (%(session)s::uuid is null or q.session_id = %(session)s)
      and (%(agent)s::uuid is null or q.agent_id = %(agent)s)
      and (%(after)s::uuid is null or q.id > %(after)s)
"""
_PAGE = f"{_SELECT} {_WANTED} order by q.id limit %(limit)s"
_PAGE_OF_OPEN = f"{_SELECT} {_WANTED} and q.state = 'open' and q.expires_at > now() order by q.id limit %(limit)s"


def _asked(row: Mapping[str, Any]) -> PendingQuestion:
    items = tuple(
        Question(
            item["name"], item["question"], item["schema"], tuple(AnswerButton(**button) for button in item["buttons"])
        )
        for item in row["items"]
    )
    question = QuestionRequest(
        id=row["id"],
        workspace_id=row["workspace_id"],
        call_id=row["call_id"],
        session_id=row["session_id"],
        run_id=row["run_id"],
        user_id=row["user_id"],
        agent_id=row["agent_id"],
        items=items,
        state=QuestionState(row["state"]),
        answers=row["answers"],
        by_button=tuple(row["by_button"]),
        answered_by=row["answered_by"],
        answered_at=row["answered_at"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
    )
    return PendingQuestion(question, row["via"], row["agent_name"], row["answered_by_name"])
