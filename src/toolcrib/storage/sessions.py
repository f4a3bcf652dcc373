"""Sessions and their durable events, numbered without gaps. Who watches them is in ``watching``."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toolcrib.domain.agents import Trust
from toolcrib.domain.callers import Role
from toolcrib.domain.errors import Forbidden, NotFound
from toolcrib.domain.events import Event, EventType
from toolcrib.domain.ids import AgentId, SessionId, UserId, new_id
from toolcrib.domain.sessions import Mode
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.json_text import json_text

# How far back an end is looked for: what was still speaking a moment ago has ended among the newest events.
_RECENT = 500


@dataclass(frozen=True, slots=True)
class Session:
    """A session as it is kept. ``last_seq`` is the number of its newest event."""

    id: SessionId
    title: str | None
    agent_id: AgentId | None
    mode: Mode
    trust: Trust | None
    created_by: UserId
    created_at: datetime
    last_seq: int


class Sessions:
    """Queries on sessions and events."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        tenant: Tenant,
        *,
        title: str | None = None,
        agent_id: AgentId | None = None,
        mode: Mode = Mode.BUILD,
        trust: Trust | None = None,
    ) -> Session:
        """Begins a session, with an agent of the workspace or without one."""
        async with self._database.transaction(tenant, Role.MEMBER) as connection:
            if agent_id is not None:
                await _refuse_unknown_agent(connection, tenant, agent_id)
            cursor = await connection.execute(
                f"""
                insert into toolcrib.sessions (workspace_id, id, title, agent_id, mode, trust, created_by)
                values (%s, %s, %s, %s, %s, %s, %s) returning {_COLUMNS}
                """,  # noqa: S608 - the columns are a constant of this module
                (tenant.workspace_id, new_id(), title, agent_id, mode, trust, tenant.user_id),
            )
            row = await cursor.fetchone()
        assert row is not None
        return _session(row)

    async def page(self, tenant: Tenant, *, before: SessionId | None, limit: int) -> list[Session]:
        """The workspace's sessions, the newest first."""
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                f"""
                select {_COLUMNS} from toolcrib.sessions
                where workspace_id = %(workspace)s and (%(before)s::uuid is null or id < %(before)s)
                order by id desc limit %(limit)s
                """,  # noqa: S608 - as above
                {"workspace": tenant.workspace_id, "before": before, "limit": limit},
            )
            return [_session(row) for row in await cursor.fetchall()]

    async def get(self, tenant: Tenant, session_id: SessionId) -> Session:
        async with self._database.transaction(tenant) as connection:
            return await _found(connection, tenant, session_id)

    async def rename(self, tenant: Tenant, session_id: SessionId, title: str | None) -> Session:
        async with self._database.transaction(tenant, Role.MEMBER) as connection:
            await connection.execute(
                "update toolcrib.sessions set title = %s where workspace_id = %s and id = %s",
                (title, tenant.workspace_id, session_id),
            )
            return await _found(connection, tenant, session_id)

    async def entrust(self, tenant: Tenant, session_id: SessionId, trust: Trust | None) -> Session:
        """How often a person is asked about what is done in it; without a level, as the agent says."""
        async with self._database.transaction(tenant, Role.MEMBER) as connection:
            await connection.execute(
                "update toolcrib.sessions set trust = %s where workspace_id = %s and id = %s",
                (trust, tenant.workspace_id, session_id),
            )
            return await _found(connection, tenant, session_id)

    async def switch(self, tenant: Tenant, session_id: SessionId, mode: Mode) -> Session:
        """Plan or build, as a person says. An agent leaves plan mode only with a plan that a person accepted."""
        async with self._database.transaction(tenant, Role.MEMBER) as connection:
            await connection.execute(
                "update toolcrib.sessions set mode = %s where workspace_id = %s and id = %s",
                (mode, tenant.workspace_id, session_id),
            )
            return await _found(connection, tenant, session_id)

    async def delete(self, tenant: Tenant, session_id: SessionId) -> None:
        """Removes a session with its events: whoever began it may, and owners. The book keeps its records."""
        async with self._database.transaction(tenant, Role.MEMBER) as connection:
            session = await _found(connection, tenant, session_id)
            cursor = await connection.execute(
                """
                delete from toolcrib.sessions s where s.workspace_id = %(workspace)s and s.id = %(session)s
                  and (s.created_by = %(user)s
                       or exists (select from toolcrib.members m where m.workspace_id = s.workspace_id
                                  and m.user_id = %(user)s and m.role = 'owner'))
                """,
                {"workspace": tenant.workspace_id, "session": session.id, "user": tenant.user_id},
            )
            if cursor.rowcount == 0:
                raise Forbidden("Only who began a session, or an owner of the workspace, may delete it.")

    # Events

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
        """Up to ``limit`` events with greater numbers; NotFound if the workspace has no such session."""
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                """
                select session_id, type, payload, seq from toolcrib.events
                where workspace_id = %s and session_id = %s and seq > %s order by seq limit %s
                """,
                (tenant.workspace_id, session_id, seq, limit),
            )
            rows = await cursor.fetchall()
            if not rows:
                await _found(connection, tenant, session_id)
            return [Event(*row) for row in rows]

    async def ended_sources(self, tenant: Tenant, session_id: SessionId, sources: Sequence[str]) -> set[str]:
        """Which of these (calls and messages) have ended lately."""
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                """
                select coalesce(e.payload ->> 'toolId', e.payload ->> 'messageId')
                from toolcrib.sessions s
                join toolcrib.events e on e.workspace_id = s.workspace_id and e.session_id = s.id
                     and e.seq > s.last_seq - %(recent)s
                where s.workspace_id = %(workspace)s and s.id = %(session)s and e.type = any (%(ends)s)
                """,
                {
                    "workspace": tenant.workspace_id,
                    "session": session_id,
                    "recent": _RECENT,
                    "ends": [EventType.TOOL_RESULT.value, EventType.STREAM_END.value],
                },
            )
            return {row[0] for row in await cursor.fetchall()} & set(sources)


_COLUMNS = "id, title, agent_id, mode, trust, created_by, created_at, last_seq"


async def _found(connection: Connection, tenant: Tenant, session_id: SessionId) -> Session:
    cursor = await connection.execute(
        f"select {_COLUMNS} from toolcrib.sessions where workspace_id = %s and id = %s",  # noqa: S608 - as above
        (tenant.workspace_id, session_id),
    )
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(f"Session {session_id} not found in this workspace.")
    return _session(row)


async def _refuse_unknown_agent(connection: Connection, tenant: Tenant, agent_id: AgentId) -> None:
    cursor = await connection.execute(
        "select from toolcrib.agents where workspace_id = %s and id = %s and deleted_at is null",
        (tenant.workspace_id, agent_id),
    )
    if cursor.rowcount == 0:
        raise NotFound(f"Agent {agent_id} not found in this workspace.")


def _session(row: tuple[Any, ...]) -> Session:
    session_id, title, agent_id, mode, trust, created_by, created_at, last_seq = row
    return Session(
        session_id,
        title,
        agent_id,
        Mode(mode),
        None if trust is None else Trust(trust),
        created_by,
        created_at,
        last_seq,
    )
