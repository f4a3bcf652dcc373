"""Waiting for a connection from the pool."""

import asyncio
from collections.abc import Generator

import pytest

from tests.databases import DatabaseUrls
from tests.wait_until import PATIENCE
from toolcrib.storage.database import Database

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
