"""A session that someone watches, on one node or on two that share a Redis of their own."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.integration.live.cast import Story, new_story
from tests.integration.live.redis_server import RedisServer
from toolcrib.engine.live import Live
from toolcrib.settings import Settings
from toolcrib.storage.database import Database


@pytest.fixture
async def story(database: Database, settings: Settings) -> Story:
    return await new_story(database, settings)


@pytest.fixture
async def live(database: Database) -> AsyncIterator[Live]:
    async with Live.open(database) as opened:
        yield opened


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """A Redis of this test's own, on a free port."""
    with RedisServer() as server:
        yield server


@pytest.fixture
async def nodes(database: Database, redis: RedisServer) -> AsyncIterator[tuple[Live, Live]]:
    """Two nodes that hear each other."""
    async with (
        Live.open(database, redis_url=redis.url, node="one") as one,
        Live.open(database, redis_url=redis.url, node="two") as two,
    ):
        async with asyncio.timeout(10):
            await asyncio.gather(one.connected(), two.connected())
        yield one, two
