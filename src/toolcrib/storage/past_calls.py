"""The calls of a session as its past tells them: what was decided about each, and whether it stands."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from toolcrib.domain.ids import AgentId, ApprovalId, CallId, RunId, SessionId, UserId
from toolcrib.domain.undone import UndoCall, Undone
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.run_rows import require_session

# How far the files of one call are counted, and how many later calls are looked through for undos.
MOST_FILES = 1_000
_LATER_CALLS = 20_000


@dataclass(frozen=True, slots=True)
class Decided:
    """What was put to a person about a call, and what became of it."""

    approval_id: ApprovalId
    state: str
    scope: str | None
    rule: str
    reason: str
    decided_by: UserId | None
    decided_by_name: str | None
    decided_at: datetime | None
    denial: str | None


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call, how it ended, and the undo that took it back, if one did."""

    id: CallId
    session_id: SessionId | None
    run_id: RunId | None
    user_id: UserId
    agent_id: AgentId | None
    tool: str
    arguments: Any
    state: str
    error: Any
    change_set_id: UUID | None
    files: int
    started_at: datetime
    ended_at: datetime | None
    decision: Decided | None
    undone_by: CallId | None


class PastCalls:
    """Queries on them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, tenant: Tenant, session_id: SessionId, *, before: CallId | None, limit: int) -> list[PastCall]:
        """A session's calls, the newest first."""
        async with self._database.transaction(tenant) as connection:
            await require_session(connection, tenant, session_id)
            cursor = connection.cursor(row_factory=class_row(_Row))
            await cursor.execute(
                """
                select c.id, c.session_id, c.run_id, c.user_id, c.agent_id, c.tool, c.arguments, c.state, c.error,
                       c.change_set_id, c.started_at, c.ended_at, coalesce(v.files, 0) as files,
                       a.id as approval_id, a.state as approval_state, a.scope, a.rule, a.reason, a.decided_by,
                       coalesce(u.full_name, u.email) as decided_by_name, a.decided_at, a.denial
                from toolcrib.tool_calls c
                left join lateral (
                    select count(*) as files
                    from (select from toolcrib.versions v
                          where v.workspace_id = c.workspace_id and v.change_set_id = c.change_set_id
                          limit %(most)s) v
                ) v on c.change_set_id is not null
                left join lateral (
                    select * from toolcrib.approvals a
                    where a.workspace_id = c.workspace_id and a.call_id = c.id
                    order by a.created_at desc limit 1
                ) a on true
                left join lateral (
                    select full_name, email from toolcrib.users where id = a.decided_by limit 1
                ) u on true
                where c.workspace_id = %(workspace)s and c.session_id = %(session)s
                  and (%(before)s::uuid is null or c.id < %(before)s)
                order by c.id desc limit %(limit)s
                """,
                {
                    "workspace": tenant.workspace_id,
                    "session": session_id,
                    "before": before,
                    "limit": limit,
                    "most": MOST_FILES,
                },
            )
            rows = await cursor.fetchall()
            undone = await _undone_since(connection, tenant, rows[-1].id) if rows else Undone()
        return [_past_call(row, undone) for row in rows]


@dataclass(frozen=True, slots=True)
class _Row:
    id: CallId
    session_id: SessionId | None
    run_id: RunId | None
    user_id: UserId
    agent_id: AgentId | None
    tool: str
    arguments: Any
    state: str
    error: Any
    change_set_id: UUID | None
    started_at: datetime
    ended_at: datetime | None
    files: int
    approval_id: ApprovalId | None
    approval_state: str | None
    scope: str | None
    rule: str | None
    reason: str | None
    decided_by: UserId | None
    decided_by_name: str | None
    decided_at: datetime | None
    denial: str | None


async def _undone_since(connection: Connection, tenant: Tenant, oldest: CallId) -> Undone:
    """What undos took back since, in whichever session they were called, or in none."""
    cursor = await connection.execute(
        """
        select id, arguments from (
            select id, tool, arguments, state, change_set_id from toolcrib.tool_calls
            where workspace_id = %s and id >= %s order by id limit %s
        ) later
        where tool = 'undo' and state = 'done' and change_set_id is not null
        order by id desc
        """,
        (tenant.workspace_id, oldest, _LATER_CALLS),
    )
    return Undone.by(UndoCall(CallId(id_), arguments) for id_, arguments in await cursor.fetchall())


def _past_call(row: _Row, undone: Undone) -> PastCall:
    took_back = undone.taken_back_by(row.id, run_id=row.run_id, session_id=row.session_id)
    return PastCall(
        id=row.id,
        session_id=row.session_id,
        run_id=row.run_id,
        user_id=row.user_id,
        agent_id=row.agent_id,
        tool=row.tool,
        arguments=row.arguments,
        state=row.state,
        error=row.error,
        change_set_id=row.change_set_id,
        files=row.files,
        started_at=row.started_at,
        ended_at=row.ended_at,
        decision=_decided(row),
        undone_by=took_back if row.change_set_id is not None else None,
    )


def _decided(row: _Row) -> Decided | None:
    if row.approval_id is None:
        return None
    assert row.approval_state is not None and row.rule is not None and row.reason is not None
    return Decided(
        approval_id=row.approval_id,
        state=row.approval_state,
        scope=row.scope,
        rule=row.rule,
        reason=row.reason,
        decided_by=row.decided_by,
        decided_by_name=row.decided_by_name,
        decided_at=row.decided_at,
        denial=row.denial,
    )
