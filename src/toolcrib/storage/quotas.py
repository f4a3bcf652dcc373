"""How much one person or one workspace may have of what they make themselves. Counted where it is made."""

from typing import Any, Final, LiteralString

from toolcrib.core.ids import UserId
from toolcrib.storage.database import Connection

API_KEYS: Final = 200
WORKSPACES: Final = 1_000
SESSIONS: Final = 100_000
OPEN_APPROVALS: Final = 1_000
INVITATIONS: Final = 100


async def one_at_a_time(connection: Connection, user_id: UserId | None) -> None:
    """Of a person's transactions that count what is theirs the second waits for the first, and counts it too."""
    await connection.execute("select from toolcrib.users where id = %s for no key update", (user_id,))


async def has_all(connection: Connection, rows: LiteralString, parameters: tuple[Any, ...], *, most: int) -> bool:
    """Whether the query gives ``most`` rows already; no more than that are counted."""
    cursor = await connection.execute(
        f"select count(*) from ({rows} limit %s) counted",  # noqa: S608 - constants of those who call
        (*parameters, most),
    )
    row = await cursor.fetchone()
    return row is not None and row[0] >= most
