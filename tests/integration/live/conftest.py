"""A session that someone watches, on one node or on two that share a Redis of their own."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.integration.live.cast import Story, new_story
from tests.integration.live.redis_server import RedisServer
from tests.patience import PATIENCE
from toolcrib.engine.live import Live, hub
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
async def nodes(
    database: Database, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Live, Live]]:
    """Two nodes that hear each other. As long as they do, they do not look by themselves: only hints tell."""
    monkeypatch.setitem(hub._LOOK_SECONDS, True, 3_600.0)
    async with (
        Live.open(database, redis_url=redis.url, node="one") as one,
        Live.open(database, redis_url=redis.url, node="two") as two,
    ):
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(one.connected(), two.connected())
        yield one, two
