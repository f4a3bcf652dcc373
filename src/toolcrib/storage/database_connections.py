"""Connections that do not wait for ever for a database that is gone.

A machine that fails, or a firewall that forgets a connection, sends no reset: a read without a deadline never returns.
So the kernel looks whether the other side is there, and a statement without an answer ends with its connection.
"""

from typing import Any, Final, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

RV = TypeVar("RV")

# How long a statement may take, unless the operator sets it. All are short; see ``_OPTIONS`` in ``database.py``.
ANSWER_SECONDS: Final = 60.0
# As psycopg's own: how often it looks for a signal while it waits.
_INTERVAL: Final = 0.1
# A silent machine is noticed after 25 seconds if it owes an answer, and after 20 if it does not confirm what was sent.
_TCP: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


def with_tcp_deadlines(dsn: str, **more: Any) -> str:
    """Return the connection string with deadlines for a machine that is gone. Those that it sets itself stay."""
    return make_conninfo("", **{**_TCP, **conninfo_to_dict(dsn), **more})


class PatientConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed if a statement has no answer for ``answer_seconds``."""

    answer_seconds: float = ANSWER_SECONDS

    def wait(self, gen: PQGen[RV], interval: float = _INTERVAL, timeout: float | None = None) -> RV:
        """Wait for the answer of the database.

        Raises:
            OperationalError: There was none in time. The connection is closed.
        """
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        while True:
            try:
                return super().wait(gen, interval, self.answer_seconds)
            except errors._WaitTimeout:
                # Without a statement under way, it listens for notifications, and no answer is due.
                if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    self.pgconn.finish()
                    raise unanswered(self.answer_seconds) from None


def unanswered(seconds: float) -> psycopg.OperationalError:
    """Return the error of a statement that had no answer."""
    return psycopg.OperationalError(f"The database has not answered for {seconds:g} s. The connection was closed.")
