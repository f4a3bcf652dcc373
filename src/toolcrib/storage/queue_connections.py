"""The connections of the durable queue's engine. With the system role.

The engine would close its own while threads that it leaves behind still use them, and so lose them.
"""

import time
from typing import Final

from sqlalchemy import QueuePool, create_engine, make_url

# How long closing waits for statements that are under way.
_WAIT_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.02


class QueueConnections:
    """A pool of connections. ``engine`` is what DBOS takes."""

    def __init__(self, dsn: str, *, size: int, name: str) -> None:
        self.engine = create_engine(
            make_url(dsn).set(drivername="postgresql+psycopg"),
            poolclass=QueuePool,
            pool_size=size,
            max_overflow=0,
            connect_args={
                "application_name": name,
                "connect_timeout": 10,
                # A process that was suspended within a transaction must not keep its locks.
                "options": "-c idle_in_transaction_session_timeout=60s",
            },
        )

    def close(self) -> None:
        """Close the connections once they are no longer in use."""
        pool, deadline = self.engine.pool, time.monotonic() + _WAIT_SECONDS
        assert isinstance(pool, QueuePool)
        while pool.checkedout() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        self.engine.dispose()
