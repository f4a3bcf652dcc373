"""The environments in which pages are run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.local_machine import Model, model_beside
from tests.databases import DatabaseUrls
from tests.docs.docs_server import Obliging, Stage, staged
from tests.docs.page_runner import run_page

TEAM_SERVER = "docs/tutorials/team-server.md"


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with model_beside(Obliging()) as fake:
        yield fake


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of one reader's Toolcrib, with its secrets."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def stage(tmp_path: Path, home: Path, model: Model, database_urls: DatabaseUrls) -> Iterator[Stage]:
    with staged(tmp_path, home, model, database_urls) as made:
        yield made


@pytest.fixture(scope="module")
def team_server(
    tmp_path_factory: pytest.TempPathFactory, home: Path, model: Model, database_urls: DatabaseUrls
) -> Iterator[Stage]:
    """The environment of a reader at the end of the team server's tutorial, whose server runs."""
    with staged(tmp_path_factory.mktemp("team"), home, model, database_urls) as made:
        run_page(TEAM_SERVER, made)
        yield made
