"""Sessions and their durable events, numbered without gaps."""

from toolcrib.domain.callers import Role
from toolcrib.domain.events import Event
from toolcrib.domain.ids import SessionId
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.json_text import json_text


class Sessions:
    """Queries on sessions and events."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, tenant: Tenant, session_id: SessionId, title: str | None) -> None:
        async with self._database.transaction(tenant, Role.MEMBER) as connection:
            await connection.execute(
                """
                insert into toolcrib.sessions (workspace_id, id, title, agent_id, created_by)
                values (%s, %s, %s, %s, %s)
                """,
                (tenant.workspace_id, session_id, title, tenant.agent_id, tenant.user_id),
            )

    async def append(self, connection: Connection, tenant: Tenant, event: Event) -> int:
        """Gives the event the session's next number, in the transaction of the fact it tells."""
        cursor = await connection.execute(
            "select toolcrib.append_event(%s, %s, %s, %s)",
            (tenant.workspace_id, event.session_id, event.type, json_text(event.payload)),
        )
        row = await cursor.fetchone()
        assert row is not None
        return int(row[0])

    async def events_after(self, tenant: Tenant, session_id: SessionId, seq: int, *, limit: int) -> list[Event]:
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                """
                select session_id, type, payload, seq from toolcrib.events
                where workspace_id = %s and session_id = %s and seq > %s order by seq limit %s
                """,
                (tenant.workspace_id, session_id, seq, limit),
            )
            return [Event(*row) for row in await cursor.fetchall()]
