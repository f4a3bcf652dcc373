"""A workspace whose commands run in a sandbox that is already probed."""

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.shell.builders import new_workspace_fixture
from toolcrib.settings import Settings
from toolcrib.storage.database import Database


@pytest.fixture
async def workspace(database: Database, settings: Settings) -> WorkspaceFixture:
    return await new_workspace_fixture(database, settings)
