"""Calls as rows: those that change something, belong to a session, or whose result was shortened."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from toolcrib.core.audit import AuditRecord, CallRecord
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.change_sets import UndoCall, UndoneCalls
from toolcrib.core.errors import NotFound
from toolcrib.core.ids import AgentId, CallId, PauseId, RunId, SessionId, UserId, WorkspaceId
from toolcrib.core.json_text import json_text
from toolcrib.storage.audit import AuditStore
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.runs import RunAbove, require_session, runs_above


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call as it is read back."""

    id: CallId
    tool: str
    arguments: Any
    state: str
    result: Any
    error: Any
    change_set_id: Any
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class InterruptedCall:
    """A call whose process died while it ran."""

    workspace_id: WorkspaceId
    id: CallId
    session_id: SessionId | None
    user_id: UserId
    agent_id: AgentId | None
    tool: str
    idempotent: bool


class ToolCallStore:
    """Queries on calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, tenant: Tenant, call_id: CallId) -> StoredCall:
        """Return a call of the workspace.

        An agent sees its own only, because another agent may have other permissions.
        """
        return await self._get(tenant, call_id, within=None, anywhere=True)

    async def get_within(self, tenant: Tenant, call_id: CallId, session_id: SessionId | None) -> StoredCall:
        """Return a call of this session; without one, of no session."""
        return await self._get(tenant, call_id, within=session_id, anywhere=False)

    async def _get(self, tenant: Tenant, call_id: CallId, *, within: SessionId | None, anywhere: bool) -> StoredCall:
        async with self._database.transaction(tenant) as connection:
            row = await connection.fetch_row(
                """
                select id, tool, arguments, state, result, error, change_set_id, started_at, ended_at
                from toolcrib.tool_calls
                where workspace_id = %(workspace)s and id = %(call)s
                  and (%(agent)s::uuid is null or agent_id = %(agent)s)
                  and (%(anywhere)s or session_id is not distinct from %(within)s::uuid)
                """,
                {
                    "workspace": tenant.workspace_id,
                    "call": call_id,
                    "agent": tenant.agent_id,
                    "anywhere": anywhere,
                    "within": within,
                },
            )
        if row is None:
            raise NotFound(f"Call {call_id} not found in this workspace.")
        return StoredCall(*row)

    async def record(
        self,
        tenant: Tenant,
        call: CallRecord,
        audit: AuditRecord | None = None,
        *,
        needs: WorkspaceRole = WorkspaceRole.VIEWER,
    ) -> None:
        """Write the call's row, its events and, if it has ended, its audit record, atomically."""
        async with self._database.transaction(tenant, needs) as connection:
            await save_tool_call(connection, tenant, call)
            if audit is not None:
                await AuditStore.append_within(connection, audit)

    async def interrupted(self, *, lease: float, limit: int) -> list[InterruptedCall]:
        """Return calls outside runs that were running when their process died, with the system role."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select workspace_id, id, session_id, user_id, agent_id, tool, idempotent
                from toolcrib.tool_calls c
                where state = 'running' and run_id is null and started_at < now() - make_interval(secs => %s)
                  and not toolcrib.process_is_alive(process_id, %s)
                  -- An approved call is resumed, not ended.
                  and not exists (select from toolcrib.paused_calls p
                                  where p.workspace_id = c.workspace_id and p.call_id = c.id
                                    and p.state = 'approved' and p.resumed_at is null)
                limit %s
                """,
                (lease, lease, limit),
            )
            return [InterruptedCall(*row) for row in await cursor.fetchall()]


async def save_tool_call(connection: Connection, tenant: Tenant, call: CallRecord) -> None:
    """Write the call's row and events, within a transaction of the tenant."""
    await connection.execute("select toolcrib.save_tool_call(%s, %s)", (tenant.workspace_id, json_text(call.row)))


# How many files of one call are counted, and how many later calls are searched for undos.
MOST_FILES = 1_000
_LATER_CALLS = 20_000


@dataclass(frozen=True, slots=True)
class CallDecision:
    """What a person was asked about a call, and the decision."""

    pause_id: PauseId
    state: str
    grant_scope: str | None
    rule: str
    reason: str
    decided_by: UserId | None
    decided_by_name: str | None
    decided_at: datetime | None
    rejection_reason: str | None


@dataclass(frozen=True, slots=True)
class CallSummary:
    """A call, its outcome, and the undo that reverted it, if there is one."""

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
    decision: CallDecision | None
    undone_by: CallId | None


class CallHistoryStore:
    """Queries on the calls of a session, with their decisions and undos."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        run_id: RunId | None = None,
        before: CallId | None,
        limit: int,
    ) -> list[CallSummary]:
        """Return a session's calls, newest first. With ``run_id``, only those of that run."""
        async with self._database.transaction(tenant) as connection:
            await require_session(connection, tenant, session_id)
            cursor = connection.cursor(row_factory=class_row(_CallHistoryRow))
            await cursor.execute(
                """
                select c.id, c.session_id, c.run_id, c.user_id, c.agent_id, c.tool, c.arguments, c.state, c.error,
                       c.change_set_id, c.started_at, c.ended_at, coalesce(v.files, 0) as files,
                       p.id as pause_id, p.state as pause_state, p.grant_scope, p.rule, p.reason, p.decided_by,
                       coalesce(u.full_name, u.email) as decided_by_name, p.decided_at, p.rejection_reason
                from toolcrib.tool_calls c
                left join lateral (
                    select count(*) as files
                    from (select from toolcrib.versions v
                          where v.workspace_id = c.workspace_id and v.change_set_id = c.change_set_id
                          limit %(most)s) v
                ) v on c.change_set_id is not null
                left join lateral (
                    select * from toolcrib.paused_calls p
                    where p.workspace_id = c.workspace_id and p.call_id = c.id and p.kind = 'approval'
                    order by p.created_at desc limit 1
                ) p on true
                left join lateral (
                    select full_name, email from toolcrib.users where id = p.decided_by limit 1
                ) u on true
                where c.workspace_id = %(workspace)s and c.session_id = %(session)s
                  and (%(run)s::uuid is null or c.run_id = %(run)s)
                  and (%(before)s::uuid is null or c.id < %(before)s)
                order by c.id desc limit %(limit)s
                """,
                {
                    "workspace": tenant.workspace_id,
                    "session": session_id,
                    "run": run_id,
                    "before": before,
                    "limit": limit,
                    "most": MOST_FILES,
                },
            )
            rows = await cursor.fetchall()
            undone = await _undone_since(connection, tenant, rows[-1].id) if rows else UndoneCalls()
            above = await runs_above(connection, tenant, {row.run_id for row in rows if row.run_id is not None})
        return [_past_call(row, undone, [] if row.run_id is None else above.get(row.run_id, [])) for row in rows]


@dataclass(frozen=True, slots=True)
class _CallHistoryRow:
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
    pause_id: PauseId | None
    pause_state: str | None
    grant_scope: str | None
    rule: str | None
    reason: str | None
    decided_by: UserId | None
    decided_by_name: str | None
    decided_at: datetime | None
    rejection_reason: str | None


async def _undone_since(connection: Connection, tenant: Tenant, oldest: CallId) -> UndoneCalls:
    """Return what undos have reverted since, in any session or none."""
    cursor = await connection.execute(
        """
        select id, coalesce(result -> 'undone', arguments) from (
            select id, tool, arguments, result, state, change_set_id from toolcrib.tool_calls
            where workspace_id = %s and id >= %s order by id limit %s
        ) later
        where tool = 'undo' and state = 'done' and change_set_id is not null
        order by id desc
        """,
        (tenant.workspace_id, oldest, _LATER_CALLS),
    )
    return UndoneCalls.by(UndoCall(CallId(id_), reverted) for id_, reverted in await cursor.fetchall())


def _past_call(row: _CallHistoryRow, undone: UndoneCalls, above: Sequence[RunAbove]) -> CallSummary:
    parents = (id_ for parent in above for id_ in parent.ids)
    took_back = undone.taken_back_by(row.id, (row.run_id, row.session_id, *parents))
    return CallSummary(
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


def _decided(row: _CallHistoryRow) -> CallDecision | None:
    if row.pause_id is None:
        return None
    assert row.pause_state is not None and row.rule is not None and row.reason is not None
    return CallDecision(
        pause_id=row.pause_id,
        state=row.pause_state,
        grant_scope=row.grant_scope,
        rule=row.rule,
        reason=row.reason,
        decided_by=row.decided_by,
        decided_by_name=row.decided_by_name,
        decided_at=row.decided_at,
        rejection_reason=row.rejection_reason,
    )
