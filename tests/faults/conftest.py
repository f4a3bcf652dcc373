"""A server that a test kills, with its own database, and a model whose responses survive the kills."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import DatabaseUrls, migrated_database, urls_of
from tests.fakes.model_server import ModelServer
from tests.faults.scripted import working_model
from tests.faults.server import Server


@pytest.fixture
def urls() -> Iterator[DatabaseUrls]:
    """A database for one test: an audit log, which is verified at the end, is of a whole database."""
    with migrated_database() as name:
        yield urls_of(name)


@pytest.fixture
def server(tmp_path: Path, urls: DatabaseUrls) -> Iterator[Server]:
    with Server(tmp_path, urls) as server:
        server.start()
        yield server


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with working_model() as serving:
        yield serving
