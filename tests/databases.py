"""Databases of tests: each is a copy of one migrated template, which a run creates once and drops at its end."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from toolcrib.runs import durable
from toolcrib.storage import migrate

ROOT = Path(__file__).parent.parent

# Names a run in all its processes.
RUN_VARIABLE = "TOOLCRIB_TEST_RUN"

# Held while a test process creates the template, so that the others wait for it.
_TEMPLATE_LOCK = 0x7465_6D70


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


def urls_of(name: str) -> DatabaseUrls:
    return DatabaseUrls(
        owner=url_for(name), app=url_for(name, migrate.APP_ROLE), system=url_for(name, migrate.SYSTEM_ROLE)
    )


@contextmanager
def new_database(template: str | None = None) -> Iterator[str]:
    """Create a database, an empty one or a copy of another, and return its name."""
    name = f"toolcrib_test_{os.getpid()}_{secrets.token_hex(3)}"
    with psycopg.connect(admin_url(), autocommit=True) as connection:
        _create(connection, name, template or "template1")
        try:
            yield name
        finally:
            _drop(connection, name)


@contextmanager
def migrated_database() -> Iterator[str]:
    """Create a database with the current schema and return its name."""
    with new_database(_migrated_template()) as name:
        with psycopg.connect(url_for(name), autocommit=True) as connection:
            # A copy has the privileges of all objects, and not those of the database itself.
            connection.execute(sql.SQL("revoke temporary on database {} from public").format(sql.Identifier(name)))
        yield name


def drop_template() -> None:
    """Drop the template of this run, if a test needed it. Unit tests run without a database."""
    with suppress(psycopg.OperationalError), psycopg.connect(admin_url(), autocommit=True) as connection:
        _drop(connection, _template_name())


def _migrated_template() -> str:
    """Return the database that this run copies. The first process that needs it migrates it."""
    name = _template_name()
    with psycopg.connect(admin_url(), autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(%s)", (_TEMPLATE_LOCK,))
        if not connection.execute("select 1 from pg_database where datname = %s", (name,)).fetchone():
            # Takes its name when it is complete: a process that was killed leaves no half-migrated template.
            with new_database() as draft:
                durable.upgrade(url_for(draft))
                _create(connection, name, draft)
    return name


def _template_name() -> str:
    return f"toolcrib_template_{os.environ.get(RUN_VARIABLE) or os.getpid()}"


def _create(connection: psycopg.Connection, name: str, template: str) -> None:
    statement = sql.SQL("create database {} template {}")
    connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))


def _drop(connection: psycopg.Connection, name: str) -> None:
    connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
