"""Where the home of a workspace can be reached, or is to be. With the system role."""

from dataclasses import dataclass

from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.database import Store


@dataclass(frozen=True, slots=True)
class HomeAddress:
    """The node that has a workspace's files, and the URL of its internal listener, if it has one."""

    node: str
    address: str | None


class NodeAddressStore(Store):
    """Queries on the addresses of nodes."""

    async def home_of(self, workspace_id: WorkspaceId) -> HomeAddress | None:
        """Return the home of a workspace; None if it has none yet, or does not exist."""
        async with self._database.as_system() as connection:
            row = await connection.fetch_row(
                """
                select w.home_node, n.address
                from toolcrib.workspaces w left join toolcrib.nodes n on n.name = w.home_node
                where w.id = %s
                """,
                (workspace_id,),
            )
        return None if row is None or not row[0] else HomeAddress(*row)

    async def silent(self, *, seconds: float) -> set[str]:
        """Return the nodes without a heartbeat for this time."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                "select name from toolcrib.nodes where seen_at < now() - make_interval(secs => %s)", (seconds,)
            )
            return {name for (name,) in await cursor.fetchall()}

    async def for_new_workspace(self, *, lease: float) -> str | None:
        """Return a live node that others can reach and that is not draining: of two at random, that with fewer homes.

        None if there is none.
        """
        async with self._database.as_system() as connection:
            row = await connection.fetch_row(
                """
                select c.name from (
                    select n.name from toolcrib.nodes n
                    where n.address is not null and not n.is_draining and n.disk_id is not null
                      and n.seen_at > now() - make_interval(secs => %s)
                    order by random() limit 2
                ) c
                order by (select count(*) from toolcrib.workspaces w where w.home_node = c.name) limit 1
                """,
                (lease,),
            )
        return None if row is None else str(row[0])
