"""Each client program shows every criterion of its table, except those on the list of open criteria."""

from collections.abc import Iterator

import pytest

from tests.clients.client_server import Stage, stage_in
from tests.clients.criteria import read_not_yet
from tests.clients.programs import PROGRAMS
from tests.databases import DatabaseUrls

# They share one server.
pytestmark = pytest.mark.xdist_group("clients")


@pytest.fixture(scope="module")
def stage(database_urls: DatabaseUrls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_in(tmp_path_factory.mktemp("clients"), database_urls) as started:
        yield started


@pytest.mark.parametrize("client", PROGRAMS)
def test_a_client_shows_the_criteria_of_its_table(stage: Stage, client: str) -> None:
    report = PROGRAMS[client](stage)
    not_yet = read_not_yet(client)
    missing = report.not_shown()

    assert not not_yet - report.criteria.keys(), "not_yet.txt names what is in no table."
    assert not {one: why for one, why in missing.items() if one not in not_yet}, "These were shown before."
    assert not not_yet - missing.keys(), "These are shown now: take them off not_yet.txt."
