"""Which server processes are alive. As the system."""

import psycopg

from toolcrib.core.ids import ProcessId
from toolcrib.storage.database import Database


class ServerProcessStore:
    """Queries on processes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def remove(self, process_id: ProcessId) -> None:
        """What it had in hand is free at once."""
        async with self._database.as_system() as connection:
            await connection.execute("delete from toolcrib.processes where id = %s", (process_id,))

    async def delete_dead(self, *, seconds: float) -> None:
        async with self._database.as_system() as connection:
            await connection.execute(
                "delete from toolcrib.processes where beat_at < now() - make_interval(secs => %s)", (seconds,)
            )


def forget_those_of(node: str, dsn: str) -> None:
    """For a node of which it is known that no process is alive: what they had in hand is free at once."""
    with psycopg.connect(dsn, autocommit=True, connect_timeout=5) as connection:
        connection.execute("delete from toolcrib.processes where node = %s", (node,))


class HeartbeatConnection:
    """Beats on a connection of its own, from a thread: a server that is busy is not dead."""

    def __init__(self, dsn: str, process_id: ProcessId, node: str) -> None:
        self._dsn = dsn
        self._process_id = process_id
        self._node = node
        self._connection: psycopg.Connection | None = None

    def beat(self) -> None:
        """Says that the process is alive; raises if it cannot be said."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._dsn, autocommit=True, connect_timeout=5)
        self._connection.execute(
            """
            insert into toolcrib.processes (id, node) values (%s, %s)
            on conflict (id) do update set beat_at = now()
            """,
            (self._process_id, self._node),
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
