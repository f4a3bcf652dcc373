"""The schema, from nothing to the present, and again."""

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic.script import ScriptDirectory
from psycopg import sql

from tests.databases import DatabaseUrls, admin_url, url_for
from toolcrib.core.errors import Misconfigured
from toolcrib.runs import durable
from toolcrib.storage import migrate
from toolcrib.storage.database import Database


@pytest.fixture
def blank() -> Iterator[str]:
    """The owner's address of a database with nothing in it."""
    name = f"toolcrib_test_blank_{secrets.token_hex(6)}"
    with psycopg.connect(admin_url(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        yield url_for(name)
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def shape(owner_url: str) -> dict[str, list[tuple[object, ...]]]:
    """Everything that a migration lays down, in a form that can be compared."""
    queries = {
        "columns": """
            select table_name, column_name, data_type, is_nullable, column_default
            from information_schema.columns where table_schema = 'toolcrib' order by 1, 2""",
        "indexes": "select indexname, indexdef from pg_indexes where schemaname = 'toolcrib' order by 1",
        "policies": """
            select tablename, policyname, roles, cmd, qual, with_check
            from pg_policies where schemaname = 'toolcrib' order by 1, 2""",
        "functions": """
            select proname, prosrc, prosecdef, proacl::text
            from pg_proc where pronamespace = 'toolcrib'::regnamespace order by 1""",
        "grants": """
            select table_name, grantee, privilege_type
            from information_schema.role_table_grants where table_schema = 'toolcrib' order by 1, 2, 3""",
    }
    with psycopg.connect(owner_url) as connection:
        return {what: connection.execute(query.encode()).fetchall() for what, query in queries.items()}


def test_an_empty_database_is_brought_to_the_present(blank: str) -> None:
    reached = durable.upgrade(blank)

    assert reached == migrate.newest_revision() == migrate.current_revision(blank)
    assert all(shape(blank).values())


def test_running_again_changes_nothing(blank: str) -> None:
    durable.upgrade(blank)
    before = shape(blank)

    assert durable.upgrade(blank) == migrate.newest_revision()
    assert shape(blank) == before


def test_an_untouched_database_has_no_revision(blank: str) -> None:
    assert migrate.current_revision(blank) is None


def test_two_nodes_may_upgrade_at_once(blank: str) -> None:
    with ThreadPoolExecutor(2) as both:
        reached = list(both.map(durable.upgrade, [blank, blank]))

    assert set(reached) == {migrate.newest_revision()}


async def test_the_server_does_not_start_on_a_database_without_schema(blank: str, database_urls: DatabaseUrls) -> None:
    app, system = (blank.replace("postgres@", f"{role}@") for role in (migrate.APP_ROLE, migrate.SYSTEM_ROLE))

    with pytest.raises(Misconfigured, match="toolcrib db upgrade"):
        async with Database.open(app, system, pool_size=2):
            pass


async def test_the_server_starts_on_no_revision_but_its_own(blank: str) -> None:
    durable.upgrade(blank)
    app, system = (blank.replace("postgres@", f"{role}@") for role in (migrate.APP_ROLE, migrate.SYSTEM_ROLE))
    for other in ("0000_older", "9999_newer"):
        with psycopg.connect(blank) as connection:
            connection.execute("update toolcrib.alembic_version set version_num = %s", (other,))

        with pytest.raises(Misconfigured, match=f"{other}, this program needs {migrate.newest_revision()}"):
            async with Database.open(app, system, pool_size=2):
                pass


def test_a_database_of_an_unknown_revision_is_left_alone(blank: str) -> None:
    durable.upgrade(blank)
    with psycopg.connect(blank) as connection:
        connection.execute("update toolcrib.alembic_version set version_num = '9999'")
    before = shape(blank)

    with pytest.raises(Misconfigured, match="revision 9999"):
        durable.upgrade(blank)
    assert shape(blank) == before


def test_each_migration_follows_the_one_before_it_by_number() -> None:
    # Alembic yields the newest first.
    found = list(ScriptDirectory.from_config(migrate._config()).walk_revisions())[::-1]

    revisions = [script.revision for script in found]
    assert [script.down_revision for script in found] == [None, *revisions[:-1]]
    assert [Path(script.path).stem for script in found] == revisions
    assert revisions[-1] == migrate.newest_revision()
