"""Row-level security alone: what the database itself shows and accepts, whatever the program forgets to check."""

from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg import sql

from tests.databases import DatabaseUrls
from tests.integration.storage.accounts import founded, someone
from toolcrib.core.errors import Misconfigured
from toolcrib.core.ids import new_id
from toolcrib.storage import migrate
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.wiring.tool_runtime import Stores

# A row in every table of one workspace, written without the program.
FILL = """
insert into toolcrib.agents (workspace_id, id, name, definition, rules, created_by)
    values (%(workspace)s, %(id)s, 'writer', '', '{}', %(user)s);
insert into toolcrib.api_keys (id, user_id, workspace_id, agent_id, name, hint, secret_hash)
    values (%(id)s, %(user)s, %(workspace)s, %(id)s, 'key', 'tck_', %(hash)s);
insert into toolcrib.refresh_tokens (id, user_id, family_id, secret_hash, expires_at)
    values (%(id)s, %(user)s, %(id)s, %(hash)s, now() + interval '1 day');
insert into toolcrib.blobs (workspace_id, sha256, size, encoding, body) values (%(workspace)s, %(hash)s, 0, 'raw', '');
insert into toolcrib.change_sets (workspace_id, id, state, author_kind)
    values (%(workspace)s, %(id)s, 'proposed', 'user');
insert into toolcrib.files (workspace_id, id, mount, path, parent, type, version_id, version_number, kind, mode, size,
                            content_kind)
    values (%(workspace)s, %(id)s, 'project', '/a', '/', 'document', %(id)s, 1, 'file', 420, 0, 'text');
insert into toolcrib.versions (workspace_id, id, file_id, version_number, change_set_id, deleted, mount, path, kind,
                               mode, size, content_kind)
    values (%(workspace)s, %(id)s, %(id)s, 1, %(id)s, false, 'project', '/a', 'file', 420, 0, 'text');
insert into toolcrib.invitations (workspace_id, id, email, role, secret_hash, invited_by, expires_at)
    values (%(workspace)s, %(id)s, 'e@example.com', 'member', %(hash)s, %(user)s, now() + interval '1 day');
insert into toolcrib.deleted_workspaces (workspace_id, node, deleted_by) values (%(workspace)s, '', %(user)s);
insert into toolcrib.pending_applies (workspace_id, file_id) values (%(workspace)s, %(id)s);
insert into toolcrib.trash (workspace_id, id, file_id, change_set_id, node, mount, path, kind, mode, size, expires_at)
    values (%(workspace)s, %(id)s, %(id)s, %(id)s, 'n', 'project', '/b', 'file', 420, 0, now());
insert into toolcrib.proposed_changes (workspace_id, change_set_id, ordinal, file_id, version_id, type)
    values (%(workspace)s, %(id)s, 1, %(id)s, %(id)s, 'document');
insert into toolcrib.sessions (workspace_id, id, created_by) values (%(workspace)s, %(id)s, %(user)s);
insert into toolcrib.reviewed_files (workspace_id, session_id, file_id, version_number, decision, decided_by)
    values (%(workspace)s, %(id)s, %(id)s, 1, 'kept', %(user)s);
insert into toolcrib.events (workspace_id, session_id, seq, type, payload) values (%(workspace)s, %(id)s, 1, 't', '{}');
insert into toolcrib.tool_calls (workspace_id, id, user_id, tool, arguments, state)
    values (%(workspace)s, %(id)s, %(user)s, 'read', '{}', 'done');
insert into toolcrib.audit_records (id, workspace_id, created_at, user_id, call_id, via, tool, decision, rule,
                                    arguments, outcome, duration_us)
    values (%(id)s, %(workspace)s, now(), %(user)s, %(id)s, 'rest', 'read', 'allow', 'role', '{}', 'done', 1);
insert into toolcrib.paused_calls (workspace_id, id, kind, call_id, user_id, via, tool, input, arguments_sha256,
                                   changes, effects, rule, reason, suggested_rule, expires_at)
    values (%(workspace)s, %(id)s, 'approval', %(id)s, %(user)s, 'rest', 'write', '{}', %(hash)s, '[]', '{}', 'r', 'r',
            '{"tools": ["write"]}', now() + interval '1 day');
insert into toolcrib.grants (workspace_id, id, agent_id, tools, pause_id, created_by)
    values (%(workspace)s, %(id)s, %(id)s, '{write}', %(id)s, %(user)s);
insert into toolcrib.runs (workspace_id, id, session_id, user_id, via, prompt, state)
    values (%(workspace)s, %(id)s, %(id)s, %(user)s, 'rest', '', 'ended');
insert into toolcrib.messages (workspace_id, session_id, position, id, role, content)
    values (%(workspace)s, %(id)s, 1, %(id)s, 'user', '');
insert into toolcrib.provider_credentials (user_id, provider, encrypted, key_id) values (%(user)s, 'p', %(hash)s, 'k');
insert into toolcrib.mcp_servers (workspace_id, id, name, transport, url, created_by)
    values (%(workspace)s, %(id)s, 'm', 'http', 'http://m.example', %(user)s);
insert into toolcrib.packages (workspace_id, name, version, sha256, files, bytes, installed_by)
    values (%(workspace)s, 'p', '1', %(hash)s, 0, 0, %(user)s);
insert into toolcrib.schedules (workspace_id, id, name, cron, time_zone, agent_id, user_id, message, next_at)
    values (%(workspace)s, %(id)s, 's', '0 0 1 1 *', 'UTC', %(id)s, %(user)s, 'm', now() + interval '1 day');
insert into toolcrib.conversation_cursors (workspace_id, session_id, digest, last_seq)
    values (%(workspace)s, %(id)s, %(hash)s, 1);
insert into toolcrib.background_processes (workspace_id, id, call_id, user_id, command, isolation, node, process_id,
                                           started_ns)
    values (%(workspace)s, %(id)s, %(id)s, %(user)s, 'true', 'namespaces', 'n', %(id)s, 0);
insert into toolcrib.model_lanes (user_id, provider) values (%(user)s, 'p');
insert into toolcrib.model_slots (workspace_id, run_id, user_id, provider, place)
    values (%(workspace)s, %(id)s, %(user)s, 'p', 0);
insert into toolcrib.usage_counters (workspace_id, slot) values (%(workspace)s, 0) on conflict do nothing;
insert into toolcrib.model_usage (workspace_id, kind, key, day, runs, input_tokens, output_tokens, cost, unpriced_turns)
    values (%(workspace)s, 'workspace', '', now(), 1, 1, 1, 0, 0);
insert into toolcrib.connection_tickets
    (secret_hash, workspace_id, user_id, token_version, expires_at, connection_expires_at)
    values (%(hash)s, %(workspace)s, %(user)s, 0, now() + interval '1 day', now());
"""
# None is read by the app role: the seal chain, the process heartbeats, how often outsiders were denied, the schema's
# revision, and how many model requests run with a limited credential.
NOBODYS = {"audit_seals", "server_processes", "nodes", "alembic_version", "outsiders", "model_lanes", "model_starts"}
NOBODYS |= {"idempotency_keys"}


@pytest.fixture
async def owner(database_urls: DatabaseUrls) -> AsyncIterator[Connection]:
    """Connect to the database as its owner, without any policy."""
    async with await Connection.connect(database_urls.owner, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def tables(owner: Connection) -> list[str]:
    cursor = await owner.execute("select tablename from pg_tables where schemaname = 'toolcrib'")
    return sorted({name for (name,) in await cursor.fetchall()} - NOBODYS)


@pytest.fixture
async def ada(stores: Stores, owner: Connection) -> Tenant:
    """Ada in her workspace, which has a row in every table."""
    return await filled(stores, owner)


@pytest.fixture
async def eve(stores: Stores, owner: Connection) -> Tenant:
    """Another person, with her own workspace that has rows too."""
    return await filled(stores, owner)


async def filled(stores: Stores, owner: Connection) -> Tenant:
    tenant = await founded(stores, await someone(stores))
    facts = {"workspace": tenant.workspace_id, "user": tenant.user_id, "id": new_id(), "hash": new_id().bytes * 2}
    async with psycopg.AsyncClientCursor(owner) as cursor:
        await cursor.execute(FILL, facts)
    return tenant


async def owners_of_rows(connection: Connection, table: str) -> set[object]:
    """Return the owners of the rows that a statement without ``where`` sees."""
    column = {"users": "id", "refresh_tokens": "user_id", "api_keys": "user_id", "provider_credentials": "user_id",
              "workspaces": "id"}  # fmt: skip
    query = sql.SQL("select distinct {} from toolcrib.{}").format(
        sql.Identifier(column.get(table, "workspace_id")), sql.Identifier(table)
    )
    return {whose for (whose,) in await (await connection.execute(query)).fetchall()}


async def test_statement_without_where_sees_only_its_tenants_rows(
    database: Database, owner: Connection, tables: list[str], ada: Tenant, eve: Tenant
) -> None:
    async with database.transaction(eve) as connection:
        seen = {table: await owners_of_rows(connection, table) for table in tables}

    assert {table for table in tables if not seen[table]} == set()
    assert set().union(*seen.values()) == {eve.workspace_id, eve.user_id}


async def test_statement_without_a_tenant_sees_nothing(database: Database, tables: list[str], ada: Tenant) -> None:
    async with database.connection() as connection:
        seen = {table: await owners_of_rows(connection, table) for table in tables}

    assert set().union(*seen.values()) == set()


async def test_without_the_programs_check_a_stranger_still_sees_nothing(
    database: Database, tables: list[str], ada: Tenant, eve: Tenant
) -> None:
    async with database.connection() as connection, connection.transaction():
        # Eve names Ada's workspace, and the returned role is not checked.
        await connection.execute(
            "select toolcrib.enter_workspace(%s, %s, %s, null)", (eve.user_id, eve.token_version, ada.workspace_id)
        )
        seen = {table: await owners_of_rows(connection, table) for table in tables}

    # Only her own rows are left: herself, her tokens and keys, the list of her workspaces.
    assert set().union(*seen.values()) == {eve.workspace_id, eve.user_id}


async def test_stranger_changes_and_deletes_nothing(
    database: Database, owner: Connection, ada: Tenant, eve: Tenant
) -> None:
    async with database.transaction(eve) as connection:
        changed = await connection.execute("update toolcrib.agents set name = 'mine'")
        renamed = await connection.execute("update toolcrib.workspaces set name = 'mine'")
        removed = await connection.execute("delete from toolcrib.members where workspace_id = %s", (ada.workspace_id,))
        ended = await connection.execute("delete from toolcrib.api_keys where user_id = %s", (ada.user_id,))

    assert [cursor.rowcount for cursor in (changed, renamed, removed, ended)] == [1, 1, 0, 0]
    cursor = await owner.execute("select name from toolcrib.workspaces where id = %s", (ada.workspace_id,))
    assert await cursor.fetchone() == ("website",)


@pytest.mark.parametrize(
    "statement",
    [
        "insert into toolcrib.members (workspace_id, user_id, role) values (%(adas)s, %(eve)s, 'owner')",
        "update toolcrib.members set workspace_id = %(adas)s where user_id = %(eve)s",
        "update toolcrib.agents set workspace_id = %(adas)s",
        "insert into toolcrib.sessions (workspace_id, id, created_by) values (%(adas)s, %(new)s, %(eve)s)",
        "insert into toolcrib.refresh_tokens (id, user_id, family_id, secret_hash, expires_at) "
        "values (%(new)s, %(ada)s, %(new)s, 'x', now())",
        "insert into toolcrib.api_keys (id, user_id, name, hint, secret_hash) values (%(new)s, %(ada)s, 'k', 'h', 'y')",
        "update toolcrib.users set id = %(new)s where id = %(eve)s",
        "update toolcrib.audit_records set outcome = 'done'",
        "delete from toolcrib.audit_records",
        "delete from toolcrib.versions",
        "update toolcrib.blobs set body = ''",
        "select count(*) from toolcrib.audit_seals",
        "set row_security = off; select count(*) from toolcrib.files",
        "alter table toolcrib.files disable row level security",
        "set role toolcrib_system",
    ],
)
async def test_access_beyond_the_tenant_is_denied(database: Database, ada: Tenant, eve: Tenant, statement: str) -> None:
    facts = {"adas": ada.workspace_id, "ada": ada.user_id, "eve": eve.user_id, "new": new_id()}

    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        async with database.transaction(eve) as connection, psycopg.AsyncClientCursor(connection) as cursor:
            await cursor.execute(statement, facts)


async def test_every_table_has_row_level_security(owner: Connection) -> None:
    cursor = await owner.execute(
        """
        select relname from pg_class where relnamespace = 'toolcrib'::regnamespace and relkind in ('r', 'p')
        and not relrowsecurity
        """
    )

    assert {name for (name,) in await cursor.fetchall()} == {"alembic_version"}


async def test_server_rejects_a_role_that_bypasses_policies(database_urls: DatabaseUrls) -> None:
    with pytest.raises(Misconfigured, match="is a superuser"):
        async with Database.open(database_urls.owner, database_urls.system, pool_size=2):
            pass


async def test_serving_roles_have_no_privileges_of_their_own(owner: Connection) -> None:
    cursor = await owner.execute(
        """
        select rolname, rolsuper or rolbypassrls or rolcreaterole or rolcreatedb or rolreplication
        from pg_roles where rolname = any (%s)
        """,
        ([migrate.APP_ROLE, migrate.SYSTEM_ROLE],),
    )

    assert dict(await cursor.fetchall()) == {migrate.APP_ROLE: False, migrate.SYSTEM_ROLE: False}
