"""SQL attacks as the server's own roles: no statement gives them more privileges."""

import secrets
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.errors import Error, FeatureNotSupported, InsufficientPrivilege

from tests.databases import DatabaseUrls, migrated_database, url_for, urls_of
from tests.integration.storage.accounts import founded, someone
from toolcrib.runs import durable
from toolcrib.settings import Settings
from toolcrib.storage import migrate
from toolcrib.storage.database import Database, Tenant
from toolcrib.wiring.tool_runtime import Stores

Shadow = Callable[[psycopg.Connection, str], None]

DEFINERS = """
    select p.oid, p.oid::regprocedure::text, p.proconfig, r.rolname, p.proacl::text[],
           r.rolsuper, r.rolcanlogin, r.rolbypassrls, r.rolcreaterole, r.rolcreatedb, r.rolreplication
    from pg_proc p join pg_roles r on r.oid = p.proowner join pg_namespace n on n.oid = p.pronamespace
    where p.prosecdef and n.nspname not in ('pg_catalog', 'information_schema')
"""


@pytest.fixture(scope="module")
def urls() -> Iterator[DatabaseUrls]:
    """A database whose owner may be careless."""
    with migrated_database() as name:
        yield urls_of(name)


@pytest.fixture
def owner(urls: DatabaseUrls) -> Iterator[psycopg.Connection]:
    with psycopg.connect(urls.owner, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def tenant(urls: DatabaseUrls, settings: Settings) -> Tenant:
    async with Database.open(urls.app, urls.system, pool_size=2) as database:
        stores = Stores(settings, database)
        return await founded(stores, await someone(stores))


# The schema


def test_every_definer_function_pins_its_search_path_with_temporary_objects_last(owner: psycopg.Connection) -> None:
    found = {name: config for _, name, config, *_ in owner.execute(DEFINERS).fetchall()}

    assert "toolcrib.enter_workspace(uuid,integer,uuid,uuid)" in found
    assert {
        name: config for name, config in found.items() if config != ["search_path=pg_catalog, toolcrib, pg_temp"]
    } == {}


def test_no_definer_function_belongs_to_a_role_with_privileges_or_login(owner: psycopg.Connection) -> None:
    found = owner.execute(DEFINERS).fetchall()

    assert {name for _, name, _, _, _, *powers in found if any(powers)} == set()
    assert {whose for _, _, _, whose, *_ in found} == {migrate.DEFINER_ROLE}


def test_only_serving_roles_execute_definer_functions(owner: psycopg.Connection) -> None:
    for _, name, _, _, grants, *_ in owner.execute(DEFINERS).fetchall():
        assert grants is not None, f"{name} is everyone's by default"
        grantees = {grant.split("=")[0] for grant in grants}
        assert grantees <= {migrate.APP_ROLE, migrate.SYSTEM_ROLE, migrate.DEFINER_ROLE}, name


def test_owner_role_of_definer_functions_owns_nothing_else(owner: psycopg.Connection) -> None:
    members = owner.execute(
        "select member::regrole::text from pg_auth_members where roleid = %s::regrole", (migrate.DEFINER_ROLE,)
    ).fetchall()
    beyond = owner.execute(
        "select roleid::regrole::text from pg_auth_members where member = %s::regrole", (migrate.DEFINER_ROLE,)
    ).fetchall()
    [(may_create,)] = owner.execute(
        "select has_schema_privilege(%s, 'toolcrib', 'create')", (migrate.DEFINER_ROLE,)
    ).fetchall()
    owned = owner.execute(
        """
        select classid::regclass::text from pg_shdepend
        where refobjid = %s::regrole and deptype = 'o'
          and dbid = (select oid from pg_database where datname = current_database())
        """,
        (migrate.DEFINER_ROLE,),
    ).fetchall()

    assert {migrate.APP_ROLE, migrate.SYSTEM_ROLE}.isdisjoint(name for (name,) in members)
    assert beyond == []
    assert not may_create
    assert {kind for (kind,) in owned} == {"pg_proc"}


def test_owner_role_of_definer_functions_cannot_rewrite_history(owner: psycopg.Connection) -> None:
    granted = owner.execute(
        """
        select table_name, privilege_type from information_schema.role_table_grants
        where grantee = %s and privilege_type <> 'SELECT'
        """,
        (migrate.DEFINER_ROLE,),
    ).fetchall()

    assert sorted(granted) == [
        ("audit_records", "INSERT"),
        ("connection_tickets", "DELETE"),
        ("idempotency_keys", "DELETE"),
        ("idempotency_keys", "INSERT"),
        ("idempotency_keys", "UPDATE"),
        ("outsiders", "INSERT"),
        ("outsiders", "UPDATE"),
        ("pending_applies", "DELETE"),
        ("workflow_input", "DELETE"),
        ("workflow_input", "INSERT"),
        ("workflow_status", "DELETE"),
        ("workflow_status", "INSERT"),
        ("workflow_status", "UPDATE"),
    ]


def test_database_can_be_migrated_by_an_owner_without_superuser() -> None:
    role, name = (f"toolcrib_test_{secrets.token_hex(4)}" for _ in range(2))
    with psycopg.connect(url_for("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("create role {} login createrole").format(sql.Identifier(role)))
        connection.execute(sql.SQL("create database {} owner {}").format(sql.Identifier(name), sql.Identifier(role)))
        try:
            durable.upgrade(url_for(name, role))
            durable.upgrade(url_for(name, role))
            with psycopg.connect(url_for(name)) as database:
                found = database.execute(DEFINERS).fetchall()
            assert {whose for _, _, _, whose, *_ in found} == {migrate.DEFINER_ROLE}
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
            connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


# Shadowing: an attacker's object replaces one that a function names

SPY = """
create function {schema}.spy(anyelement) returns boolean language plpgsql as
    $$ begin raise notice 'spy ran as %', current_user; return true; end $$
"""
TYPES = ("text", "uuid", "int4", "int8", "bool", "bytea", "timestamptz", "jsonb")
TABLES = (
    "users",
    "members",
    "agents",
    "api_keys",
    "refresh_tokens",
    "grants",
    "files",
    "pending_applies",
    "connection_tickets",
)


def shadow_types(connection: psycopg.Connection, schema: str) -> None:
    """The red team's own attack: a domain whose CHECK calls a function."""
    for name in TYPES:
        connection.execute(
            sql.SQL("create domain {0}.{1} as pg_catalog.{2} check ({0}.spy(value))").format(
                sql.Identifier(schema), sql.Identifier(name), sql.Identifier(name)
            )
        )


def shadow_tables(connection: psycopg.Connection, schema: str) -> None:
    for name in TABLES:
        connection.execute(
            sql.SQL("create view {0}.{1} as select *, {0}.spy(1) as spied from toolcrib.{1}").format(
                sql.Identifier(schema), sql.Identifier(name)
            )
        )


def shadow_functions(connection: psycopg.Connection, schema: str) -> None:
    makers = (
        "lower(pg_catalog.text) returns pg_catalog.text",
        "now() returns pg_catalog.timestamptz",
        "set_config(pg_catalog.text, pg_catalog.text, boolean) returns pg_catalog.text",
        "nullif(pg_catalog.text, pg_catalog.text) returns pg_catalog.text",
        "current_user_id() returns pg_catalog.uuid",
        "agent_grants(pg_catalog.uuid, pg_catalog.uuid) returns pg_catalog.jsonb",
        "jsonb_to_recordset(pg_catalog.jsonb) returns setof pg_catalog.record",
    )
    for made in makers:
        connection.execute(
            f"create function {schema}.{made} language plpgsql as $$ begin perform {schema}.spy(1); end $$".encode()
        )
    for kind in ("uuid", "text", "bytea"):
        connection.execute(
            f"""
            create function {schema}.same(pg_catalog.{kind}, pg_catalog.{kind}) returns boolean language plpgsql as
                $$ begin perform {schema}.spy(1); return true; end $$;
            create operator {schema}.=
                (function = {schema}.same, leftarg = pg_catalog.{kind}, rightarg = pg_catalog.{kind})
            """.encode()
        )


def called_by(connection: psycopg.Connection, tenant: Tenant) -> list[str]:
    """Call every definer function and return what the spy recorded."""
    said: list[str] = []
    connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
    functions = connection.execute(
        """
        select p.oid::pg_catalog.regproc::pg_catalog.text, p.proargnames,
               array(select t.typname::pg_catalog.text
                     from pg_catalog.unnest(p.proargtypes) with ordinality a (type, at)
                     join pg_catalog.pg_type t on t.oid operator(pg_catalog.=) a.type order by a.at)
        from pg_catalog.pg_proc p
        where p.prosecdef and p.pronamespace = 'toolcrib'::pg_catalog.regnamespace
        """
    ).fetchall()
    assert len(functions) >= 9
    samples: dict[str, object] = {
        "uuid": tenant.workspace_id, "bool": False, "int4": 0, "int8": 0, "float8": 0.0, "bytea": b"x",
        "_bytea": [b"x"], "text": "ada@example.org", "jsonb": "[]",
    }  # fmt: skip
    for name, names, types in functions:
        given = [
            tenant.user_id if argument == "p_user" else None if argument == "p_agent" else samples[kind]
            for argument, kind in zip(names or (), types, strict=False)
        ]
        casts = ", ".join(f"%s::pg_catalog.{kind}" for kind in types)
        try:
            connection.execute(f"select * from {name}({casts})".encode(), given)
        except Error as error:
            said.append(f"{name}: {error.sqlstate}")
    return [line for line in said if "spy ran as" in line]


@pytest.fixture
def careless(owner: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """A database without the search path: its functions belong to a superuser."""
    functions = [name for _, name, *_ in owner.execute(DEFINERS).fetchall()]
    owner.execute(f"grant temporary on database {owner.info.dbname} to {migrate.APP_ROLE}".encode())
    owner.execute(f"create schema attack authorization {migrate.APP_ROLE}".encode())
    for name in functions:
        owner.execute(f"alter function {name} owner to current_user".encode())
    yield owner
    for name in functions:
        owner.execute(f"alter function {name} set search_path = pg_catalog, toolcrib, pg_temp".encode())
        owner.execute(f"alter function {name} owner to {migrate.DEFINER_ROLE}".encode())
    owner.execute("drop schema attack cascade")
    owner.execute(f"revoke temporary on database {owner.info.dbname} from {migrate.APP_ROLE}".encode())


def attacked(urls: DatabaseUrls, tenant: Tenant, shadow: Shadow, schema: str, path: str) -> set[str]:
    """Return the roles under which the attacker's code ran, besides the attacker's own."""
    with psycopg.connect(urls.app, autocommit=True) as connection:
        connection.execute(SPY.format(schema=schema).encode())
        shadow(connection, schema)
        connection.execute(f"set search_path = {path}".encode())
        said = called_by(connection, tenant)
    return {line.removeprefix("spy ran as ") for line in said} - {migrate.APP_ROLE}


ATTACKS: tuple[tuple[Shadow, str, str], ...] = (
    *((shadow, "pg_temp", path) for shadow in (shadow_types, shadow_tables)
      for path in ("toolcrib", "pg_temp, toolcrib", "pg_temp, pg_catalog, toolcrib")),
    *((shadow, "attack", path) for shadow in (shadow_types, shadow_tables, shadow_functions)
      for path in ("attack, toolcrib", "attack, pg_catalog, toolcrib")),
)  # fmt: skip


@pytest.mark.parametrize(("shadow", "schema", "path"), ATTACKS)
async def test_shadowing_object_does_not_run_as_the_functions_owner(
    urls: DatabaseUrls, careless: psycopg.Connection, tenant: Tenant, shadow: Shadow, schema: str, path: str
) -> None:
    assert attacked(urls, tenant, shadow, schema, path) == set()


@pytest.mark.parametrize(
    ("shadow", "schema", "path"),
    [(shadow_types, "pg_temp", "toolcrib"), (shadow_functions, "attack", "attack, pg_catalog, toolcrib")],
)
async def test_without_the_search_path_the_attack_succeeds(
    urls: DatabaseUrls, careless: psycopg.Connection, tenant: Tenant, shadow: Shadow, schema: str, path: str
) -> None:
    """The original attack. Without it the attacks above would prove nothing."""
    careless.execute("alter function toolcrib.enter_workspace reset all")

    assert attacked(urls, tenant, shadow, schema, path) == {careless.info.user}


async def test_without_the_search_path_only_an_unprivileged_role_is_gained(
    urls: DatabaseUrls, careless: psycopg.Connection, tenant: Tenant
) -> None:
    careless.execute("alter function toolcrib.enter_workspace reset all")
    careless.execute(f"alter function toolcrib.enter_workspace owner to {migrate.DEFINER_ROLE}".encode())

    assert attacked(urls, tenant, shadow_types, "pg_temp", "toolcrib") <= {migrate.DEFINER_ROLE}


# Statements

ESCALATIONS = (
    f"set role {migrate.DEFINER_ROLE}",
    "set role postgres",
    "set session authorization postgres",
    f"grant {migrate.DEFINER_ROLE} to current_user",
    "grant postgres to current_user",
    "grant pg_execute_server_program to current_user",
    "alter role current_user superuser",
    "alter role current_user bypassrls",
    "create role mine superuser",
    "copy (select 1) to program 'id'",
    "copy (select 1) to '/tmp/toolcrib-attack'",
    "copy toolcrib.events from program 'id'",
    "copy toolcrib.events from '/etc/passwd'",
    "select lo_import('/etc/passwd')",
    "select lo_export(1, '/tmp/toolcrib-attack')",
    "select pg_read_file('/etc/passwd')",
    "select pg_read_binary_file('/etc/passwd')",
    "select pg_ls_dir('/')",
    "select pg_reload_conf()",
    "alter system set archive_command = 'id'",
    "load '/tmp/attack.so'",
    "set session_preload_libraries = '/tmp/attack.so'",
    "set dynamic_library_path = '/tmp'",
    "create function toolcrib.mine() returns int language sql as 'select 1'",
    "create or replace function toolcrib.current_workspace() returns uuid language sql as 'select null::uuid'",
    "alter function toolcrib.enter_workspace owner to current_user",
    "alter function toolcrib.enter_workspace reset all",
    "alter function toolcrib.enter_workspace security invoker",
    "drop function toolcrib.enter_workspace",
    "create schema mine",
    "insert into toolcrib.audit_records (id) values (gen_random_uuid())",
    "create temporary table mine ()",
    "create domain pg_temp.text as pg_catalog.text",
    "create trigger mine before insert on toolcrib.audit_records for each row execute function toolcrib.decided()",
    "create rule mine as on insert to toolcrib.audit_records do instead nothing",
    "alter table toolcrib.audit_records disable row level security",
    "alter table toolcrib.audit_records owner to current_user",
    "alter table toolcrib.audit_records disable trigger all",
    "create policy mine on toolcrib.audit_records using (true)",
    "drop policy tenant on toolcrib.audit_records",
    "create extension dblink",
    "create extension file_fdw",
    "create event trigger mine on ddl_command_start execute function toolcrib.decided()",
    "create publication mine for all tables",
    "create subscription mine connection 'dbname=postgres' publication mine",
    "update pg_catalog.pg_proc set prosecdef = true",
    "update pg_catalog.pg_authid set rolsuper = true",
    "select * from pg_catalog.pg_authid",
    "set session_replication_role = replica",
    "set allow_system_table_mods = on",
)


@pytest.mark.gate_cases(40)
@pytest.mark.parametrize("role", [migrate.APP_ROLE, migrate.SYSTEM_ROLE])
@pytest.mark.parametrize("statement", ESCALATIONS)
def test_serving_roles_gain_no_privileges(urls: DatabaseUrls, role: str, statement: str) -> None:
    url = urls.app if role == migrate.APP_ROLE else urls.system
    with (
        psycopg.connect(url, autocommit=True) as connection,
        # An extension that is not installed is missing, not denied.
        pytest.raises((InsufficientPrivilege, FeatureNotSupported)),
    ):
        connection.execute(statement.encode())


@pytest.mark.parametrize("role", [migrate.APP_ROLE, migrate.SYSTEM_ROLE])
def test_role_cannot_grant_itself_the_right_to_rewrite_the_audit_log(urls: DatabaseUrls, role: str) -> None:
    with psycopg.connect(urls.app if role == migrate.APP_ROLE else urls.system, autocommit=True) as connection:
        # PostgreSQL only warns of a grant that grants nothing; the test checks that nothing was granted.
        connection.execute("grant all on toolcrib.audit_records to current_user")
        may = connection.execute(
            "select has_table_privilege('toolcrib.audit_records', 'update, delete, truncate')"
        ).fetchone()

    assert may == (False,)


@pytest.mark.parametrize("role", [migrate.APP_ROLE, migrate.SYSTEM_ROLE])
def test_anonymous_block_runs_as_its_author(urls: DatabaseUrls, role: str) -> None:
    url = urls.app if role == migrate.APP_ROLE else urls.system
    with psycopg.connect(url, autocommit=True) as connection, pytest.raises(InsufficientPrivilege):
        connection.execute("do $$ begin execute 'copy (select 1) to program ''id'''; end $$")
