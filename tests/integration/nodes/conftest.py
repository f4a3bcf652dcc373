"""A database of its own: a node takes over the workspaces of every silent node, also of those of other tests."""

from collections.abc import Iterator

import pytest

from tests.databases import DatabaseUrls, migrated_database, urls_of


@pytest.fixture
def database_urls() -> Iterator[DatabaseUrls]:
    with migrated_database() as name:
        yield urls_of(name)
