"""Limits on how much a person or a workspace may create. They are checked when something is created."""

from typing import Any, Final, LiteralString

from toolcrib.core.ids import UserId
from toolcrib.storage.database import Connection

API_KEYS: Final = 200
WORKSPACES: Final = 1_000
SESSIONS: Final = 100_000
OPEN_APPROVALS: Final = 1_000
INVITATIONS: Final = 100


async def one_at_a_time(connection: Connection, user_id: UserId | None) -> None:
    """Serialize the transactions of one person that check a limit, so that each counts the one before."""
    await connection.execute("select from toolcrib.users where id = %s for no key update", (user_id,))


async def has_all(connection: Connection, rows: LiteralString, parameters: tuple[Any, ...], *, most: int) -> bool:
    """Return whether the query has ``most`` rows or more; counts no further."""
    cursor = await connection.execute(
        f"select count(*) from ({rows} limit %s) counted",  # noqa: S608 - constants of the callers
        (*parameters, most),
    )
    row = await cursor.fetchone()
    return row is not None and row[0] >= most
