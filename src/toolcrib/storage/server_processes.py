"""Live server processes and their heartbeats. With the system role."""

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg

from toolcrib.core.errors import Superseded
from toolcrib.core.ids import ProcessId
from toolcrib.storage.database import Connection, Store, session_name
from toolcrib.storage.database_connections import ANSWER_SECONDS, PatientConnection, with_tcp_deadlines


class ServerProcessStore(Store):
    """Queries on server processes."""

    async def alive(self, *, seconds: float) -> list[ProcessId]:
        """Return the processes with a heartbeat in this time."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute("select id from toolcrib.live_processes(%s)", (seconds,))
            return [ProcessId(id_) for (id_,) in await cursor.fetchall()]

    async def any_of(self, node: str) -> bool:
        """Return whether a process of this node has not been removed: it lives, or it was killed."""
        async with self._database.as_system() as connection:
            row = await connection.returned_row(
                "select exists (select from toolcrib.server_processes where node = %s)", (node,)
            )
        return bool(row[0])

    async def end_sessions_of_dead(self, *, seconds: float) -> int:
        """End the database sessions of processes without a heartbeat for this time. Returns how many there were.

        A process that is suspended, or cut off, keeps its sessions and with them its locks. Each role may end the
        sessions of its own, so this needs no privilege.
        """
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                "select id::text from toolcrib.server_processes where heartbeat_at < now() - make_interval(secs => %s)",
                (seconds,),
            )
            dead = [id_ for (id_,) in await cursor.fetchall()]
            if not dead:
                return 0
            ended = await _end_sessions(connection, dead)
        async with self._database.connection() as connection:
            return ended + await _end_sessions(connection, dead)

    async def delete_dead(self, *, seconds: float) -> None:
        """Delete processes without a heartbeat for this time."""
        async with self._database.as_system() as connection:
            await connection.execute(
                "delete from toolcrib.server_processes where heartbeat_at < now() - make_interval(secs => %s)",
                (seconds,),
            )


async def _end_sessions(connection: Connection, process_ids: Sequence[str]) -> int:
    row = await connection.returned_row(
        """
        select count(*) filter (where pg_terminate_backend(a.pid)) from pg_stat_activity a
        where a.datname = current_database() and a.usename = current_user
          and a.application_name like 'toolcrib%%' and split_part(a.application_name, ' ', 2) = any (%s)
        """,
        (list(process_ids),),
    )
    return int(row[0])


def forget_those_of(node: str, dsn: str) -> None:
    """Delete all processes of a node that is known to have none alive. Their claims are free at once."""
    with psycopg.connect(dsn, autocommit=True, connect_timeout=5) as connection:
        connection.execute("delete from toolcrib.server_processes where node = %s", (node,))


class HeartbeatConnection:
    """Sends heartbeats on its own connection, from a thread: a busy server is not dead.

    ``disk_id`` is that of the node's data directory. Without one, the node is a local server.
    """

    def __init__(
        self,
        dsn: str,
        process_id: ProcessId,
        node: str,
        disk_id: UUID | None = None,
        *,
        address: str | None = None,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._dsn = dsn
        self._process_id = process_id
        self._node = node
        self._disk_id = disk_id
        self._address = address
        self._answer_seconds = answer_seconds
        self._connection: PatientConnection | None = None
        # The database's time, minus the time of this process's monotonic clock.
        self._clock_offset = 0.0

    def register(self, *, lease: float) -> bool:
        """Send the first heartbeat, and make this disk the node's. Raises if the database cannot be reached.

        Returns False, and registers nothing, if a live process of this node uses another disk: both would think that
        they have the node's workspaces.
        """
        connection = self._opened()
        with connection.transaction():
            # The row's lock makes processes that start at the same time take turns.
            connection.execute("insert into toolcrib.nodes (name) values (%s) on conflict do nothing", (self._node,))
            [known] = _row(
                connection.execute("select disk_id from toolcrib.nodes where name = %s for update", (self._node,))
            )
            [is_alive] = _row(
                connection.execute(
                    """
                    select exists (select from toolcrib.live_processes(%s)
                                   join toolcrib.server_processes p using (id) where p.node = %s)
                    """,
                    (lease, self._node),
                )
            )
            if is_alive and known != self._disk_id:
                return False
            connection.execute("update toolcrib.nodes set disk_id = %s where name = %s", (self._disk_id, self._node))
            self._send(connection)
        return True

    def beat(self) -> None:
        """Send a heartbeat. Raises if the database cannot be reached, or if another disk is now the node's."""
        if self._connection is not None and not self._connection.closed:
            try:
                return self._send(self._connection)
            except psycopg.OperationalError:
                # Others ended it while this process was suspended. They do so again until it has a heartbeat.
                self._connection.close()
        return self._send(self._opened())

    def database_time(self) -> float:
        """Return the time by the database's clock, which is the same for all nodes, in seconds since 1970."""
        return time.monotonic() + self._clock_offset

    def _send(self, connection: psycopg.Connection) -> None:
        began = time.monotonic()
        cursor = connection.execute(
            """
            with node as (
                insert into toolcrib.nodes as n (name, disk_id, address) values (%(node)s, %(disk)s, %(address)s)
                on conflict (name) do update set seen_at = now(), address = excluded.address
                where n.disk_id is not distinct from excluded.disk_id
                returning name
            )
            insert into toolcrib.server_processes (id, node) select %(process)s, name from node
            on conflict (id) do update set heartbeat_at = now()
            returning clock_timestamp()
            """,
            {"process": self._process_id, "node": self._node, "disk": self._disk_id, "address": self._address},
        )
        row = cursor.fetchone()
        if row is None:
            raise Superseded(f"Another disk is now that of node {self._node!r}. Stop this server.")
        self._clock_offset = row[0].timestamp() - (began + time.monotonic()) / 2

    def remove(self) -> None:
        """Remove the process, after its last heartbeat: its claims are free at once. Raises as ``beat`` does."""
        if self._connection is not None:
            self._connection.execute("delete from toolcrib.server_processes where id = %s", (self._process_id,))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def _opened(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            name = session_name("toolcrib-heart", self._process_id)
            self._connection = PatientConnection.connect(
                with_tcp_deadlines(self._dsn, application_name=name, connect_timeout=5), autocommit=True
            )
            self._connection.answer_seconds = self._answer_seconds
        return self._connection


def _row(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None
    return row
