"""Forks: sessions that continue another one from one of its messages. The original stays as it is."""

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import BadArguments, Conflict, NotFound
from toolcrib.core.ids import MessageId, SessionId
from toolcrib.core.runs import Run
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.runs import RunStore
from toolcrib.storage.sessions import Session, SessionStore


class SessionForkStore:
    """Queries that fork sessions."""

    def __init__(self, database: Database, sessions: SessionStore, runs: RunStore) -> None:
        self._database = database
        self._sessions = sessions
        self._runs = runs

    async def fork(
        self, tenant: Tenant, session_id: SessionId, message_id: MessageId, *, text: str | None, via: str
    ) -> tuple[Session, Run | None]:
        """Create a session with the messages up to this one. Its title, agent and settings are the original's.

        Args:
            text: Sent instead of the message, a person's, with the files that it brings. The run answers it.

        Raises:
            Conflict: The session runs a package, or a call of the message has not ended.
            BadArguments: The text would replace a message that no person sent.
        """
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            original = await self._original(connection, tenant, session_id)
            row = await connection.fetch_row(
                """
                select role, metadata -> 'attachments' from toolcrib.messages
                where workspace_id = %s and session_id = %s and id = %s and role <> 'summary'
                """,
                (tenant.workspace_id, session_id, message_id),
            )
            if row is None:
                raise NotFound(f"Message {message_id} not found in this session.")
            role, attachments = row
            if text is not None and role != "user":
                raise BadArguments({"message_id": "Only a person's message can be replaced by a text."})
            if text is None:
                await _reject_unfinished(connection, tenant, message_id)
            fork = await self._sessions.create(
                tenant,
                title=original.title,
                agent_id=original.agent_id,
                mode=original.mode,
                # What an owner allowed for one session is not allowed for another one.
                trust=None if original.trust_by_owner else original.trust,
                provider=original.provider,
                model=original.model,
                phase=original.phase,
                directory=original.directory,
                within=connection,
            )
            await connection.execute(
                """
                update toolcrib.sessions set forked_from_session_id = %s, forked_from_message_id = %s
                where workspace_id = %s and id = %s
                """,
                (session_id, message_id, tenant.workspace_id, fork.id),
            )
            await connection.execute(
                "select toolcrib.copy_messages(%s, %s, %s, %s, %s)",
                (tenant.workspace_id, session_id, fork.id, message_id, text is None),
            )
            run = None
            if text is not None:
                run = await self._runs.submit_within(
                    connection, tenant, fork.id, text, via=via, attachments=attachments or ()
                )
        return await self._sessions.get(tenant, fork.id), run

    async def _original(self, connection: Connection, tenant: Tenant, session_id: SessionId) -> Session:
        # Locked as everything that adds messages does: what is copied is complete.
        await connection.execute(
            "select from toolcrib.sessions where workspace_id = %s and id = %s for no key update",
            (tenant.workspace_id, session_id),
        )
        original = await self._sessions.get_within(connection, tenant, session_id)
        if original.package is not None:
            raise Conflict("This session runs a package's workflow and cannot be forked. Create a new session of it.")
        return original


async def _reject_unfinished(connection: Connection, tenant: Tenant, message_id: MessageId) -> None:
    """Raise Conflict if a call that the message requests has not ended: the copy would wait for it for ever."""
    row = await connection.fetch_row(
        """
        select count(*) from toolcrib.messages m
        cross join lateral jsonb_array_elements(m.metadata -> 'tool_calls') as requested (call)
        left join toolcrib.tool_calls c
             on c.workspace_id = m.workspace_id and c.id = (requested.call ->> 'call_id')::uuid
        where m.workspace_id = %s and m.id = %s and c.ended_at is null
        """,
        (tenant.workspace_id, message_id),
    )
    if row is not None and row[0]:
        raise Conflict("The calls of this message have not ended. Wait for them, or fork from an earlier message.")
