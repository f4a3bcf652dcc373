"""Workspaces that are being deleted, as rows. With the system role."""

from dataclasses import dataclass
from datetime import timedelta

from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.database import Database


@dataclass(frozen=True, slots=True)
class DeletedWorkspace:
    """What remains to be removed: the rows, or the files on one node."""

    workspace_id: WorkspaceId
    node: str

    @property
    def is_rows(self) -> bool:
        """Whether it is about the rows."""
        return not self.node


class DeletedWorkspaceStore:
    """Queries of the workspace deletion."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, *, node: str, process: str, lease: float, again_after: timedelta) -> list[DeletedWorkspace]:
        """Claim deletions that no live process works on: unfinished ones, and finished ones due for a second pass."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                with due as (
                    select d.workspace_id, d.node from toolcrib.deleted_workspaces d
                    where d.node in ('', %(node)s)
                      and (d.finished_at is null or d.finished_at < now() - %(again)s)
                      and (d.claimed_by is null or d.claimed_by = %(process)s
                           or not toolcrib.process_is_alive(d.claimed_by, %(lease)s))
                    order by d.deleted_at limit 10 for update skip locked
                )
                update toolcrib.deleted_workspaces d set claimed_by = %(process)s
                from due where d.workspace_id = due.workspace_id and d.node = due.node
                returning d.workspace_id, d.node
                """,
                {"node": node, "process": process, "lease": lease, "again": again_after},
            )
            return [DeletedWorkspace(*row) for row in await cursor.fetchall()]

    async def remove_rows(self, workspace_id: WorkspaceId, *, limit: int) -> int:
        """Delete up to ``limit`` rows of each table except the audit log. Returns how many; 0 if none are left."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute("select toolcrib.remove_rows(%s, %s)", (workspace_id, limit))
            row = await cursor.fetchone()
        return int(row[0]) if row else 0

    async def finish(self, deleted: DeletedWorkspace) -> None:
        """Mark as finished. The second time, delete the row as well."""
        async with self._database.as_system() as connection, connection.transaction():
            cursor = await connection.execute(
                """
                delete from toolcrib.deleted_workspaces
                where workspace_id = %s and node = %s and finished_at is not null
                """,
                (deleted.workspace_id, deleted.node),
            )
            if cursor.rowcount == 0:
                await connection.execute(
                    """
                    update toolcrib.deleted_workspaces set finished_at = now(), claimed_by = null
                    where workspace_id = %s and node = %s
                    """,
                    (deleted.workspace_id, deleted.node),
                )
