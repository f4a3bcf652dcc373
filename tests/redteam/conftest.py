"""The campaign: a real server with tenants to attack, and a count of attacks and their outcomes."""

from collections.abc import Iterator

import pytest

from tests.databases import DatabaseUrls
from tests.faults.conftest import urls
from tests.faults.server import Server, started_server
from tests.redteam.attacks import PROPERTY, Attacks, Tally, is_attack
from tests.redteam.target import Target, open_target
from tests.stalls import no_stalls, stalls

__all__ = ["urls"]

_RECORDED = pytest.StashKey[Attacks]()


@pytest.fixture
def attacks(request: pytest.FixtureRequest) -> Iterator[Attacks]:
    """Counts the attacks of this test. A successful attack fails it at the end."""
    recorded = Attacks()
    request.node.stash[_RECORDED] = recorded
    yield recorded
    recorded.check()


@pytest.fixture(scope="session")
def shared_target(database_urls: DatabaseUrls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """``toolcrib serve`` as a process of this user, with two tenants."""
    with open_target(tmp_path_factory.mktemp("target"), database_urls) as opened:
        # The first request of each kind may load something; not even that may block the loop.
        no_stalls(opened.directory)
        yield opened


@pytest.fixture
def target(shared_target: Target) -> Iterator[Target]:
    """The server. No attack may block its loop for more than 250 ms of CPU time, even if the attack fails."""
    before = len(stalls(shared_target.directory))
    yield shared_target
    no_stalls(shared_target.directory, after=before)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, database_urls: DatabaseUrls) -> Iterator[Server]:
    """A server with open registration, as an operator may configure it. Its stalls are in ``data_dir.parent``."""
    with started_server(tmp_path_factory.mktemp("served"), database_urls, TOOLCRIB_OPEN_REGISTRATION="true") as server:
        yield server


class Campaign:
    """Add up the attacks of all tests, also of those that ran in other processes."""

    def __init__(self) -> None:
        self._tally = Tally()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        ended = report.when == "call" or (report.when == "setup" and report.failed)
        if ended and is_attack(report.nodeid):
            self._tally.add(report.nodeid, report.user_properties, passed=report.passed)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._tally.tried:
            return
        terminalreporter.section("attacks")
        for line in self._tally.lines():
            terminalreporter.write_line(line)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Campaign(), "redteam-campaign")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Put the count of a test into its report, which is all that leaves a worker process."""
    if call.when == "call" and (recorded := item.stash.get(_RECORDED, None)) is not None:
        item.user_properties.append((PROPERTY, [recorded.tried, recorded.tried - len(recorded.broke)]))
    return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run every test of the shared server in one process, so that there is one server."""
    for item in items:
        if isinstance(item, pytest.Function) and "shared_target" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("redteam-target"))
