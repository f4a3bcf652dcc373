"""Calls as rows: those that change something, belong to a session, or whose result was cut."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toolcrib.domain.book import AuditRecord, CallRecord
from toolcrib.domain.callers import Role
from toolcrib.domain.errors import NotFound
from toolcrib.domain.ids import AgentId, CallId, SessionId, UserId, WorkspaceId
from toolcrib.storage.audit import audit_row
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.json_text import json_text


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
class Interrupted:
    """A call whose node died under it."""

    workspace_id: WorkspaceId
    id: CallId
    session_id: SessionId | None
    user_id: UserId
    agent_id: AgentId | None
    tool: str
    repeatable: bool


class Calls:
    """Queries on calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, tenant: Tenant, call_id: CallId) -> StoredCall:
        """A call of the workspace; for an agent, only its own: another may read what it may not."""
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                """
                select id, tool, arguments, state, result, error, change_set_id, started_at, ended_at
                from toolcrib.tool_calls
                where workspace_id = %(workspace)s and id = %(call)s
                  and (%(agent)s::uuid is null or agent_id = %(agent)s)
                """,
                {"workspace": tenant.workspace_id, "call": call_id, "agent": tenant.agent_id},
            )
            row = await cursor.fetchone()
        if row is None:
            raise NotFound(f"Call {call_id} is not kept in this workspace.")
        return StoredCall(*row)

    async def record(
        self, tenant: Tenant, call: CallRecord, audit: AuditRecord | None = None, *, needs: Role = Role.VIEWER
    ) -> None:
        """Writes the call's row, its events and, if it has ended, its record in the book: all or nothing."""
        async with self._database.transaction(tenant, needs) as connection:
            await record_call(connection, tenant, call)
            if audit is not None:
                await connection.execute("select toolcrib.record_audit(%s)", (json_text([audit_row(audit)]),))

    async def interrupted(self, *, lease: float, limit: int) -> list[Interrupted]:
        """Calls outside runs that a process had begun and not ended when it died. As the system."""
        async with self._database.system() as connection:
            cursor = await connection.execute(
                """
                select workspace_id, id, session_id, user_id, agent_id, tool, repeatable
                from toolcrib.tool_calls c
                where state = 'running' and run_id is null and started_at < now() - make_interval(secs => %s)
                  and not toolcrib.is_alive(node, %s)
                  -- What a person allowed is carried on, not ended.
                  and not exists (select from toolcrib.approvals a
                                  where a.workspace_id = c.workspace_id and a.call_id = c.id
                                    and a.state = 'allowed' and a.carried_at is null)
                limit %s
                """,
                (lease, lease, limit),
            )
            return [Interrupted(*row) for row in await cursor.fetchall()]


async def record_call(connection: Connection, tenant: Tenant, call: CallRecord) -> None:
    """The same, in a transaction that has its tenant."""
    await connection.execute("select toolcrib.record_call(%s, %s)", (tenant.workspace_id, json_text(call_row(call))))


def call_row(call: CallRecord) -> dict[str, Any]:
    """A call as ``toolcrib.record_call`` takes it."""
    caller = call.caller
    return {
        "id": caller.call_id,
        "session_id": caller.session_id,
        "run_id": caller.run_id,
        "fence": caller.fence,
        "user_id": caller.user_id,
        "agent_id": caller.agent_id,
        "tool": call.tool,
        "arguments": call.arguments,
        "state": call.state,
        "result": call.result,
        "error": call.error,
        "change_set_id": call.change_set_id,
        "node": call.node,
        "repeatable": call.repeatable,
        "approval_id": call.approval_id,
        "violation": call.violation,
        "events": call.events or None,
    }
