"""Calls as rows: those that change something, belong to a session, or whose result was cut."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toolcrib.domain.book import CallRecord
from toolcrib.domain.errors import NotFound
from toolcrib.domain.ids import CallId
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


class Calls:
    """Queries on calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, tenant: Tenant, call_id: CallId) -> StoredCall:
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                """
                select id, tool, arguments, state, result, error, change_set_id, started_at, ended_at
                from toolcrib.tool_calls where workspace_id = %s and id = %s
                """,
                (tenant.workspace_id, call_id),
            )
            row = await cursor.fetchone()
        if row is None:
            raise NotFound(f"Call {call_id} is not kept in this workspace.")
        return StoredCall(*row)

    async def record(self, tenant: Tenant, call: CallRecord) -> None:
        async with self._database.transaction(tenant) as connection:
            await insert(connection, call)


async def insert(connection: Connection, call: CallRecord) -> None:
    """Writes a call that has ended, within a transaction that has its tenant."""
    caller = call.caller
    await connection.execute(
        """
        insert into toolcrib.tool_calls
            (workspace_id, id, session_id, run_id, fence, user_id, agent_id, tool, arguments, state, result, error,
             change_set_id, ended_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, now())
        """,
        (
            caller.workspace_id,
            caller.call_id,
            caller.session_id,
            caller.run_id,
            caller.fence,
            caller.user_id,
            caller.agent_id,
            call.tool,
            json_text(call.arguments),
            call.state,
            None if call.result is None else json_text(call.result),
            None if call.error is None else json_text(call.error),
            call.change_set_id,
        ),
        prepare=True,
    )
