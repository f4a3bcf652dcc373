"""Live server processes and their heartbeats. With the system role."""

import psycopg

from toolcrib.core.ids import ProcessId
from toolcrib.storage.database import Store


class ServerProcessStore(Store):
    """Queries on server processes."""

    async def remove(self, process_id: ProcessId) -> None:
        """Remove a process. Its claims are free at once."""
        async with self._database.as_system() as connection:
            await connection.execute("delete from toolcrib.server_processes where id = %s", (process_id,))

    async def alive(self, *, seconds: float) -> list[ProcessId]:
        """Return the processes with a heartbeat in this time."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                "select id from toolcrib.server_processes where heartbeat_at > now() - make_interval(secs => %s)",
                (seconds,),
            )
            return [ProcessId(id_) for (id_,) in await cursor.fetchall()]

    async def delete_dead(self, *, seconds: float) -> None:
        """Delete processes without a heartbeat for this time."""
        async with self._database.as_system() as connection:
            await connection.execute(
                "delete from toolcrib.server_processes where heartbeat_at < now() - make_interval(secs => %s)",
                (seconds,),
            )


def forget_those_of(node: str, dsn: str) -> None:
    """Delete all processes of a node that is known to have none alive. Their claims are free at once."""
    with psycopg.connect(dsn, autocommit=True, connect_timeout=5) as connection:
        connection.execute("delete from toolcrib.server_processes where node = %s", (node,))


class HeartbeatConnection:
    """Sends heartbeats on its own connection, from a thread: a busy server is not dead."""

    def __init__(self, dsn: str, process_id: ProcessId, node: str) -> None:
        self._dsn = dsn
        self._process_id = process_id
        self._node = node
        self._connection: psycopg.Connection | None = None

    def beat(self) -> None:
        """Send a heartbeat. Raises if the database cannot be reached."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._dsn, autocommit=True, connect_timeout=5)
        self._connection.execute(
            """
            insert into toolcrib.server_processes (id, node) values (%s, %s)
            on conflict (id) do update set heartbeat_at = now()
            """,
            (self._process_id, self._node),
        )

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
