"""Whether the database can serve: asked ahead, and told from its errors afterwards."""

import asyncio

import psycopg

from toolcrib.storage.database import Database

# What the driver and its pool raise when the fault may lie with the database, not with the statement.
OperationalError = psycopg.OperationalError

# Connection lost, lock or deadlock, out of room, shutting down: the same statement may succeed in a moment.
_PASSING = ("08", "40", "53", "55", "57")
_PATIENCE_SECONDS = 2


async def answers(database: Database) -> bool:
    """Whether the database serves right now."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS), database.connection() as connection:
            await connection.execute("select 1")
    except (psycopg.OperationalError, TimeoutError):
        return False
    return True


def is_passing(error: psycopg.OperationalError) -> bool:
    """Whether it is worth asking again. Without a state the statement never reached the database."""
    return error.sqlstate is None or error.sqlstate.startswith(_PASSING)
