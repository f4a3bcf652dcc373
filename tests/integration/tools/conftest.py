"""One open database for each module: these tests are many and small, and share only the pool."""

from collections.abc import AsyncIterator

import pytest

from tests.databases import DatabaseUrls
from toolcrib.storage.database import Database


@pytest.fixture(scope="module")
async def database(database_urls: DatabaseUrls) -> AsyncIterator[Database]:
    async with Database.open(database_urls.app, database_urls.system, pool_size=8) as opened:
        yield opened
