"""Calls as rows: those that change something, belong to a session, or whose result was cut."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toolcrib.domain.book import CallRecord
from toolcrib.domain.errors import NotFound
from toolcrib.domain.ids import CallId
from toolcrib.storage.database import Database, Tenant
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

    async def record(self, tenant: Tenant, call: CallRecord) -> None:
        async with self._database.transaction(tenant) as connection:
            await connection.execute(
                "select toolcrib.record_call(%s, %s)", (tenant.workspace_id, json_text(call_row(call)))
            )


def call_row(call: CallRecord) -> dict[str, Any]:
    """A call that has ended, as ``toolcrib.record_call`` takes it."""
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
    }
