"""Events of sessions as rows: what a node reads for all its subscribers together, and cursors of clients.

The event hub reads with the system role. Each subscriber was authorized first; its queries find out who is not a member
any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.events import Event
from toolcrib.core.ids import SessionId, WorkspaceId
from toolcrib.core.json_text import json_text
from toolcrib.storage.database import Connection, Database, Tenant


@dataclass(frozen=True, slots=True)
class EventBatch:
    """New events, and the indexes of the subscribers that may not receive them."""

    events: list[Event]
    non_members: frozenset[int]


class EventStore:
    """Appends events, and answers the queries of the event hub."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @staticmethod
    async def append_within(connection: Connection, tenant: Tenant, event: Event) -> int:
        """Append an event with the session's next number, in the transaction of the change that it reports."""
        row = await connection.returned_row(
            "select toolcrib.append_event(%s, %s, %s, %s)",
            (tenant.workspace_id, event.session_id, event.type, json_text(event.payload)),
        )
        return int(row[0])

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


@dataclass(frozen=True, slots=True)
class ConversationCursor:
    """A session, and the number of the last event that the client received.

    It is for clients that name no session but resend the conversation.
    """

    session_id: SessionId
    last_seq: int


class ConversationCursorStore:
    """Queries on conversation cursors. A session has at most one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, tenant: Tenant, digest: bytes) -> ConversationCursor | None:
        """Return and delete the newest cursor with this digest: of two concurrent requests only one continues there."""
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            row = await connection.fetch_row(
                """
                delete from toolcrib.conversation_cursors where workspace_id = %(workspace)s and session_id = (
                    select session_id from toolcrib.conversation_cursors
                    where workspace_id = %(workspace)s and digest = %(digest)s
                    order by session_id desc limit 1 for update skip locked
                )
                returning session_id, last_seq
                """,
                {"workspace": tenant.workspace_id, "digest": digest},
            )
        return None if row is None else ConversationCursor(*row)

    async def save(self, tenant: Tenant, cursor: ConversationCursor, digest: bytes) -> None:
        """Save the client's position in a session. Replaces the earlier one."""
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            await connection.execute(
                """
                insert into toolcrib.conversation_cursors (workspace_id, session_id, digest, last_seq)
                values (%s, %s, %s, %s)
                on conflict (workspace_id, session_id) do update set
                    digest = excluded.digest, last_seq = excluded.last_seq
                """,
                (tenant.workspace_id, cursor.session_id, digest, cursor.last_seq),
            )


def _watchers(tenants: Sequence[Tenant]) -> str:
    names = ("user_id", "token_version", "workspace_id", "agent_id")
    return json_text([dict(zip(names, tenant.parameters, strict=True)) for tenant in tenants])
