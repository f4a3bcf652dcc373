"""Regular expression search in PostgreSQL: its engine can be interrupted, Python's cannot."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from toolcrib.core.errors import BadArguments, TimedOut
from toolcrib.storage.database import Connection, Store, Tenant

_QUERIES = {
    ignore_case: f"""
        select n from string_to_table(%s, e'\\n') with ordinality as lines (line, n)
        where line {operator} %s order by n limit %s
        """  # noqa: S608 - one of two operators
    for ignore_case, operator in ((False, "~"), (True, "~*"))
}


class PostgresRegex(Store):
    """Finds the matching lines of a text. Uses no table."""

    async def lines(
        self, tenant: Tenant, text: str, pattern: str, *, ignore_case: bool, seconds: float, limit: int
    ) -> list[int]:
        """Return the numbers of at most ``limit`` matching lines, counted from 0.

        Raises:
            TimedOut: The search took longer than ``seconds``.
        """
        # PostgreSQL text cannot contain NUL; its replacement is matched as one character too.
        given = (without_nul(text), without_nul(pattern), limit)
        async with (
            self._database.connection(tenant) as connection,
            connection.transaction(),
            bounded_matching(connection, pattern, seconds=seconds),
        ):
            cursor = await connection.execute(_QUERIES[ignore_case].encode(), given)
            return [number - 1 for (number,) in await cursor.fetchall()]


@asynccontextmanager
async def bounded_matching(connection: Connection, pattern: str, *, seconds: float) -> AsyncIterator[None]:
    """Limit the time of the statements within, which match ``pattern``. Must run within a transaction.

    Raises:
        TimedOut: A statement took longer than ``seconds``.
        BadArguments: The pattern is invalid.
    """
    try:
        pattern.encode()
    except UnicodeEncodeError:
        raise BadArguments({"pattern": "Not valid Unicode: it contains a lone surrogate."}) from None
    try:
        await connection.execute(
            "select set_config('statement_timeout', %s, true)", (str(max(1, int(seconds * 1000))),)
        )
        yield
    except psycopg.errors.QueryCanceled:
        raise TimedOut("The pattern takes too long on these files. Use a simpler one, or fewer files.") from None
    except psycopg.errors.InvalidRegularExpression as error:
        reason = (error.diag.message_primary or "").removeprefix("invalid regular expression: ")
        raise BadArguments({"pattern": f"Invalid regular expression: {reason}."}) from None


def without_nul(text: str) -> str:
    """Return the text with NUL replaced, as PostgreSQL can store it."""
    return text.replace("\0", "\ufffd")
