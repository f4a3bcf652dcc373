"""The database roles of an installation. Roles belong to the whole cluster, so each installation has its own names."""

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from toolcrib.core.errors import Misconfigured

DEFAULT_PREFIX: Final = "toolcrib"
_PREFIX: Final = re.compile(r"[a-z_][a-z0-9_]{0,49}")
_IN_SCRIPTS: Final = re.compile(rf"\b{DEFAULT_PREFIX}_(app|system|definer)\b")


@dataclass(frozen=True, slots=True)
class DatabaseRoles:
    """The three roles of an installation, with a common prefix."""

    prefix: str = DEFAULT_PREFIX

    @property
    def app(self) -> str:
        """The role of requests, bound by row-level security."""
        return f"{self.prefix}_app"

    @property
    def system(self) -> str:
        """The role of a server's own work, which sees every workspace."""
        return f"{self.prefix}_system"

    @property
    def definer(self) -> str:
        """Owns the SECURITY DEFINER functions. Not a superuser, bound by row-level security, without login."""
        return f"{self.prefix}_definer"

    def in_script(self, text: str) -> str:
        """Return a script, which has the default names, with those of this installation."""
        return _IN_SCRIPTS.sub(lambda found: f"{self.prefix}_{found[1]}", text)


def _prefix_of(user: str | None) -> str | None:
    prefix = (user or "").removesuffix("_app")
    return prefix if user and prefix != user and _PREFIX.fullmatch(prefix) else None


def roles_of(connection: psycopg.Connection) -> DatabaseRoles | None:
    """Return the roles of a database; None if it was never upgraded, or was restored without its owners."""
    row = connection.execute(
        """
        select r.rolname from pg_catalog.pg_proc p join pg_catalog.pg_roles r on r.oid = p.proowner
        where p.pronamespace = to_regnamespace('toolcrib') and p.proname = 'enter_workspace'
        """
    ).fetchone()
    if row is None or not row[0].endswith("_definer"):
        return None
    return DatabaseRoles(row[0].removesuffix("_definer"))


def chosen_roles(connection: psycopg.Connection, *, app_dsn: str | None, system_dsn: str | None) -> DatabaseRoles:
    """Return the roles for an upgrade: those of the database, or else those that the server's URL names.

    Raises:
        Misconfigured: The URLs name other roles than the database has, or roles without the usual endings.
    """
    app_user, system_user = (_user_of(dsn) for dsn in (app_dsn, system_dsn))
    named = _prefix_of(app_user)
    if app_user is not None and named is None:
        raise Misconfigured(
            f"The server's database URL has the role {app_user!r}. Its name must end with _app, such as "
            f"{DEFAULT_PREFIX}_app; `toolcrib db upgrade` creates it."
        )
    roles = roles_of(connection) or DatabaseRoles(named or DEFAULT_PREFIX)
    if named is not None and named != roles.prefix:
        raise Misconfigured(
            f"This database belongs to an installation with the role {roles.app}, and the URL has {app_user}. "
            f"Use {roles.app}."
        )
    if system_user not in (None, roles.system, roles.app):
        raise Misconfigured(f"The system URL has the role {system_user!r}. Use {roles.system}.")
    return roles


def ensure_roles(
    connection: psycopg.Connection, roles: DatabaseRoles, *, app_dsn: str | None, system_dsn: str | None
) -> None:
    """Create missing roles, and set the passwords of the URLs.

    Raises:
        Misconfigured: Another installation uses these roles with another password.
    """
    _ensure_login(connection, roles.app, app_dsn)
    _ensure_login(connection, roles.system, system_dsn)
    _create(connection, roles.definer, "nologin")
    row = connection.execute("select rolsuper from pg_roles where rolname = current_user").fetchone()
    if row is not None and not row[0]:
        # A user that is not a superuser can assign functions only to a role that they are a member of.
        connection.execute(sql.SQL("grant {} to current_user").format(sql.Identifier(roles.definer)))


def _ensure_login(connection: psycopg.Connection, role: str, dsn: str | None) -> None:
    _create(connection, role, "login")
    password = conninfo_to_dict(dsn).get("password") if dsn else None
    if not password:
        return
    others = _other_databases(connection, role)
    if others and not _can_connect(connection, role, str(password)):
        raise Misconfigured(
            f"The role {role} is in use by another installation, in database {others[0]}, with another password. "
            "Choose other roles for this one: a database URL with a name of its own, such as "
            f"postgresql://crib2_app:…@…/{connection.info.dbname}, also for the server (TOOLCRIB_DATABASE_URL)."
        )
    if not others:
        connection.execute(
            sql.SQL("alter role {} password {}").format(sql.Identifier(role), sql.Literal(str(password)))
        )


def _create(connection: psycopg.Connection, role: str, login: str) -> None:
    # Another upgrade may have created it just now.
    with suppress(errors.DuplicateObject, errors.UniqueViolation):
        connection.execute(sql.SQL("create role {} {}").format(sql.Identifier(role), sql.SQL(login)))


def _other_databases(connection: psycopg.Connection, role: str) -> list[str]:
    rows = connection.execute(
        """
        select distinct d.datname from pg_catalog.pg_shdepend s join pg_catalog.pg_database d on d.oid = s.dbid
        where s.refclassid = 'pg_authid'::regclass and s.refobjid = %s::regrole and d.datname <> current_database()
        order by 1
        """,
        (role,),
    ).fetchall()
    return [str(name) for (name,) in rows]


def _can_connect(connection: psycopg.Connection, role: str, password: str) -> bool:
    """Return whether the role has this password already."""
    try:
        psycopg.connect(make_conninfo(connection.info.dsn, user=role, password=password)).close()
    except psycopg.OperationalError:
        return False
    return True


def _user_of(dsn: str | None) -> str | None:
    user = conninfo_to_dict(dsn).get("user") if dsn else None
    return str(user) if user else None
