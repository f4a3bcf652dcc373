"""A workspace whose commands run in a sandbox that is already probed."""

import pytest

from tests.integration.conftest import Crib
from tests.integration.tools.shell.builders import new_crib
from toolcrib.settings import Settings
from toolcrib.storage.database import Database


@pytest.fixture
async def crib(database: Database, settings: Settings) -> Crib:
    return await new_crib(database, settings)
