"""Schema migrations, from an empty database to the current revision, and again."""

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.conftest import DatabaseUrls, admin_url, url_for
from toolcrib.core.errors import Misconfigured
from toolcrib.storage import migrate
from toolcrib.storage.database import Database


@pytest.fixture
def blank() -> Iterator[str]:
    """Return the owner's URL of an empty database."""
    name = f"toolcrib_test_blank_{secrets.token_hex(6)}"
    with psycopg.connect(admin_url(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        yield url_for(name)
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def shape(owner_url: str) -> dict[str, list[tuple[object, ...]]]:
    """Return everything that migrations create, in a form that can be compared."""
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


def test_empty_database_is_migrated_to_the_current_revision(blank: str) -> None:
    reached = migrate.upgrade(blank)

    assert reached == migrate.newest_revision() == migrate.current_revision(blank)
    assert all(shape(blank).values())


def test_running_again_changes_nothing(blank: str) -> None:
    migrate.upgrade(blank)
    before = shape(blank)

    assert migrate.upgrade(blank) == migrate.newest_revision()
    assert shape(blank) == before


def test_empty_database_has_no_revision(blank: str) -> None:
    assert migrate.current_revision(blank) is None


def test_two_nodes_may_upgrade_at_once(blank: str) -> None:
    with ThreadPoolExecutor(2) as both:
        reached = list(both.map(migrate.upgrade, [blank, blank]))

    assert set(reached) == {migrate.newest_revision()}


async def test_server_does_not_start_on_a_database_without_schema(blank: str, database_urls: DatabaseUrls) -> None:
    app, system = (blank.replace("postgres@", f"{role}@") for role in (migrate.APP_ROLE, migrate.SYSTEM_ROLE))

    with pytest.raises(Misconfigured, match="toolcrib db upgrade"):
        async with Database.open(app, system, pool_size=2):
            pass


@pytest.mark.req("WS-10", part="read as text")
def test_existing_messages_are_counted(blank: str) -> None:
    with psycopg.connect(blank) as connection:
        connection.execute("create schema toolcrib")
    migrate._run_migrations(blank, "0019")
    with psycopg.connect(blank) as connection:
        connection.execute("set search_path to toolcrib")
        user, workspace, *sessions = (uuid4() for _ in range(4))
        connection.execute("insert into users (id, email, password_hash) values (%s, 'a@b.c', 'x')", (user,))
        connection.execute("insert into workspaces (id, name, created_by) values (%s, 'w', %s)", (workspace, user))
        for session in sessions:
            connection.execute(
                "insert into sessions (workspace_id, id, created_by) values (%s, %s, %s)", (workspace, session, user)
            )
        calls = '{"tool_calls": [{"function": {"name": "ls"}}, {"function": {"name": "read"}}]}'
        said = [("user", "Ünicode\nline", None), ("assistant", "", calls), ("summary", "short", None)]
        for position, (role, content, metadata) in enumerate(said):
            connection.execute(
                """
                insert into messages (workspace_id, session_id, position, id, role, content, metadata)
                values (%s, %s, %s, %s, %s, %s, %s)
                """,
                (workspace, sessions[0], position, uuid4(), role, content, metadata),
            )

    migrate.upgrade(blank)

    with psycopg.connect(blank) as connection:
        counted = connection.execute(
            "select text_bytes, text_lines from toolcrib.sessions order by text_bytes desc"
        ).fetchall()
        [text] = connection.execute(
            """
            select string_agg(toolcrib.message_text(role, content, metadata, created_at), '' order by position)
            from toolcrib.messages
            """
        ).fetchone() or [""]
    assert text.endswith(" UTC\n\nCalled: ls, read\n\n")
    assert counted == [(len(text.encode()), text.count("\n")), (0, 0)]


def test_migrations_are_numbered_in_sequence() -> None:
    found = [
        import_module(f"toolcrib.storage.migrations.versions.{script.name.removesuffix('.py')}")
        for script in sorted(files("toolcrib.storage.migrations.versions").iterdir(), key=lambda file: file.name)
        if script.name[:4].isdecimal()
    ]

    revisions = [module.revision for module in found]
    assert [module.down_revision for module in found] == [None, *revisions[:-1]]
    assert [Path(str(module.__file__)).name[:4] for module in found] == revisions
