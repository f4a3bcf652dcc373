"""Queries of a node for all its subscribers together, with the system role.

Each subscriber was authorized first; these queries find out who is not a member any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from toolcrib.core.events import Event
from toolcrib.core.ids import SessionId, WorkspaceId
from toolcrib.core.json_text import json_text
from toolcrib.storage.database import Database, Tenant


@dataclass(frozen=True, slots=True)
class EventBatch:
    """New events, and the indexes of the subscribers that may not receive them."""

    events: list[Event]
    non_members: frozenset[int]


class EventStore:
    """Queries of the event hub."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def last_seqs(
        self, sessions: Sequence[tuple[WorkspaceId, SessionId]]
    ) -> dict[tuple[WorkspaceId, SessionId], int]:
        """Return the number of the newest event of each session; deleted sessions are missing."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select s.workspace_id, s.id, s.last_seq
                from unnest(%s::uuid[], %s::uuid[]) as w (workspace_id, id)
                join toolcrib.sessions s on s.workspace_id = w.workspace_id and s.id = w.id
                """,
                ([workspace for workspace, _ in sessions], [session for _, session in sessions]),
            )
            return {(row[0], row[1]): row[2] for row in await cursor.fetchall()}

    async def events_since(
        self,
        workspace_id: WorkspaceId,
        session_id: SessionId,
        seq: int,
        watchers: Sequence[Tenant],
        *,
        limit: int,
    ) -> EventBatch:
        """Return the events after ``seq``, and the subscribers who lost access before the last of them."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select array(select toolcrib.non_members(%s)), session_id, type, payload, seq from toolcrib.events
                where workspace_id = %s and session_id = %s and seq > %s order by seq limit %s
                """,
                (_watchers(watchers), workspace_id, session_id, seq, limit),
            )
            rows = await cursor.fetchall()
        # Both from one snapshot, so that a subscriber receives nothing from after they lost access.
        return EventBatch([Event(*row[1:]) for row in rows], frozenset(rows[0][0] if rows else ()))

    async def non_members(self, watchers: Sequence[Tenant]) -> frozenset[int]:
        """Return the indexes of those who are not members any more, or whose tokens were ended."""
        if not watchers:
            return frozenset()
        async with self._database.as_system() as connection:
            cursor = await connection.execute("select toolcrib.non_members(%s)", (_watchers(watchers),))
            return frozenset(row[0] for row in await cursor.fetchall())


def _watchers(tenants: Sequence[Tenant]) -> str:
    return json_text([_subscriber_row(tenant) for tenant in tenants])


def _subscriber_row(tenant: Tenant) -> dict[str, object]:
    return {
        "user_id": tenant.user_id,
        "token_version": tenant.token_version,
        "workspace_id": tenant.workspace_id,
        "agent_id": tenant.agent_id,
    }
