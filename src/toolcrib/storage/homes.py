"""Homes: which node has the tree of a workspace, and how that changes. With the system role."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from toolcrib.core.errors import Conflict, NotFound, Superseded
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
    # Of its internal listener, if it has one.
    address: str | None
    processes: int
    workspaces: int


@dataclass(frozen=True, slots=True)
class NodeHeartbeat:
    """The last heartbeat of a node, by the database's clock."""

    name: str
    seen_at: datetime
    is_silent: bool
    is_draining: bool
    # Whether it has workspaces that other nodes may take over.
    has_homes: bool


class HomeStore(Store):
    """Queries on nodes and on the homes of workspaces."""

    async def nodes(self, *, lease: float) -> list[Node]:
        """Return all nodes, by name."""
        async with self._database.as_system() as connection:
            return await connection.fetch_all(
                Node,
                """
                select n.name, n.seen_at, n.seen_at > now() - make_interval(secs => %(lease)s) as is_alive,
                       n.is_draining, n.address,
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

    async def rename(self, old: str, new: str, disk_id: UUID, *, lease: float) -> None:
        """Give a stopped node another name: whatever names it, names the new one. May be repeated.

        Args:
            disk_id: Of its data directory, so that nobody renames another node by mistake.

        Raises:
            NotFound: There was never a node of this name.
            Conflict: It runs, or has another data directory, or the new name is another node's.
        """
        async with self._database.as_system() as connection, connection.transaction():
            cursor = await connection.execute(
                """
                select n.name, n.disk_id, exists (select from toolcrib.live_processes(%(lease)s)
                                                  join toolcrib.server_processes p using (id) where p.node = n.name)
                from toolcrib.nodes n where n.name in (%(old)s, %(new)s) order by n.name for update
                """,
                {"old": old, "new": new, "lease": lease},
            )
            known = {name: (disk, is_alive) for name, disk, is_alive in await cursor.fetchall()}
            if old not in known and known.get(new, (None, False))[0] == disk_id:
                # An interrupted renaming came this far.
                return
            _require_renamable(old, new, known, disk_id)
            if new in known and await self._has_homes(connection, new):
                raise Conflict(f"There is a node {new!r} with workspaces of its own. Choose another name.")
            for statement in _RENAMES:
                await connection.execute(statement, {"old": old, "new": new})

    async def _has_homes(self, connection: Connection, node: str) -> bool:
        row = await connection.returned_row(
            "select exists (select from toolcrib.workspaces where home_node = %s)", (node,)
        )
        return bool(row[0])

    async def look(self, *, lease: float) -> list[NodeHeartbeat]:
        """Return the last heartbeat of every node."""
        async with self._database.as_system() as connection:
            return await connection.fetch_all(
                NodeHeartbeat,
                """
                select n.name, n.seen_at, n.seen_at < now() - make_interval(secs => %s) as is_silent, n.is_draining,
                       n.disk_id is not null
                       and exists (select from toolcrib.workspaces w
                                   where w.home_node = n.name and w.root_path is null) as has_homes
                from toolcrib.nodes n order by n.name
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

        A workspace whose lock a session of the silent node still holds is left for later: it may be committing. The
        disk of a local server is its user's, and nobody takes it over.
        """
        async with self._database.as_system() as connection, connection.transaction():
            cursor = await connection.execute(
                f"""
                select w.id from toolcrib.workspaces w
                join toolcrib.nodes n on n.name = w.home_node and n.seen_at < now() - make_interval(secs => %(lease)s)
                where w.home_node = any (%(silent)s) and n.disk_id is not null and {_MOVES}
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
        """Return another live node that is not draining: of two at random, the one with fewer workspaces.

        None if there is none. To count the workspaces of all nodes each time would take long.
        """
        async with self._database.as_system() as connection:
            row = await connection.fetch_row(
                """
                select c.name from (
                    select n.name from toolcrib.nodes n
                    where n.name <> %(node)s and not n.is_draining and n.disk_id is not null
                      and n.seen_at > now() - make_interval(secs => %(lease)s)
                    order by random() limit 2
                ) c
                order by (select count(*) from toolcrib.workspaces w where w.home_node = c.name) limit 1
                """,
                {"node": node, "lease": lease},
            )
        return None if row is None else str(row[0])


# Whatever names a node. A queue's name has the node's in it, see ``enqueue_workflow`` in SQL.
_RENAMES: tuple[LiteralString, ...] = (
    "delete from toolcrib.nodes where name = %(new)s",
    "update toolcrib.nodes set name = %(new)s where name = %(old)s",
    "delete from toolcrib.server_processes where node in (%(old)s, %(new)s)",
    "update toolcrib.workspaces set home_node = %(new)s where home_node = %(old)s",
    """update toolcrib.workspaces set former_homes = array_replace(former_homes, %(old)s, %(new)s)
       where former_homes @> array[%(old)s]""",
    "update toolcrib.trash set node = %(new)s where node = %(old)s",
    "update toolcrib.background_processes set node = %(new)s where node = %(old)s",
    """delete from toolcrib.deleted_workspaces d using toolcrib.deleted_workspaces o
       where d.node = %(new)s and o.node = %(old)s and o.workspace_id = d.workspace_id""",
    "update toolcrib.deleted_workspaces set node = %(new)s where node = %(old)s",
    "update dbos.workflow_status set queue_name = 'runs@' || %(new)s where queue_name = 'runs@' || %(old)s",
)


def _require_renamable(old: str, new: str, known: Mapping[str, tuple[UUID | None, bool]], disk_id: UUID) -> None:
    if old not in known:
        raise NotFound(f"There is no node {old!r}. `toolcrib nodes list` shows them.")
    if known[old][0] not in (None, disk_id):
        raise Conflict(f"Node {old!r} has another data directory than this one. Run this command there.")
    for name in (old, new):
        if name in known and known[name][1]:
            raise Conflict(f"Node {name!r} is running. Stop its servers first.")


async def set_home_epoch(connection: Connection, tenant: Tenant, epoch: int) -> None:
    """Raise the home epoch of a workspace to that of its tree. The caller holds the lock of the whole workspace."""
    await connection.execute(
        "update toolcrib.workspaces set home_epoch = %s where id = %s and home_epoch < %s",
        (epoch, tenant.workspace_id, epoch),
    )


async def take_back(connection: Connection, tenant: Tenant, node: str, *, epoch: int) -> int | None:
    """Make this node the home again of a workspace that another one took over and has not used. Returns the new epoch.

    The caller holds the lock of the whole workspace. A draining node takes nothing back.

    Args:
        epoch: Of the tree that this node still has. A new home raises the epoch once more before it reads or writes
            anything: so the next epoch means that the tree is as this node left it.
    """
    row = await connection.fetch_row(
        f"""
        update toolcrib.workspaces w
        set home_node = %(node)s, home_epoch = w.home_epoch + 1,
            former_homes = array_append(array_remove(w.former_homes, w.home_node), w.home_node)
        where w.id = %(workspace)s and w.home_epoch = %(epoch)s + 1 and w.home_node not in ('', %(node)s)
          and {_MOVES} and not {_IS_BUSY}
          and not exists (select from toolcrib.nodes n where n.name = %(node)s and n.is_draining)
        returning w.home_epoch
        """,  # noqa: S608 - constants of this module
        {"node": node, "workspace": tenant.workspace_id, "epoch": epoch},
    )
    return None if row is None else int(row[0])


async def require_disk(connection: Connection, node: str, disk_id: UUID) -> None:
    """Raise Superseded if another disk is now that of the node. The caller holds the lock of a whole workspace."""
    row = await connection.fetch_row("select disk_id from toolcrib.nodes where name = %s", (node,))
    if row is not None and row[0] not in (None, disk_id):
        raise Superseded(f"Another disk is now that of node {node!r}. Stop this server.")


async def _move(connection: Connection, workspace_ids: Sequence[WorkspaceId], node: str) -> list[WorkspaceId]:
    """Change the home of those of these workspaces whose lock is free. Their rows are locked.

    Every commit holds that lock and has looked up the home under it: once it is ours, no commit with the old home is
    under way, and none comes.
    """
    cursor = await connection.execute(
        """
        update toolcrib.workspaces w
        set home_node = %s, home_epoch = w.home_epoch + 1,
            former_homes = array_append(array_remove(w.former_homes, w.home_node), w.home_node)
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
