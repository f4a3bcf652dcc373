"""Only members get access: every route and every tool, and row-level security when the program forgets to check.

The routes come from the OpenAPI document. A new one fails here until somebody defines its request and
whether a viewer may use it.
"""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import psycopg
import pytest
from psycopg import sql
from psycopg.errors import InsufficientPrivilege
from structlog.testing import capture_logs

from tests.conftest import new_settings
from tests.databases import DatabaseUrls, migrated_database, url_for, urls_of
from tests.fakes.packages import package_of
from tests.faults.server import Server
from tests.wait_until import PATIENCE
from toolcrib.api.access_tokens import AccessTokens
from toolcrib.api.api_services import ApiServices
from toolcrib.api.app import create_app
from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.errors import Misconfigured, ToolcribError
from toolcrib.core.events import Event
from toolcrib.core.ids import CallId, UserId, WorkspaceId, new_id
from toolcrib.core.mcp_servers import McpTransport
from toolcrib.core.paused_calls import ApprovalDecision, GrantScope
from toolcrib.core.tool_calls import ToolCall
from toolcrib.settings import Settings
from toolcrib.storage import database as database_module
from toolcrib.storage import files as files_module
from toolcrib.storage import workspaces as workspaces_module
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.events import EventStore
from toolcrib.storage.migrate import APP_ROLE, SYSTEM_ROLE
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.server import services as open_services

pytestmark = pytest.mark.xdist_group("tenants")

# Public routes.
PUBLIC = {"register", "registration", "login", "use_link", "refresh", "health", "live", "ready", "accept_invitation",
          "reset_password"}  # fmt: skip
# Routes without a workspace: each returns or changes only the caller's own data.
OWN = {"create_workspace", "list_workspaces", "create_api_key", "list_api_keys", "revoke_api_key", "logout", "me",
       "list_providers", "list_credentials", "store_credentials", "remove_credentials", "limit_requests", "list_models",
       "get_status", "change_password", "list_logins", "end_login", "end_other_logins", "list_users", "change_user",
       "create_password_reset", "get_inbox"}  # fmt: skip
# What a viewer may do in a workspace. Everything else there is denied.
VIEWER_MAY = {
    "list_tools", "explain", "get_call", "find_file", "list_deleted_files", "list_versions", "read_version",
    "compare_versions", "get_workspace", "list_members", "list_agents", "get_agent", "list_paused_calls",
    "get_paused_call", "list_proposed_changes",
    "list_grants", "list_sessions", "get_session", "list_events", "stream_events",
    "create_ticket", "list_messages", "list_runs", "list_workspace_runs", "list_costs", "get_run", "list_mcp_servers",
    "get_mcp_server", "list_session_calls", "get_usage", "list_packages", "get_review", "list_schedules",
    "get_schedule", "list_budgets", "search_sessions",
}  # fmt: skip
VIEWER_TOOLS = {
    "ls", "read", "cat", "file_info", "read_multiple_files", "file_versions", "file_version", "file_compare", "changes",
    "deleted_files", "grep", "glob", "find", "plan_read", "plan_list",
    "fs.list", "fs.read", "fs.search", "read_file", "list_directory", "file_read", "web_search",
    "bash_output", "bash_list", "read_result", "review", "web_fetch", "tool_search",
}  # fmt: skip
# Only these return data that belongs to no workspace: another's id is not found.
NOT_FOUND = {"revoke_api_key", "list_models", "limit_requests", "end_login"}
# Only for administrators of the server, and for someone who knows the password.
FORBIDDEN = {"list_users", "change_user", "create_password_reset", "change_password"}

# The bodies and queries of routes that take them.
BODIES: dict[str, Any] = {
    "call_tool": {"tool": "write", "args": {"path": "/intruder.txt", "content": "intruder"}},
    "explain": {"tool": "read", "args": {"path": "/secret.txt"}},
    "restore_file": {},
    "decide_paused_call": {"approved": True, "arguments_sha256": "0" * 64},
    "preview_edited_call": {"edits": [{"path": "/intruder.txt", "content": "intruder"}]},
    "cancel_call": None,
    "answer_paused_call": {"answers": {"name": "intruder"}},
    "create_session": {"title": "intruder"},
    "fork_session": {"message_id": "00000000-0000-7000-8000-000000000000"},
    "change_session": {"title": "intruder"},
    "create_ticket": None,
    "send_message": {"text": "intruder"},
    "compact_session": None,
    "cancel_run": None,
    "release_run": None,
    "retry_run": None,
    "decide_review": {"all": "revert", "version": "intruder"},
    "store_credentials": {"secret": "mine", "check": False},
    "limit_requests": {"at_once": 2},
    "create_workspace": {"name": "mine"},
    "change_workspace": {"name": "intruder"},
    "add_member": {"email": "{intruder}", "role": "owner"},
    "change_member_role": {"role": "owner"},
    "create_invitation": {"email": "guest@example.com", "role": "owner"},
    "accept_invitation": None,
    "create_agent": {"name": "intruder", "definition": "trust: guided\n"},
    "update_agent": {"name": "intruder"},
    "create_agent_key": {"name": "intruder"},
    "create_mcp_server": {"name": "intruder", "url": "https://127.0.0.1:9/mcp"},
    "update_mcp_server": {"enabled": False},
    "refresh_mcp_server": None,
    "approve_mcp_server": {"sha256": "0" * 64},
    "install_package": None,
    "create_schedule": {
        "name": "intruder",
        "cron": "0 9 * * *",
        "agent_id": "00000000-0000-7000-8000-000000000000",
        "message": "intruder",
    },
    "update_schedule": {"message": "intruder"},
    "run_schedule": None,
    "create_api_key": {"name": "mine"},
    "change_password": {"current_password": "not the password", "new_password": "a long enough phrase"},
    "reset_password": None,
    "change_user": {"is_disabled": True},
    "create_password_reset": None,
    "register": None,
    "login": None,
    "use_link": None,
    "refresh": None,
    "logout": None,
}
QUERIES = {
    # The words of every text that only members may see.
    "search_sessions": {"query": "marked as adas"},
    "get_proposed_file": {"path": "/secret.txt"},
    "find_file": {"path": "/secret.txt"},
    "stream_events": {"follow": "false"},
    # From the beginning, not from where the last verification ended.
    "verify_audit_records": {"after": "0"},
}

# Contents and names that only members may ever see. None of them is in any request below.
MARK = "marked-as-adas"


@dataclass(frozen=True)
class Operation:
    """A route, from the OpenAPI document."""

    name: str
    method: str
    path: str

    @property
    def parameters(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)

    @property
    def is_in_a_workspace(self) -> bool:
        return "workspace_id" in self.parameters

    def request(self, ids: dict[str, str], intruder: str) -> dict[str, Any]:
        """Return the request to send, with the given ids in its path."""
        unknown = set(self.parameters) - set(ids)
        assert not unknown, f"Say in `Ada` what {unknown} of the new route {self.name!r} is."
        needs_body = self.method in ("POST", "PATCH", "PUT")
        assert not needs_body or self.name in BODIES, f"Say in BODIES what is sent to the new route {self.name!r}."
        body = BODIES.get(self.name)
        if body is not None:
            body = {key: intruder if value == "{intruder}" else value for key, value in body.items()}
        return {
            "method": self.method,
            # Only a question can be answered.
            "url": self.path.format(**ids | ({"pause_id": ids["question_id"]} if "answers" in self.path else {})),
            "json": body,
            "params": QUERIES.get(self.name),
        }


@dataclass(frozen=True)
class Someone:
    id: UserId
    email: str
    headers: dict[str, str]


@dataclass(frozen=True)
class TenantAccounts:
    """The application, Ada with a workspace of marked data, a viewer in it, and Mallory with her own."""

    http: httpx2.AsyncClient
    services: ApiServices
    operations: list[Operation]
    ada: Someone
    viewer: Someone
    mallory: Someone
    expired: dict[str, str]
    foreign_agent: dict[str, str]
    ids: dict[str, str]
    mallorys: dict[str, str]
    project: Path
    owner_url: str

    async def ask(self, operation: Operation, ids: dict[str, str], headers: dict[str, str] | None) -> httpx2.Response:
        return await self.http.request(headers=headers, **operation.request(ids, self.mallory.email))

    @property
    def guarded(self) -> list[Operation]:
        return [operation for operation in self.operations if operation.name not in PUBLIC]

    @property
    def in_workspaces(self) -> list[Operation]:
        return [operation for operation in self.operations if operation.is_in_a_workspace]

    def everything_of_adas(self) -> dict[str, Any]:
        """All rows of Ada's workspace except the audit log, which also records denied calls, and all her files."""
        rows: dict[str, Any] = {}
        with psycopg.connect(self.owner_url) as connection:
            for table in tenant_tables(connection):
                # A viewer's ticket is their own: it gives access to what they may see.
                if table not in ("audit_records", "connection_tickets"):
                    # Reading a file also stores its state on disk.
                    query = sql.SQL(
                        "select to_jsonb(t) - 'fingerprint' from toolcrib.{} t where workspace_id = %s order by 1"
                    )
                    rows[table] = connection.execute(
                        query.format(sql.Identifier(table)), (self.ids["workspace_id"],)
                    ).fetchall()
            query = sql.SQL("select w::text from toolcrib.workspaces w where id = %s")
            rows["workspaces"] = connection.execute(query, (self.ids["workspace_id"],)).fetchall()
        rows["disk"] = {str(p): p.read_bytes() if p.is_file() else b"" for p in self.project.rglob("*")}
        return rows


@pytest.fixture(scope="module")
def own_settings(database_urls: DatabaseUrls, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("tenants")
    return new_settings(database_urls, folder, audit_seal_interval_seconds=3600, node_name="tenants")


@pytest.fixture(scope="module")
async def accounts(own_settings: Settings, database_urls: DatabaseUrls) -> AsyncIterator[TenantAccounts]:
    """Created once: every test checks that nothing of Ada's changes."""
    settings = own_settings
    async with open_services(settings) as services:
        app = create_app(services)
        described = app.openapi()["paths"]
        operations = [
            Operation(operation["operationId"], method.upper(), path)
            for path, methods in described.items()
            for method, operation in methods.items()
        ]
        ada, viewer, mallory = [await _person(services, name) for name in (f"{MARK}-ada", "vera", "mallory")]
        ids = await _furnish(services, ada, MARK)
        await services.workspaces.add_member(
            Tenant(WorkspaceId(UUID(ids["workspace_id"])), ada.id), email=viewer.email, role=WorkspaceRole.VIEWER
        )
        mallorys = await _furnish(services, mallory, "mallory")
        long_ago = AccessTokens(settings.jwt_secret.get_secret_value(), clock=lambda: time.time() - 3600)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield TenantAccounts(
                http=http,
                services=services,
                operations=operations,
                ada=ada,
                viewer=viewer,
                mallory=mallory,
                expired=_bearer(long_ago.issue(ada.id, 0)),
                foreign_agent=_bearer(mallorys.pop("agent_key")),
                ids=ids,
                mallorys=mallorys,
                project=settings.data_dir / "workspaces" / ids["workspace_id"] / "project",
                owner_url=database_urls.owner,
            )


# The first line of defence: the program's own checks


async def test_only_public_routes_work_without_a_token(accounts: TenantAccounts) -> None:
    answers = {operation.name: await accounts.ask(operation, accounts.ids, None) for operation in accounts.guarded}

    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(answers, 401)


async def test_no_route_accepts_an_expired_token(accounts: TenantAccounts) -> None:
    before = accounts.everything_of_adas()

    answers = {
        operation.name: await accounts.ask(operation, accounts.ids, accounts.expired) for operation in accounts.guarded
    }

    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(answers, 401)
    assert accounts.everything_of_adas() == before


async def test_no_route_admits_another_tenant(accounts: TenantAccounts) -> None:
    before = accounts.everything_of_adas()

    person = {o.name: await accounts.ask(o, accounts.ids, accounts.mallory.headers) for o in accounts.in_workspaces}
    agent = {o.name: await accounts.ask(o, accounts.ids, accounts.foreign_agent) for o in accounts.in_workspaces}

    assert {name: answer.status_code for name, answer in person.items()} == dict.fromkeys(person, 403)
    assert {name: answer.status_code for name, answer in agent.items()} == dict.fromkeys(agent, 403)
    assert_nothing_came_out([*person.values(), *agent.values()])
    assert accounts.everything_of_adas() == before


async def test_ids_of_another_tenant_are_not_found_in_ones_own_workspace(accounts: TenantAccounts) -> None:
    before = accounts.everything_of_adas()
    mixed = accounts.ids | {"workspace_id": accounts.mallorys["workspace_id"]}
    naming_more = [o for o in accounts.in_workspaces if len(o.parameters) > 1]

    answers = {o.name: await accounts.ask(o, mixed, accounts.mallory.headers) for o in naming_more}

    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(answers, 404)
    assert_nothing_came_out(answers.values())
    assert accounts.everything_of_adas() == before


async def test_routes_outside_workspaces_return_only_the_callers_own_data(accounts: TenantAccounts) -> None:
    outside = [o for o in accounts.guarded if not o.is_in_a_workspace]
    # These need no workspace and end logins; they are last so that they do not disturb the others.
    outside.sort(key=lambda operation: ["logout", "end_other_logins"].count(operation.name))
    outside.sort(key=lambda operation: operation.name == "end_other_logins")
    before = accounts.everything_of_adas()

    answers = {o.name: await accounts.ask(o, accounts.ids, accounts.mallory.headers) for o in outside}

    assert set(answers) == OWN
    assert {name for name, answer in answers.items() if answer.status_code == 404} == NOT_FOUND
    assert {name for name, answer in answers.items() if answer.status_code == 403} == FORBIDDEN
    assert {name for name, answer in answers.items() if answer.is_error} == NOT_FOUND | FORBIDDEN
    assert_nothing_came_out(answers.values())
    assert accounts.everything_of_adas() == before


async def test_viewer_may_use_reading_routes_and_no_writing_ones(accounts: TenantAccounts) -> None:
    before = accounts.everything_of_adas()

    answers = {o.name: await accounts.ask(o, accounts.ids, accounts.viewer.headers) for o in accounts.in_workspaces}

    refused = {name for name, answer in answers.items() if answer.status_code == 403}
    assert refused == set(answers) - VIEWER_MAY
    assert {name: answer.status_code for name, answer in answers.items() if name in VIEWER_MAY} == dict.fromkeys(
        VIEWER_MAY, 200
    )
    assert accounts.everything_of_adas() == before


async def test_viewer_may_call_reading_tools_and_no_others(accounts: TenantAccounts) -> None:
    before = accounts.everything_of_adas()
    url = f"/api/v1/workspaces/{accounts.ids['workspace_id']}/tools"

    answers = {
        tool: await accounts.http.post(url, json={"tool": tool, "args": arguments}, headers=accounts.viewer.headers)
        for tool, arguments in tool_calls(accounts).items()
    }

    refused = {tool for tool, answer in answers.items() if answer.status_code == 403}
    assert refused == set(answers) - VIEWER_TOOLS
    assert {answers[tool].status_code for tool in VIEWER_TOOLS} == {200}
    assert accounts.everything_of_adas() == before


# The second line of defence: row-level security alone


@pytest.fixture
def no_first_lock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The program forgets to check membership: everyone passes as an owner."""
    for module in (database_module, files_module, workspaces_module):
        monkeypatch.setattr(module, "require", lambda role, needs: WorkspaceRole.OWNER)
    # The database's errors are unexpected ones then; their log output is not needed here.
    with capture_logs():
        yield


@pytest.mark.usefixtures("no_first_lock")
async def test_without_the_programs_check_a_foreign_workspace_is_unknown_to_every_route(
    accounts: TenantAccounts,
) -> None:
    before = accounts.everything_of_adas()
    nowhere = accounts.ids | {"workspace_id": str(new_id())}

    foreign = {o.name: await accounts.ask(o, accounts.ids, accounts.mallory.headers) for o in accounts.in_workspaces}
    none = {o.name: await accounts.ask(o, nowhere, accounts.mallory.headers) for o in accounts.in_workspaces}

    assert {name: _without_ids(answer.text) for name, answer in foreign.items()} == {
        name: _without_ids(answer.text) for name, answer in none.items()
    }
    assert_nothing_came_out(foreign.values())
    assert accounts.everything_of_adas() == before


@pytest.mark.usefixtures("no_first_lock")
async def test_without_the_programs_check_a_foreign_workspace_is_unknown_to_every_tool(
    accounts: TenantAccounts,
) -> None:
    before = accounts.everything_of_adas()
    stranger = Caller(WorkspaceId(UUID(accounts.ids["workspace_id"])), accounts.mallory.id)
    nowhere = replace(stranger, workspace_id=WorkspaceId(new_id()))

    foreign = {
        tool: await _result(accounts, tool, arguments, stranger) for tool, arguments in tool_calls(accounts).items()
    }
    none = {tool: await _result(accounts, tool, arguments, nowhere) for tool, arguments in tool_calls(accounts).items()}

    assert foreign == none
    assert {tool: words for tool, words in foreign.items() if MARK in words} == {}
    assert accounts.everything_of_adas() == before


async def test_statement_without_a_where_sees_only_its_own_tenant(
    accounts: TenantAccounts, database_urls: DatabaseUrls
) -> None:
    with psycopg.connect(database_urls.app, options="-c search_path=toolcrib") as connection:
        tables = sorted(tenant_tables(connection))
        select = sql.SQL("select distinct workspace_id::text from {}")
        nobody = {
            t: connection.execute(select.format(sql.Identifier(t))).fetchall() for t in tables if t != "audit_seals"
        }
        connection.execute(
            "select enter_workspace(%s, null, %s, null)", (accounts.mallory.id, accounts.mallorys["workspace_id"])
        )
        inside = {t: connection.execute(select.format(sql.Identifier(t))).fetchall() for t in tables}
        connection.execute(
            "select enter_workspace(%s, null, %s, null)", (accounts.mallory.id, accounts.ids["workspace_id"])
        )
        refused = {t: connection.execute(select.format(sql.Identifier(t))).fetchall() for t in tables}

    assert {table: found for table, found in nobody.items() if found} == {}
    ada, own = (accounts.ids["workspace_id"],), (accounts.mallorys["workspace_id"],)
    assert {table for table, found in inside.items() if ada in found} == set()
    assert {table for table, found in refused.items() if ada in found} == set()
    # Everywhere, people see only what is their own: their memberships and their keys.
    personal = {"members", "api_keys"}
    assert {table for table, found in inside.items() if set(found) - {own}} <= personal
    assert {table for table, found in refused.items() if found} <= personal
    assert own in inside["files"]


# The schema keeps the second line of defence


def test_every_table_of_tenants_has_row_level_security_and_a_policy_for_the_server(database_urls: DatabaseUrls) -> None:
    with psycopg.connect(database_urls.owner) as connection:
        protected = {
            name
            for (name,) in connection.execute(
                """
                select c.relname from pg_class c
                where c.relnamespace = 'toolcrib'::regnamespace and c.relkind in ('r', 'p') and c.relrowsecurity
                  and exists (select from pg_policy p where p.polrelid = c.oid
                              and %s::regrole::oid = any (p.polroles))
                """,
                (APP_ROLE,),
            ).fetchall()
        }
        without = {
            name
            for (name,) in connection.execute(
                """
                select c.relname from pg_class c
                where c.relnamespace = 'toolcrib'::regnamespace and c.relkind in ('r', 'p') and not c.relrowsecurity
                """
            ).fetchall()
        }
        tables = tenant_tables(connection)

    assert tables >= {"files", "versions", "blobs", "change_sets", "audit_records", "members", "agents", "events"}
    assert tables | {"workspaces", "users", "refresh_tokens"} <= protected
    assert without == {"alembic_version"}


@pytest.mark.parametrize("role", [APP_ROLE, SYSTEM_ROLE])
def test_serving_roles_own_nothing_and_have_no_privileges(database_urls: DatabaseUrls, role: str) -> None:
    with psycopg.connect(database_urls.owner) as connection:
        powers = connection.execute(
            """
            select rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication from pg_roles where rolname = %s
            """,
            (role,),
        ).fetchone()
        owned = connection.execute(
            "select classid::regclass, objid from pg_shdepend where refobjid = %s::regrole and deptype = 'o'", (role,)
        ).fetchall()
        memberships = connection.execute(
            "select roleid::regrole::text from pg_auth_members where member = %s::regrole", (role,)
        ).fetchall()

    assert powers == (False,) * 5
    assert owned == []
    assert memberships == []


REWRITES = ("update {} set {} = {}", "delete from {}", "truncate {}")
INSERT_ONLY = [
    *((APP_ROLE, table) for table in ("audit_records", "versions", "blobs", "events", "audit_seals")),
    *((SYSTEM_ROLE, table) for table in ("audit_records", "audit_seals")),
]


@pytest.mark.parametrize(("role", "table"), INSERT_ONLY)
def test_audit_log_and_history_cannot_be_rewritten(database_urls: DatabaseUrls, role: str, table: str) -> None:
    url = database_urls.app if role == APP_ROLE else database_urls.system
    with psycopg.connect(database_urls.owner) as owner:
        [(column,)] = owner.execute(
            "select attname from pg_attribute where attrelid = %s::regclass and attnum = 2", (f"toolcrib.{table}",)
        ).fetchall()
    with psycopg.connect(url, autocommit=True, options="-c search_path=toolcrib") as connection:
        for statement in REWRITES:
            names = [sql.Identifier(table), *[sql.Identifier(column)] * 2][: statement.count("{}")]
            with pytest.raises(InsufficientPrivilege):
                connection.execute(sql.SQL(statement).format(*names))


# Roles that may not serve


def test_serve_rejects_a_superuser(database_urls: DatabaseUrls, tmp_path: Path) -> None:
    server = Server(tmp_path, replace(database_urls, app=database_urls.owner))

    ended = server.command("serve", "--port", "1")

    assert ended.returncode == 2
    assert "superuser" in ended.stderr
    assert "toolcrib_app" in ended.stderr


@pytest.fixture
def own_database() -> Iterator[DatabaseUrls]:
    """A database whose tables may change their owner."""
    with migrated_database() as name:
        yield urls_of(name)


@pytest.fixture
def new_role(own_database: DatabaseUrls) -> Iterator[Callable[..., str]]:
    """Create a role with the given privileges and yield its URL. Roles are global to the server, so it is dropped."""
    made: list[sql.Identifier] = []
    name = psycopg.conninfo.conninfo_to_dict(own_database.owner)["dbname"]
    with psycopg.connect(own_database.owner, autocommit=True) as connection:

        def make(*, powers: str = "", member_of: str | None = None) -> str:
            role = f"toolcrib_test_{secrets.token_hex(4)}"
            made.append(sql.Identifier(role))
            connection.execute(sql.SQL("create role {} login " + powers).format(made[-1]))
            connection.execute(sql.SQL("grant usage on schema toolcrib to {}").format(made[-1]))
            connection.execute(sql.SQL("grant select on all tables in schema toolcrib to {}").format(made[-1]))
            if member_of is not None:
                connection.execute(sql.SQL("grant {} to {}").format(sql.Identifier(member_of), made[-1]))
            return role

        yield lambda **given: url_for(str(name), make(**given))
        for role in made:
            connection.execute(sql.SQL("reassign owned by {} to current_user").format(role))
            connection.execute(sql.SQL("drop owned by {}").format(role))
            connection.execute(sql.SQL("drop role {}").format(role))


async def test_owner_of_the_tables_is_rejected(own_database: DatabaseUrls, new_role: Callable[..., str]) -> None:
    url = new_role()
    role = psycopg.conninfo.conninfo_to_dict(url)["user"]
    with psycopg.connect(own_database.owner, autocommit=True) as connection:
        connection.execute(sql.SQL("alter table toolcrib.files owner to {}").format(sql.Identifier(str(role))))

    await assert_refused(url, own_database, "owns the tables")


async def test_role_that_may_become_the_owner_is_rejected(
    own_database: DatabaseUrls, new_role: Callable[..., str]
) -> None:
    owner = str(psycopg.conninfo.conninfo_to_dict(new_role())["user"])
    with psycopg.connect(own_database.owner, autocommit=True) as connection:
        connection.execute(sql.SQL("alter table toolcrib.files owner to {}").format(sql.Identifier(owner)))

    await assert_refused(new_role(member_of=owner), own_database, "owns the tables")
    await assert_refused(new_role(powers="noinherit", member_of=owner), own_database, "owns the tables")


async def test_role_that_bypasses_row_level_security_is_rejected(
    own_database: DatabaseUrls, new_role: Callable[..., str]
) -> None:
    await assert_refused(new_role(powers="bypassrls"), own_database, "bypasses row-level security")


async def test_serving_role_is_accepted_and_a_superuser_is_not(own_database: DatabaseUrls) -> None:
    await assert_refused(own_database.owner, own_database, "superuser")
    async with Database.open(own_database.app, own_database.system, pool_size=2):
        pass


async def assert_refused(url: str, urls: DatabaseUrls, why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        async with Database.open(url, urls.system, pool_size=2):
            pass


# Helpers


def tenant_tables(connection: psycopg.Connection[Any]) -> set[str]:
    """Return the tables that have a workspace column, from the schema."""
    found = connection.execute(
        """
        select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid
        where c.relnamespace = 'toolcrib'::regnamespace and c.relkind in ('r', 'p')
          and a.attname = 'workspace_id' and not a.attisdropped
        """
    )
    return {name for (name,) in found.fetchall()}


def tool_calls(accounts: TenantAccounts) -> dict[str, dict[str, Any]]:
    """A call of every tool. A new tool fails here until somebody defines its call."""
    calls = calls_of_tools(accounts.ids)
    assert set(calls) == {tool.name for tool in accounts.services.registry.list_for_scope(None)}
    return calls


def calls_of_tools(ids: dict[str, str]) -> dict[str, dict[str, Any]]:
    """A call of every tool in a workspace with these ids."""
    return {
        "ls": {"path": "/", "recursive": True},
        "read": {"path": "/secret.txt"},
        "cat": {"paths": ["/secret.txt"]},
        "file_info": {"path": "/secret.txt"},
        "read_multiple_files": {"paths": ["/secret.txt"]},
        "grep": {"pattern": "."},
        "glob": {"pattern": "*"},
        "find": {"limit": 0},
        "write": {"path": "/secret.txt", "content": "intruder", "overwrite": True},
        "edit": {"path": "/secret.txt", "insert_line": 0, "insert_content": "intruder"},
        "touch": {"path": "/intruder.txt"},
        "review": {"session_id": ids["session_id"]},
        "review_decide": {"all": "revert", "version": "intruder"},
        "mkdir": {"path": "/intruder"},
        "mv": {"source": "/secret.txt", "destination": "/intruder.txt"},
        "rm": {"path": "/secret.txt"},
        "plan_write": {"title": "intruder", "content": "intruder", "path": "/plans/secret.plan"},
        "plan_read": {"name": "secret"},
        "plan_edit": {"path": "/plans/secret.plan", "insert_line": 0, "insert_content": "intruder"},
        "plan_list": {},
        "exit_plan_mode": {"plan_file_path": "/plans/secret.plan", "session_id": ids["session_id"]},
        "ask_user": {"questions": [{"name": "name", "question": "intruder?", "schema": '{"type": "string"}'}]},
        "run_agent": {"task": "intruder"},
        "deleted_files": {},
        "changes": {"calls": [ids["call_id"]]},
        "read_result": {"call_id": ids["call_id"]},
        "attach": {"name": "intruder.png", "content": "iVBORw0KGgo="},
        "file_versions": {"file_id": ids["file_id"]},
        "file_version": {"version_id": ids["version_id"]},
        "file_compare": {"from_version": ids["from_version"], "to_version": ids["to_version"]},
        "file_restore": {"file_id": ids["file_id"], "version_id": ids["from_version"]},
        "undo": {"calls": [ids["call_id"]], "force": True},
        "fs.list": {"path": "@project"},
        "fs.read": {"path": "@project/secret.txt"},
        "fs.search": {"path": "@project", "pattern": "one"},
        "fs.write": {"path": "@project/secret.txt", "content": "intruder"},
        "fs.apply_patch": {
            "path": "@state/secret.md",
            "patch": {"operation": "updateFrontmatter", "update": {"currentNodeId": {"set": "intruder"}}},
        },
        "read_file": {"path": "secret.txt"},
        "list_directory": {"path": "."},
        "file_read": {"path": "secret.txt"},
        "file_write": {"path": "secret.txt", "content": "intruder"},
        "web_search": {"query": "intruder"},
        "web_fetch": {"url": "https://intruder.invalid/"},
        "tool_search": {"query": "intruder"},
        "bash": {"command": "echo intruder > secret.txt"},
        "bash_start": {"command": "echo intruder > secret.txt"},
        "bash_output": {"process_id": ids["process_id"]},
        "bash_input": {"process_id": ids["process_id"], "text": "intruder"},
        "bash_stop": {"process_id": ids["process_id"]},
        "bash_list": {},
    }


def assert_nothing_came_out(answers: Any) -> None:
    assert [answer.text for answer in answers if MARK in answer.text] == []


async def _result(accounts: TenantAccounts, tool: str, arguments: dict[str, Any], caller: Caller) -> str:
    """Return everything in a call's response, however it ends."""
    try:
        outcome = await accounts.services.executor.execute(
            ToolCall(tool, arguments), replace(caller, call_id=CallId(new_id()))
        )
    except (ToolcribError, psycopg.Error) as error:
        return _without_ids(repr(error))
    return _without_ids(repr(outcome))


def _without_ids(words: str) -> str:
    """Mask what differs between responses: ids, times, signatures, and the seals, which grow by a timer."""
    words = re.sub(r'"(at|signature|mac)":"[^"]*"', r'"\1":"…"', words)
    words = re.sub(r'"(number|top|verified_to|last_seal|sealed_records|unsealed_records)":\d+', r'"\1":0', words)
    words = re.sub(r'"problems":\[[^\]]*\]', '"problems":[]', words)
    return re.sub(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", "…", words)


async def _person(services: ApiServices, name: str) -> Someone:
    email = f"{name}-{secrets.token_hex(6)}@example.com"
    profile = await services.accounts.create_user(email=email, full_name=name, password_hash="x")
    return Someone(profile.user_id, email, _bearer(services.tokens.issue(profile.user_id, 0)))


async def _furnish(services: ApiServices, owner: Someone, mark: str) -> dict[str, str]:
    """Create a workspace with one of everything and return the ids under their names in API paths."""
    workspace = await services.workspaces.create(ActingUser(owner.id), name=mark, node=services.settings.node_name)
    tenant = Tenant(workspace.id, owner.id)
    agent = await services.agents.create(tenant, name=mark, definition=f"# {mark}\ntrust: guided\n")
    _, agent_key = await services.keys.create_for_agent(tenant, agent.id, name=mark, expires_at=None)
    key, _ = await services.keys.create(ActingUser(owner.id), name=mark, expires_at=None)
    await services.accounts.store_refresh_token(owner.id, lifetime=timedelta(days=1))
    [login] = await services.accounts.logins(ActingUser(owner.id))
    call = partial(_done, services, Caller(workspace.id, owner.id))
    first = await call("write", path="/secret.txt", content=f"{mark} one\n")
    second = await call("write", path="/secret.txt", content=f"{mark} two\n", overwrite=True)
    await call("write", path=f"/{mark}/other.txt", content=mark)
    await call("plan_write", path="/plans/secret.plan", title=mark, content=mark)
    await call("write", path=f"/{mark}/gone.txt", content=mark)
    await call("rm", path=f"/{mark}/gone.txt")
    process = await call("bash_start", command=f"echo {mark}; sleep 600")
    asked = {"questions": [{"name": "name", "question": mark, "schema": {"type": "string"}}]}
    question = await services.executor.execute(ToolCall("ask_user", asked), Caller(workspace.id, owner.id))
    approval, grant = await _waiting(services, owner, workspace.id, mark)
    server = await services.toolbox.rows.create(
        tenant, name=mark, transport=McpTransport.HTTP, url=f"https://127.0.0.1:9/{mark}", secrets={"X-Key": mark}
    )
    invitation, _ = await services.invitations.create(tenant, email=f"{mark}@example.com", role=WorkspaceRole.VIEWER)
    # A requested name is repeated in the response, so it has no mark.
    package = f"package-{secrets.token_hex(4)}"
    await services.packages.install(tenant, package_of(name=package, files={f"{mark}.md": mark}))
    schedule = await services.schedules.rows.create(
        tenant, name=mark, cron="0 0 1 1 *", time_zone="UTC", agent_id=agent.id, message=mark
    )
    session = await services.sessions.create(tenant, title=mark, agent_id=agent.id)
    run = await services.run_service.submit(tenant, session.id, mark, via="test")
    # It fails later for lack of a model; what it writes is Ada's own.
    async with asyncio.timeout(PATIENCE):
        while (await services.run_service.runs.get(tenant, run.id)).state != "ended":
            pass
    async with services.database.transaction(tenant) as connection:
        await EventStore.append_within(connection, tenant, Event(session.id, "message", {"content": mark}))
    return {
        "workspace_id": str(workspace.id),
        "user_id": str(owner.id),
        "agent_id": str(agent.id),
        "agent_key": agent_key,
        "key_id": str(key.id),
        "login_id": str(login.id),
        "file_id": first["file_id"],
        "process_id": process["metadata"]["processId"],
        "version_id": second["version_id"],
        "from_version": first["version_id"],
        "to_version": second["version_id"],
        "call_id": second["call_id"],
        "pause_id": approval,
        "grant_id": grant,
        "question_id": str(question.metadata["pause_id"]),
        "run_id": str(run.id),
        "provider": "anthropic",
        "session_id": str(session.id),
        "server_id": str(server.id),
        "invitation_id": str(invitation.id),
        "package_name": package,
        "schedule_id": str(schedule.id),
    }


async def _waiting(services: ApiServices, owner: Someone, workspace_id: WorkspaceId, mark: str) -> tuple[str, str]:
    """Create a call that waits for approval, and the grant that another decision stored."""
    tenant = Tenant(workspace_id, owner.id)
    rules = "tool_permissions: {write: {allowed: true}}"
    agent = await services.agents.create(tenant, name=f"{mark} writer", definition=rules)
    approvals = []
    for path in ("/first.txt", "/second.txt"):
        caller = Caller(workspace_id, owner.id, agent=agent.as_caller)
        outcome = await services.executor.execute(ToolCall("write", {"path": path, "content": mark}), caller)
        approvals.append(await services.paused_calls.get(tenant, outcome.metadata["pause_id"]))
    # Executed by the background loop, if at all: what it writes is Ada's own.
    yes = ApprovalDecision(approved=True, scope=GrantScope.ALWAYS, rule=approvals[0].approval.suggested_rule)
    decided = await services.paused_calls.decide(tenant, approvals[0].id, yes, via="test")
    async with asyncio.timeout(PATIENCE):
        while (await services.calls.get(tenant, decided.call_id)).state != "done":
            pass
    [grant] = await services.grants.list(tenant)
    return str(approvals[1].id), str(grant.id)


async def _done(services: ApiServices, caller: Caller, tool: str, **arguments: Any) -> dict[str, Any]:
    outcome = await services.executor.execute(ToolCall(tool, arguments), replace(caller, call_id=CallId(new_id())))
    assert outcome.succeeded, outcome.error
    return {**outcome.result, "call_id": str(outcome.call_id)}


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
