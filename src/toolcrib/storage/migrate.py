"""Migrates a database to the current schema, as its owner; the server itself never does this."""

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors, sql

from toolcrib.core.errors import Misconfigured
from toolcrib.storage.database_roles import DatabaseRoles, chosen_roles, ensure_roles, roles_of

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Engine

# The roles of an installation that names no others.
APP_ROLE = DatabaseRoles().app
SYSTEM_ROLE = DatabaseRoles().system
DEFINER_ROLE = DatabaseRoles().definer

# Held while migrating, so that two nodes that start at once do not both migrate.
_MIGRATION_LOCK = 0x746F6F6C63726962
_LOCK_POLL_SECONDS = 0.1


def upgrade(
    owner_dsn: str,
    *,
    migrate_queue: Callable[[str], None],
    app_dsn: str | None = None,
    system_dsn: str | None = None,
    to: str = "head",
) -> str:
    """Create what is missing and return the revision. The DSNs of the server name its roles, and set their passwords.

    Args:
        migrate_queue: Creates or migrates the schema of the durable queue, which our functions use.
    """
    with psycopg.connect(owner_dsn, autocommit=True) as connection:
        # A statement that waits for the lock would hold up the queue's indexes, which are created concurrently.
        while connection.execute("select pg_try_advisory_lock(%s)", (_MIGRATION_LOCK,)).fetchone() != (True,):
            time.sleep(_LOCK_POLL_SECONDS)
        roles = chosen_roles(connection, app_dsn=app_dsn, system_dsn=system_dsn)
        ensure_roles(connection, roles, app_dsn=app_dsn, system_dsn=system_dsn)
        connection.execute("create schema if not exists toolcrib")
        _reject_unknown_revision(current_revision(owner_dsn))
        _run_migrations(owner_dsn, to)
        migrate_queue(owner_dsn)
        with connection.transaction():
            connection.execute("set local search_path to toolcrib")
            for script in _sql_scripts("functions"):
                # Our own files, executed whole: there is nothing to quote in them.
                connection.execute(roles.in_script(script.read_text()).encode())
        row = connection.execute("select version_num from toolcrib.alembic_version").fetchone()
        connection.execute("select pg_advisory_unlock(%s)", (_MIGRATION_LOCK,))
    assert row is not None
    return str(row[0])


def installed_roles(owner_dsn: str) -> DatabaseRoles:
    """Return the roles of a database."""
    with psycopg.connect(owner_dsn) as connection:
        return roles_of(connection) or DatabaseRoles()


def ensure_database(owner_dsn: str, name: str) -> None:
    """Create a database of this name on a server if it does not exist. ``owner_dsn`` names another database there."""
    with psycopg.connect(owner_dsn, autocommit=True) as connection, suppress(errors.DuplicateDatabase):
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))


def fingerprint() -> str:
    """Return a hash of everything that ``upgrade`` would do: a database upgraded with the same hash is up to date."""
    found = hashlib.sha256()
    for directory in ("functions", "migrations"):
        for script in _sql_scripts(directory):
            found.update(script.name.encode() + b"\0" + script.read_bytes())
    return found.hexdigest()


def run_script(name: str) -> None:
    """Runs a whole SQL file of ``sql/migrations`` in the migration's transaction."""
    from alembic import op

    connection = op.get_bind().connection.driver_connection
    assert connection is not None
    # Past SQLAlchemy, which would read a literal % as a placeholder.
    connection.execute(files("toolcrib.storage").joinpath("sql", "migrations", name).read_bytes())


def _sql_scripts(directory: str) -> list[Traversable]:
    return sorted(files("toolcrib.storage").joinpath("sql", directory).iterdir(), key=lambda script: script.name)


def newest_revision() -> str:
    """Return the revision that this program needs."""
    return max(known_revisions())


def known_revisions() -> set[str]:
    """Return the revisions that this program can upgrade."""
    # Read from the names of the scripts: a starting server need not load Alembic.
    scripts = files("toolcrib.storage").joinpath("migrations", "versions")
    return {script.name.removesuffix(".py") for script in scripts.iterdir() if script.name[:4].isdecimal()}


def _reject_unknown_revision(revision: str | None) -> None:
    if revision is not None and revision not in known_revisions():
        raise Misconfigured(
            f"The database is at revision {revision}, and this program knows none after {newest_revision()}: a newer "
            "Toolcrib, or one from before the first release, created it. Use that program, or an empty database."
        )


def _run_migrations(owner_dsn: str, to: str) -> None:
    from alembic import command

    with _engine(owner_dsn).begin() as connection:
        connection.exec_driver_sql("set local search_path to toolcrib")
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, to)


def current_revision(owner_dsn: str) -> str | None:
    """Return the revision of a database, or None if it was never migrated."""
    from alembic.runtime.migration import MigrationContext

    with _engine(owner_dsn).connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table_schema": "toolcrib"})
        return context.get_current_revision()


def _engine(owner_dsn: str) -> "Engine":
    # Imported only for migrations: it takes longer than the rest of a start.
    from sqlalchemy import create_engine, pool

    return create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(owner_dsn), poolclass=pool.NullPool)


def _config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(str(files("toolcrib.storage"))) / "migrations"))
    return config
