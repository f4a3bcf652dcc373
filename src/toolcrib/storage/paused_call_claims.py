"""Claims on approved calls: executed by one process at a time, and given up after a few attempts."""

from toolcrib.core.ids import PauseId, ProcessId, WorkspaceId
from toolcrib.core.paused_calls import ApprovedCall
from toolcrib.storage.database import Store
from toolcrib.storage.paused_calls import EXECUTABLE, JOINS, approved_call_from

# A run executes its own approved calls.
_IS_OPEN = "p.resumed_at is null and (p.state = 'stale' or (p.state = 'approved' and p.run_id is null))"
_IS_FREE = "(p.claimed_by is null or not toolcrib.process_is_alive(p.claimed_by, %(lease)s))"
_IS_AT_HOME = """exists (select from toolcrib.workspaces w
                         where w.id = p.workspace_id and coalesce(w.home_node, %(node)s) = %(node)s)"""


class PausedCallClaims(Store):
    """Queries of the resume worker, with the system role."""

    async def due(self, *, node: str, lease: float, limit: int) -> list[tuple[WorkspaceId, PauseId]]:
        """Return calls of this node's workspaces that no live process executes, oldest decision first."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                f"""
                select p.workspace_id, p.id from toolcrib.paused_calls p
                where p.state in ('approved', 'stale') and {_IS_OPEN} and {_IS_FREE} and {_IS_AT_HOME}
                order by p.decided_at limit %(limit)s
                """,  # noqa: S608 - constants of this module
                {"node": node, "lease": lease, "limit": limit},
            )
            return [(WorkspaceId(workspace_id), PauseId(id_)) for workspace_id, id_ in await cursor.fetchall()]

    async def attempts(self, workspace_id: WorkspaceId, pause_id: PauseId) -> int | None:
        """Return how many processes have started to execute a call. None if there is nothing left to execute."""
        async with self._database.as_system() as connection:
            row = await connection.fetch_row(
                f"""
                select p.attempts from toolcrib.paused_calls p
                where p.workspace_id = %s and p.id = %s and {_IS_OPEN}
                """,  # noqa: S608 - constants of this module
                (workspace_id, pause_id),
            )
        return None if row is None else int(row[0])

    async def claim(
        self, process_id: ProcessId, workspace_id: WorkspaceId, pause_id: PauseId, *, node: str, lease: float
    ) -> ApprovedCall | None:
        """Claim an approved call, or a stale one to ask about again, for a process of the workspace's home.

        None if there is nothing left to execute, or another live process does it.
        """
        async with self._database.as_system() as connection:
            row = await connection.fetch_one(
                dict,
                f"""
                with found as (
                    select p.workspace_id, p.id, p.claimed_at is not null as started_before
                    from toolcrib.paused_calls p
                    where p.workspace_id = %(workspace)s and p.id = %(pause)s and {_IS_OPEN} and {_IS_AT_HOME}
                      and (p.claimed_by = %(process)s or {_IS_FREE})
                    for update
                ), taken as (
                    update toolcrib.paused_calls p set claimed_by = %(process)s, claimed_at = now(),
                        -- Counted before the work starts, because this process may die during it.
                        attempts = p.attempts + case when p.claimed_by is distinct from %(process)s then 1 else 0 end
                    from found f
                    where p.workspace_id = f.workspace_id and p.id = f.id
                    returning p.workspace_id, p.id, f.started_before, p.attempts
                )
                {EXECUTABLE}, t.started_before, t.attempts
                from taken t join toolcrib.paused_calls p on p.workspace_id = t.workspace_id and p.id = t.id {JOINS}
                """,  # noqa: S608 - constants of this module and of storage/paused_calls
                {"process": process_id, "workspace": workspace_id, "pause": pause_id, "node": node, "lease": lease},
            )
        return None if row is None else approved_call_from(row)

    async def release(self, process_id: ProcessId, workspace_id: WorkspaceId, pause_id: PauseId) -> None:
        """Release a claim because this process stops: another may take it at once, and no attempt is counted."""
        async with self._database.as_system() as connection:
            await connection.execute(
                """
                update toolcrib.paused_calls set claimed_by = null, attempts = greatest(attempts - 1, 0)
                where workspace_id = %s and id = %s and resumed_at is null and claimed_by = %s
                """,
                (workspace_id, pause_id, process_id),
            )

    async def note_not_begun(self, process_id: ProcessId, workspace_id: WorkspaceId, pause_id: PauseId) -> None:
        """Note that this process, the first to claim a call, has not begun it: whoever claims it next may."""
        async with self._database.as_system() as connection:
            await connection.execute(
                """
                update toolcrib.paused_calls set claimed_at = null
                where workspace_id = %s and id = %s and resumed_at is null and claimed_by = %s
                """,
                (workspace_id, pause_id, process_id),
            )

    async def release_moved(
        self, process_id: ProcessId, workspace_id: WorkspaceId, pause_id: PauseId, *, node: str, lease: float
    ) -> bool:
        """Release a call for the node that has become the workspace's home. Returns False if that is this node."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                f"""
                update toolcrib.paused_calls p set claimed_by = null
                where p.workspace_id = %(workspace)s and p.id = %(pause)s and {_IS_OPEN} and not {_IS_AT_HOME}
                  and (p.claimed_by = %(process)s or {_IS_FREE})
                """,  # noqa: S608 - constants of this module
                {"process": process_id, "workspace": workspace_id, "pause": pause_id, "node": node, "lease": lease},
            )
            return cursor.rowcount > 0
