"""Homes: which node has the tree of a workspace, and how that changes. With the system role."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from toolcrib.core.errors import NotFound
from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.change_sets import workspace_lock
from toolcrib.storage.database import Connection, Store, Tenant

# A user's own directory is on the disk of its node, and nowhere else.
_MOVES = "w.root_path is null"
# A run, a call or a background process of the node is at work in it.
_IS_BUSY = """(exists (select from toolcrib.runs r where r.workspace_id = w.id and r.state = 'running')
               or exists (select from toolcrib.server_processes p
                          where p.node = w.home_node
                            and (exists (select from toolcrib.tool_calls c
                                         where c.process_id = p.id and c.state = 'running' and c.workspace_id = w.id)
                                 or exists (select from toolcrib.background_processes b
                                            where b.process_id = p.id and b.ended_ns is null
                                              and b.workspace_id = w.id))))"""


@dataclass(frozen=True, slots=True)
class Node:
    """A node, as operators see it."""

    name: str
    seen_at: datetime
    is_alive: bool
    is_draining: bool
    processes: int
    workspaces: int


@dataclass(frozen=True, slots=True)
class NodeHeartbeat:
    """The last heartbeat of a node, by the database's clock."""

    name: str
    seen_at: datetime
    is_silent: bool
    is_draining: bool


class HomeStore(Store):
    """Queries on nodes and on the homes of workspaces."""

    async def nodes(self, *, lease: float) -> list[Node]:
        """Return all nodes, by name."""
        async with self._database.as_system() as connection:
            return await connection.fetch_all(
                Node,
                """
                select n.name, n.seen_at, n.seen_at > now() - make_interval(secs => %(lease)s) as is_alive,
                       n.is_draining,
                       (select count(*) from toolcrib.live_processes(%(lease)s)
                        join toolcrib.server_processes p using (id) where p.node = n.name) as processes,
                       (select count(*) from toolcrib.workspaces w where w.home_node = n.name) as workspaces
                from toolcrib.nodes n order by n.name
                """,
                {"lease": lease},
            )

    async def set_draining(self, node: str, *, is_draining: bool) -> None:
        """Let a node give its workspaces away and get no new ones, or end that.

        Raises:
            NotFound: There was never a node of this name.
        """
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                "update toolcrib.nodes set is_draining = %s where name = %s", (is_draining, node)
            )
        if cursor.rowcount == 0:
            raise NotFound(f"There is no node {node!r}. `toolcrib nodes list` shows them.")

    async def look(self, *, lease: float) -> list[NodeHeartbeat]:
        """Return the last heartbeat of every node."""
        async with self._database.as_system() as connection:
            return await connection.fetch_all(
                NodeHeartbeat,
                """
                select name, seen_at, seen_at < now() - make_interval(secs => %s) as is_silent, is_draining
                from toolcrib.nodes order by name
                """,
                (lease,),
            )

    async def at(self, node: str, workspace_ids: Collection[WorkspaceId]) -> set[WorkspaceId]:
        """Return which of these workspaces have this node as their home."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                "select id from toolcrib.workspaces where id = any (%s) and home_node = %s",
                (list(workspace_ids), node),
            )
            return {WorkspaceId(id_) for (id_,) in await cursor.fetchall()}

    async def elsewhere(self, node: str, workspace_ids: Collection[WorkspaceId]) -> list[WorkspaceId]:
        """Return which of these workspaces have another home."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                "select id from toolcrib.workspaces where id = any (%s) and home_node not in ('', %s)",
                (list(workspace_ids), node),
            )
            return [WorkspaceId(id_) for (id_,) in await cursor.fetchall()]

    async def take_over(self, node: str, silent: Sequence[str], *, lease: float, limit: int) -> list[WorkspaceId]:
        """Become the home of some workspaces of silent nodes. Returns which; none if other nodes are at the rest.

        A workspace whose lock a session of the silent node still holds is left for later: it may be committing.
        """
        async with self._database.as_system() as connection, connection.transaction():
            cursor = await connection.execute(
                f"""
                select w.id from toolcrib.workspaces w
                join toolcrib.nodes n on n.name = w.home_node and n.seen_at < now() - make_interval(secs => %(lease)s)
                where w.home_node = any (%(silent)s) and {_MOVES}
                order by w.home_node, w.id limit %(limit)s for no key update of w skip locked
                """,  # noqa: S608 - a constant of this module
                {"silent": list(silent), "lease": lease, "limit": limit},
            )
            return await _move(connection, [WorkspaceId(id_) for (id_,) in await cursor.fetchall()], node)

    async def idle_at(self, node: str, *, after: WorkspaceId | None, limit: int) -> list[WorkspaceId]:
        """Return workspaces of this node that nothing is at work in, by id."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                f"""
                select w.id from toolcrib.workspaces w
                where w.home_node = %(node)s and (%(after)s::uuid is null or w.id > %(after)s)
                  and {_MOVES} and not {_IS_BUSY} order by w.id limit %(limit)s
                """,  # noqa: S608 - constants of this module
                {"node": node, "after": after, "limit": limit},
            )
            return [WorkspaceId(id_) for (id_,) in await cursor.fetchall()]

    async def give_away(self, node: str, workspace_ids: Sequence[WorkspaceId], to: str) -> list[WorkspaceId]:
        """Make another node the home of those of these workspaces that nothing is at work in. Returns which."""
        async with self._database.as_system() as connection, connection.transaction():
            cursor = await connection.execute(
                f"""
                select w.id from toolcrib.workspaces w
                where w.id = any (%s) and w.home_node = %s and {_MOVES} and not {_IS_BUSY}
                order by w.id for no key update of w skip locked
                """,  # noqa: S608 - constants of this module
                (list(workspace_ids), node),
            )
            return await _move(connection, [WorkspaceId(id_) for (id_,) in await cursor.fetchall()], to)

    async def successor_of(self, node: str, *, lease: float) -> str | None:
        """Return the other live node with the fewest workspaces that is not draining; None if there is none."""
        others = [one for one in await self.nodes(lease=lease) if one.is_alive and not one.is_draining]
        found = min((one for one in others if one.name != node), key=lambda one: one.workspaces, default=None)
        return None if found is None else found.name


async def set_home_epoch(connection: Connection, tenant: Tenant, epoch: int) -> None:
    """Raise the home epoch of a workspace to that of its tree. The caller holds the lock of the whole workspace."""
    await connection.execute(
        "update toolcrib.workspaces set home_epoch = %s where id = %s and home_epoch < %s",
        (epoch, tenant.workspace_id, epoch),
    )


async def _move(connection: Connection, workspace_ids: Sequence[WorkspaceId], node: str) -> list[WorkspaceId]:
    """Change the home of those of these workspaces whose lock is free. Their rows are locked.

    Every commit holds that lock and has looked up the home under it: once it is ours, no commit with the old home is
    under way, and none comes.
    """
    cursor = await connection.execute(
        """
        update toolcrib.workspaces w set home_node = %s, home_epoch = w.home_epoch + 1
        from (select f.id from unnest(%s::uuid[], %s::bigint[]) as f (id, lock)
              where pg_try_advisory_xact_lock(f.lock)) free
        where w.id = free.id returning w.id
        """,
        (node, list(workspace_ids), [workspace_lock(id_) for id_ in workspace_ids]),
    )
    moved = [WorkspaceId(id_) for (id_,) in await cursor.fetchall()]
    # They ran on the tree of the old home, which ends them when it is back.
    await connection.execute(
        """
        update toolcrib.background_processes set ended_ns = started_ns, stop_reason = 'its node was replaced'
        where workspace_id = any (%s) and ended_ns is null
        """,
        (moved,),
    )
    return moved
