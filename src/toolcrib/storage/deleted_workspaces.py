"""Workspaces that are being deleted, as rows. As the system."""

from dataclasses import dataclass
from datetime import timedelta

from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.database import Database


@dataclass(frozen=True, slots=True)
class DeletedWorkspace:
    """What is left to remove: the rows, or what lies on the disk of one node."""

    workspace_id: WorkspaceId
    node: str

    @property
    def is_rows(self) -> bool:
        return not self.node


class DeletedWorkspaceStore:
    """Queries of whoever removes them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, *, node: str, process: str, lease: float, again_after: timedelta) -> list[DeletedWorkspace]:
        """Takes what nobody alive is at: what is not finished, and what was, to look once more before it is dropped."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                with due as (
                    select d.workspace_id, d.node from toolcrib.deleted_workspaces d
                    where d.node in ('', %(node)s)
                      and (d.finished_at is null or d.finished_at < now() - %(again)s)
                      and (d.claimed_by is null or d.claimed_by = %(process)s
                           or not toolcrib.is_alive(d.claimed_by, %(lease)s))
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
        """Removes up to ``limit`` rows of each table, but for the audit log's; returns how many. None: all are gone."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute("select toolcrib.remove_rows(%s, %s)", (workspace_id, limit))
            row = await cursor.fetchone()
        return int(row[0]) if row else 0

    async def finish(self, deleted: DeletedWorkspace) -> None:
        """All of it is gone. The second time the row goes, too."""
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
