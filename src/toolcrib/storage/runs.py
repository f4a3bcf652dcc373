"""Runs as people have them: handed in, looked up, cancelled. How they are carried on is in ``run_steps``."""

from collections.abc import Sequence

from psycopg.rows import dict_row

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import Conflict, NotFound
from toolcrib.core.ids import RunId, SessionId, new_id
from toolcrib.core.runs import Run, RunEnding, RunState, SessionMessage
from toolcrib.storage.database import Tenant
from toolcrib.storage.run_rows import (
    MESSAGES,
    SELECT,
    append_run_state_event,
    end_run,
    lock_session,
    one_run,
    require_session,
    run_from,
    start_next_queued,
)
from toolcrib.storage.run_steps import RunStepStore


class RunStore(RunStepStore):
    """Queries on runs and messages."""

    async def submit(
        self,
        tenant: Tenant,
        session_id: SessionId,
        prompt: str,
        *,
        via: str,
        history: Sequence[tuple[str, str]] = (),
    ) -> Run:
        """A message of a user: a run that begins now, or, while the session has another, later."""
        run_id = RunId(new_id())
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            cursor = await connection.execute(
                """
                select agent_id, last_position from toolcrib.sessions
                where workspace_id = %s and id = %s for no key update
                """,
                (tenant.workspace_id, session_id),
            )
            row = await cursor.fetchone()
            if row is None:
                raise NotFound(f"Session {session_id} not found in this workspace.")
            for role, content in history if row[1] == 0 else ():
                await connection.execute(
                    "select toolcrib.add_message(%s, %s, %s, null, %s, %s, null)",
                    (tenant.workspace_id, session_id, new_id(), role, content),
                )
            await connection.execute(
                """
                insert into toolcrib.runs (workspace_id, id, session_id, user_id, agent_id, via, prompt, state)
                values (%s, %s, %s, %s, %s, %s, %s, 'queued')
                """,
                (tenant.workspace_id, run_id, session_id, tenant.user_id, row[0], via, prompt),
            )
            await start_next_queued(connection, tenant.workspace_id, session_id)
            run = await one_run(connection, tenant, run_id)
            await append_run_state_event(connection, run)
        return run

    async def get(self, tenant: Tenant, run_id: RunId) -> Run:
        async with self._database.transaction(tenant) as connection:
            return await one_run(connection, tenant, run_id)

    async def unfinished(self, tenant: Tenant, session_id: SessionId) -> Run | None:
        """The run that a session has, if it has one that has not ended."""
        async with self._database.transaction(tenant) as connection:
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(
                SELECT
                + """
                where workspace_id = %s and session_id = %s and state in ('ready', 'running', 'waiting')
                """,
                (tenant.workspace_id, session_id),
            )
            row = await cursor.fetchone()
        return run_from(row) if row else None

    async def page(
        self, tenant: Tenant, session_id: SessionId, *, before: RunId | None = None, limit: int = 50
    ) -> list[Run]:
        """A session's runs, the newest first."""
        async with self._database.transaction(tenant) as connection:
            await require_session(connection, tenant, session_id)
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(
                SELECT
                + """
                where workspace_id = %(workspace)s and session_id = %(session)s
                  and (%(before)s::uuid is null or id < %(before)s)
                order by id desc limit %(limit)s
                """,
                {"workspace": tenant.workspace_id, "session": session_id, "before": before, "limit": limit},
            )
            return [run_from(row) for row in await cursor.fetchall()]

    async def cancel(self, tenant: Tenant, run_id: RunId) -> Run:
        """Asks a run to stop. One that nobody works on ends here and now; the others see it within a second."""
        return await self._cancel_queued(tenant, run_id) or await self._cancel_begun(tenant, run_id)

    async def _cancel_queued(self, tenant: Tenant, run_id: RunId) -> Run | None:
        """Ends a run that has not begun; none if it has. The session comes first: whatever lets it begin holds it."""
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            run = await one_run(connection, tenant, run_id)
            if run.state is not RunState.QUEUED:
                return None
            await lock_session(connection, run)
            cursor = await connection.execute(
                """
                update toolcrib.runs set cancelled_by = %s
                where workspace_id = %s and id = %s and state = 'queued'
                """,
                (tenant.user_id, tenant.workspace_id, run_id),
            )
            if cursor.rowcount == 0:
                return None
            await end_run(connection, run, RunEnding.CANCELLED, None)
            return await one_run(connection, tenant, run_id)

    async def _cancel_begun(self, tenant: Tenant, run_id: RunId) -> Run:
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            cursor = await connection.execute(
                """
                update toolcrib.runs set cancelled_by = coalesce(cancelled_by, %s)
                where workspace_id = %s and id = %s and state <> 'ended'
                """,
                (tenant.user_id, tenant.workspace_id, run_id),
            )
            run = await one_run(connection, tenant, run_id)
            if cursor.rowcount == 0:
                raise Conflict(f"The run has ended already: {run.ending}.")
            if run.state is RunState.WAITING:
                # Whoever takes it sees that it was cancelled, and ends it in good order.
                await connection.execute("select toolcrib.wake_run(%s, %s)", (tenant.workspace_id, run_id))
        return run

    async def messages(
        self, tenant: Tenant, session_id: SessionId, *, after: int = 0, limit: int = 200
    ) -> list[SessionMessage]:
        """A session's messages in order, those that were compacted too."""
        async with self._database.transaction(tenant) as connection:
            await require_session(connection, tenant, session_id)
            cursor = await connection.execute(
                MESSAGES + "where workspace_id = %s and session_id = %s and position > %s order by position limit %s",
                (tenant.workspace_id, session_id, after, limit),
            )
            return [SessionMessage(*row) for row in await cursor.fetchall()]
