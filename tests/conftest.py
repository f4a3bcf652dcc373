"""A real PostgreSQL for every run: one new database per test process, dropped afterwards."""

import gc
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from pydantic import SecretStr

from tests import never_logged
from tests.databases import RUN_VARIABLE, DatabaseUrls, drop_template, migrated_database, urls_of
from tests.long_cases import leave_out_cases
from toolcrib.settings import Settings
from toolcrib.storage.database import Database

ROOT = Path(__file__).parent.parent

# Connections of one server. The servers of two test processes together stay below PostgreSQL's default of 100.
POOL_SIZE = 6

# Whenever so many more are open, what tests dropped is collected. Many systems allow a process 1,024.
DESCRIPTORS_BETWEEN_COLLECTIONS = 250
MAX_DESCRIPTORS = 600

# No deadline: a busy machine may delay any example.
hypothesis.settings.register_profile("patient", deadline=None)
# For `make test-fast`.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=15)
hypothesis.settings.load_profile("patient")


class LeakCheck:
    """Collects the engines that tests dropped, whose cycles keep directories open, and refuses a leak."""

    def __init__(self) -> None:
        self._after_collection = 0

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        # A collection takes a second in a process that ran thousands of tests.
        if nextitem is None or open_descriptors() < self._after_collection + DESCRIPTORS_BETWEEN_COLLECTIONS:
            return
        # A server that starts in this process excludes what earlier tests left from collections.
        gc.unfreeze()
        gc.collect()
        self._after_collection = open_descriptors()
        assert self._after_collection <= MAX_DESCRIPTORS, "The tests of this process keep too many files open."


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LeakCheck())
    never_logged.note_requests()
    if RUN_VARIABLE not in os.environ:
        # Test processes inherit it. The first of a run outlives the others.
        os.environ[RUN_VARIABLE] = secrets.token_hex(4)
        config.add_cleanup(drop_template)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Before pytest selects by marks.
    leave_out_cases(items)
    _refuse_unknown_fixtures(items)


def _refuse_unknown_fixtures(items: list[pytest.Item]) -> None:
    """Refuse a test that names an unknown fixture before any test runs, not when its turn comes."""
    missing = [
        f"{item.nodeid}: {name}"
        for item in items
        if isinstance(item, pytest.Function)
        # pytest tells which fixtures a test names, but only here which of them exist.
        for name in {*item.fixturenames} - {*item._fixtureinfo.name2fixturedefs, "request"}
    ]
    if missing:
        raise pytest.UsageError("Unknown fixtures:\n" + "\n".join(missing))


@pytest.fixture(autouse=True)
def _servers_of_this_process_log_nothing_private(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    for record in caplog.get_records("call"):
        never_logged.check_log(f"{record.getMessage()} {record.exc_text or ''}".encode(), f"the log of {record.name}")


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(scope="session")
def database_urls() -> Iterator[DatabaseUrls]:
    """A database with the current schema."""
    with migrated_database() as name:
        yield urls_of(name)


@pytest.fixture
async def database(database_urls: DatabaseUrls) -> AsyncIterator[Database]:
    async with Database.open(database_urls.app, database_urls.system, pool_size=8) as opened:
        yield opened


@pytest.fixture
def settings(database_urls: DatabaseUrls, tmp_path: Path) -> Settings:
    return new_settings(
        database_urls,
        tmp_path / "data",
        # Its own node: a server of another test would become the home of the workspaces of a node that went silent.
        node_name=f"test-{secrets.token_hex(8)}",
        secure_cookies=False,
        open_registration=True,
        pool_size=POOL_SIZE,
    )


def new_settings(urls: DatabaseUrls, data_dir: Path, **more: Any) -> Settings:
    """Return settings with new secrets."""
    # Tests share a database: a server must not go on with what an earlier test left behind.
    # Its lines would go to the output of the tests.
    more = {"take_over_homes": False, "access_log": False, **more}
    return Settings(
        database_url=urls.app,
        system_database_url=urls.system,
        jwt_secret=SecretStr(secrets.token_urlsafe(48)),
        audit_seal_key=SecretStr(secrets.token_urlsafe(48)),
        data_dir=data_dir,
        **more,
    )
