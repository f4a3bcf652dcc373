"""Where the home of a workspace can be reached. With the system role."""

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
