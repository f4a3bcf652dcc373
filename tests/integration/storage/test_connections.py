"""Connections of the pool: waiting for one, and what its errors are."""

import asyncio
from collections.abc import Generator

import pytest

from tests.databases import DatabaseUrls
from tests.wait_until import PATIENCE
from toolcrib.core.errors import DatabaseBusy
from toolcrib.storage.database import Database, OperationalError, is_transient

# Iterations of the event loop between the release of a connection and its acquisition by the next waiter.
ROUNDS = range(12)


class Round:
    """Yield to the event loop once."""

    def __await__(self) -> Generator[None]:
        yield


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_cancellation_that_arrives_together_with_the_connection_is_not_lost(
    database_urls: DatabaseUrls, rounds: int
) -> None:
    async with Database.open(database_urls.app, database_urls.system, pool_size=1) as database:
        got_on = False

        async def work() -> None:
            nonlocal got_on
            async with database.connection():
                got_on = True
                await asyncio.Event().wait()

        async with database.connection():
            waiting = asyncio.create_task(work())
            async with asyncio.timeout(PATIENCE):
                while database._app.get_stats().get("requests_waiting", 0) == 0:
                    await Round()
        for _ in range(rounds):
            await Round()
        waiting.cancel()

        done, _ = await asyncio.wait([waiting], timeout=PATIENCE)

    assert done, f"It goes on for ever, {'with' if got_on else 'without'} its connection."
    assert waiting.cancelled()


async def test_lock_that_is_not_free_is_an_error_that_passes_for_whoever_outlives_a_lost_database(
    database: Database,
) -> None:
    with pytest.raises(DatabaseBusy) as raised:
        async with database.connection() as connection:
            await connection.execute("do $$ begin raise exception using errcode = 'lock_not_available'; end $$")

    assert raised.value.message.startswith("The database is busy")
    assert isinstance(raised.value, OperationalError)
    assert is_transient(raised.value)
