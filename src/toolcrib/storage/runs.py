"""Runs as people use them: submit, get, cancel. Their execution is in ``run_steps``."""

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
        """Submit a user's message: its run starts now or, while the session has another run, later."""
        run_id = RunId(new_id())
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            cursor = await connection.execute(
                """
                select agent_id, last_message_position from toolcrib.sessions
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
        """Return one run."""
        async with self._database.transaction(tenant) as connection:
            return await one_run(connection, tenant, run_id)

    async def unfinished(self, tenant: Tenant, session_id: SessionId) -> Run | None:
        """Return the session's run that has not ended, if there is one."""
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
        """Return a session's runs, newest first."""
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
        """Cancel a run. One without a process ends at once; others notice it within a second."""
        return await self._cancel_queued(tenant, run_id) or await self._cancel_begun(tenant, run_id)

    async def _cancel_queued(self, tenant: Tenant, run_id: RunId) -> Run | None:
        """End a queued run; returns None if it has started.

        Locks the session first, as everything that starts runs does.
        """
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
                raise Conflict(f"The run has already ended: {run.end_reason}.")
            if run.state is RunState.WAITING:
                # The process that claims it sees that it was cancelled, and ends it properly.
                await connection.execute("select toolcrib.set_run_ready(%s, %s)", (tenant.workspace_id, run_id))
        return run

    async def messages(
        self, tenant: Tenant, session_id: SessionId, *, after: int = 0, limit: int = 200
    ) -> list[SessionMessage]:
        """Return a session's messages in order, including compacted ones."""
        async with self._database.transaction(tenant) as connection:
            await require_session(connection, tenant, session_id)
            cursor = await connection.execute(
                MESSAGES + "where workspace_id = %s and session_id = %s and position > %s order by position limit %s",
                (tenant.workspace_id, session_id, after, limit),
            )
            return [SessionMessage(*row) for row in await cursor.fetchall()]
