"""Databases for one test only: for tests that must not be disturbed, or that disturb others."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from tests.conftest import DatabaseUrls, admin_url, url_for
from toolcrib.runs import durable
from toolcrib.storage import migrate


@contextmanager
def new_database(template: str | None = None) -> Iterator[str]:
    """Create a database, an empty one or a copy of another, and return its name."""
    name = f"toolcrib_test_{os.getpid()}_{secrets.token_hex(3)}"
    with psycopg.connect(admin_url(), autocommit=True) as connection:
        statement = sql.SQL("create database {} template {}")
        connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template or "template1")))
        try:
            yield name
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@contextmanager
def migrated_database() -> Iterator[str]:
    """Create a database with the current schema and return its name."""
    with new_database() as name:
        durable.upgrade(url_for(name))
        yield name


def urls_of(name: str) -> DatabaseUrls:
    return DatabaseUrls(
        owner=url_for(name), app=url_for(name, migrate.APP_ROLE), system=url_for(name, migrate.SYSTEM_ROLE)
    )
