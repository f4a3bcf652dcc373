"""A real PostgreSQL for every run: one new database per test process, dropped afterwards."""

import gc
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from tests import never_logged
from toolcrib.runs import durable
from toolcrib.settings import Settings
from toolcrib.storage import migrate
from toolcrib.storage.database import Database

ROOT = Path(__file__).parent.parent

# Connections of one server. The servers of two test processes together stay below PostgreSQL's default of 100.
POOL_SIZE = 6

# Beyond half of it, what tests dropped is collected. Many systems allow a process 1,024.
MOST_DESCRIPTORS = 600

# No deadline: a busy machine may delay any example.
hypothesis.settings.register_profile("patient", deadline=None)
# For `make test-fast`.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=15)
hypothesis.settings.load_profile("patient")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Collect the engines that tests dropped, whose cycles keep directories open, and refuse a leak."""
    if nextitem is not None and open_descriptors() > MOST_DESCRIPTORS // 2:
        # A server that starts in this process excludes what earlier tests left from collections.
        gc.unfreeze()
        gc.collect()
        assert open_descriptors() <= MOST_DESCRIPTORS, "The tests of this process keep too many files open."


def pytest_configure() -> None:
    never_logged.note_requests()


@pytest.fixture(autouse=True)
def _servers_of_this_process_log_nothing_private(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    for record in caplog.get_records("call"):
        never_logged.check_log(f"{record.getMessage()} {record.exc_text or ''}".encode(), f"the log of {record.name}")


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@dataclass(frozen=True)
class DatabaseUrls:
    """One test database: the URLs of its owner and of the two server roles."""

    owner: str
    app: str
    system: str


def admin_url() -> str:
    """The server for test databases: from the environment, or the one that ``make setup`` found."""
    if url := os.environ.get("TOOLCRIB_TEST_DATABASE_URL"):
        return url
    noted = ROOT / ".local" / "test-database-url"
    if noted.exists():
        return noted.read_text().strip()
    return "postgresql://postgres@127.0.0.1:5432/postgres"


def url_for(database: str, user: str | None = None) -> str:
    facts = conninfo_to_dict(admin_url())
    return f"postgresql://{user or facts.get('user', 'postgres')}@{facts['host']}:{facts.get('port', 5432)}/{database}"


@pytest.fixture(scope="session")
def empty_database() -> Iterator[str]:
    """An empty database."""
    name = f"toolcrib_test_{os.getpid()}_{secrets.token_hex(3)}"
    with psycopg.connect(admin_url(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        yield name
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def database_urls(empty_database: str) -> DatabaseUrls:
    """A database with the current schema."""
    durable.upgrade(url_for(empty_database))
    return DatabaseUrls(
        owner=url_for(empty_database),
        app=url_for(empty_database, migrate.APP_ROLE),
        system=url_for(empty_database, migrate.SYSTEM_ROLE),
    )


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
