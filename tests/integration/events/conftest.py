"""A session with a subscriber, on one node or on two that share their own Redis."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.integration.events.builders import ChatFixture, new_chat_fixture
from tests.integration.events.redis_server import RedisServer
from tests.wait_until import PATIENCE
from toolcrib.events import EventHub, event_hub
from toolcrib.settings import Settings
from toolcrib.storage.database import Database


@pytest.fixture
async def chat(database: Database, settings: Settings) -> ChatFixture:
    return await new_chat_fixture(database, settings)


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """A Redis for this test only, on a free port."""
    with RedisServer() as server:
        yield server


@pytest.fixture
async def nodes(
    database: Database, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[EventHub, EventHub]]:
    """Two connected nodes. While they are connected they do not poll: only notifications deliver events."""
    monkeypatch.setitem(event_hub._POLL_SECONDS, True, 3_600.0)
    async with (
        EventHub.open(database, redis_url=redis.url, node="one") as one,
        EventHub.open(database, redis_url=redis.url, node="two") as two,
    ):
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(one.connected(), two.connected())
        yield one, two
