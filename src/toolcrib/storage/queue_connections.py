"""The connections of the durable queue's engine. With the system role.

The engine would close its own while threads that it leaves behind still use them, and so lose them.
"""

import time
from typing import Final

from sqlalchemy import QueuePool, create_engine, make_url

from toolcrib.storage.database_connections import PatientConnection, with_tcp_deadlines

# How long closing waits for statements that are under way.
_WAIT_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.02


class QueueConnections:
    """A pool of connections. ``engine`` is what DBOS takes."""

    def __init__(self, dsn: str, *, size: int, name: str, answer_seconds: float) -> None:
        # A process that was suspended within a transaction must not keep its locks.
        options = "-c idle_in_transaction_session_timeout=60s"
        conninfo = with_tcp_deadlines(dsn, application_name=name, options=options)

        def connect() -> PatientConnection:
            connection = PatientConnection.connect(conninfo)
            connection.answer_seconds = answer_seconds
            return connection

        self.engine = create_engine(
            # The engine shows the address in its log, and connects to what is given here.
            make_url(dsn).set(drivername="postgresql+psycopg"),
            creator=connect,
            poolclass=QueuePool,
            pool_size=size,
            max_overflow=0,
        )

    def close(self) -> None:
        """Close the connections once they are no longer in use."""
        pool, deadline = self.engine.pool, time.monotonic() + _WAIT_SECONDS
        assert isinstance(pool, QueuePool)
        while pool.checkedout() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        self.engine.dispose()
