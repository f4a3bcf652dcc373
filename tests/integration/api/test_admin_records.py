"""The audit log records changes of permissions: who changed what, the old and the new value, and no secret."""

from typing import Any

import httpx2
import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.integration.api.accounts import Newcomer, Someone
from toolcrib.api.api_services import ApiServices
from toolcrib.core.agents import TrustLevel
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import WorkspaceId
from toolcrib.core.mcp_servers import McpTransport
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.storage.database import Tenant
from toolcrib.storage.users import ActingUser

NOBODY = "00000000-0000-0000-0000-000000000000"
SECRET = "s3cr3t-that-nobody-else-may-see"


@pytest.fixture
def tenant(workspace_id: WorkspaceId, ada: Someone) -> Tenant:
    return Tenant(workspace_id, ada.id)


async def records(client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId) -> list[dict[str, Any]]:
    """Return the records, oldest first."""
    address = f"/workspaces/{workspace_id}/audit"
    found = (await client.get(address, headers=ada.headers, params={"kind": "admin"})).json()["items"]
    calls = (await client.get(address, headers=ada.headers, params={"kind": "call"})).json()["items"]
    assert {record["kind"] for record in found} <= {"admin"}
    assert calls == []
    assert {record["user_id"] for record in found} <= {str(ada.id)}
    return list(reversed(found))


def result(record: dict[str, Any]) -> tuple[str, Any, Any]:
    return record["tool"], record["arguments"]["before"], record["arguments"]["after"]


def of_no_workspace(urls: DatabaseUrls, user: Someone) -> list[tuple[str, dict[str, Any]]]:
    with psycopg.connect(urls.owner) as connection:
        return connection.execute(
            "select tool, arguments from toolcrib.audit_records "
            "where workspace_id = %s and user_id = %s order by position",
            (NOBODY, user.id),
        ).fetchall()


async def test_changes_of_members_and_roles_are_recorded(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, newcomer: Newcomer, tenant: Tenant
) -> None:
    bob = await newcomer()
    await services.workspaces.add_member(tenant, email=bob.email, role=WorkspaceRole.VIEWER)
    await services.workspaces.change_role(tenant, bob.id, WorkspaceRole.OWNER)
    await services.workspaces.change_role(tenant, bob.id, WorkspaceRole.OWNER)
    await services.workspaces.remove_member(tenant, bob.id)

    found = await records(client, ada, tenant.workspace_id)

    assert [result(record) for record in found] == [
        ("member.created", None, {"role": "viewer"}),
        ("member.changed", {"role": "viewer"}, {"role": "owner"}),
        ("member.deleted", {"role": "owner"}, None),
    ]
    assert {record["arguments"]["subject"] for record in found} == {str(bob.id)}


async def test_changes_of_agents_rules_and_keys_are_recorded(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, tenant: Tenant
) -> None:
    agent = await services.agents.create(tenant, name="writer", definition="trust: supervised")
    await services.agents.update(tenant, agent.id, definition=f"trust: autonomous\nprompt: {SECRET}")
    key, secret = await services.keys.create_for_agent(tenant, agent.id, name="ci", expires_at=None)
    await services.agents.delete(tenant, agent.id)

    found = await records(client, ada, tenant.workspace_id)

    assert [record["tool"] for record in found] == [
        "agent.created",
        "agent.changed",
        "api_key.created",
        "agent.deleted",
    ]
    changed = found[1]["arguments"]
    assert (changed["before"]["rules"]["trust"], changed["after"]["rules"]["trust"]) == ("supervised", "autonomous")
    assert found[2]["arguments"]["subject"] == str(key.id)
    assert secret not in str(found)
    assert SECRET not in str(found)


async def test_changes_of_session_trust_and_ceiling_are_recorded(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, tenant: Tenant
) -> None:
    agent = await services.agents.create(tenant, name="writer", definition="")
    session = await services.sessions.create(tenant, agent_id=agent.id)
    await services.sessions.set_trust(tenant, session.id, TrustLevel.AUTONOMOUS)
    await services.workspaces.limit_trust(tenant, TrustLevel.GUIDED)

    _, entrusted, limited = await records(client, ada, tenant.workspace_id)

    assert (entrusted["tool"], entrusted["arguments"]["after"]["trust"]) == ("session_trust.changed", "autonomous")
    assert entrusted["arguments"]["subject"] == str(session.id)
    assert (limited["tool"], limited["arguments"]["before"]["max_trust"]) == ("workspace.changed", None)
    assert limited["arguments"]["after"]["max_trust"] == "guided"


async def test_changes_of_the_session_phase_are_recorded(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, tenant: Tenant
) -> None:
    definition = "phases: [{name: a, tool_permissions: {}}, {name: b, tool_permissions: {}}]"
    agent = await services.agents.create(tenant, name="writer", definition=definition)
    session = await services.sessions.create(tenant, agent_id=agent.id)
    await services.sessions.enter_phase(tenant, session.id, "b")
    await services.sessions.enter_phase(tenant, session.id, "b")

    _, entered = await records(client, ada, tenant.workspace_id)

    assert (entered["tool"], entered["arguments"]["subject"]) == ("session_phase.changed", str(session.id))
    assert (entered["arguments"]["before"]["phase"], entered["arguments"]["after"]["phase"]) == (None, "b")


async def test_changes_of_mcp_servers_are_recorded_without_tokens(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, tenant: Tenant
) -> None:
    servers = services.toolbox.rows
    program = await servers.create(
        tenant,
        name="tools",
        transport=McpTransport.STDIO,
        command=["run-it", "--token", SECRET],
        secrets={"KEY": SECRET},
    )
    address = f"https://{SECRET}@mcp.example.org:8443/{SECRET}?key={SECRET}"
    await servers.create(tenant, name="far", transport=McpTransport.HTTP, url=address)
    await servers.update(tenant, program.id, enabled=False)
    await servers.delete(tenant, program.id)

    found = await records(client, ada, tenant.workspace_id)

    assert [record["tool"] for record in found] == [
        "mcp_server.created", "mcp_server.created", "mcp_server.changed", "mcp_server.deleted",
    ]  # fmt: skip
    assert found[0]["arguments"]["after"]["program"] == "run-it"
    assert found[1]["arguments"]["after"]["host"] == "mcp.example.org:8443"
    assert (found[2]["arguments"]["before"]["enabled"], found[2]["arguments"]["after"]["enabled"]) == (True, False)
    assert SECRET not in str(found)


async def test_changes_of_credentials_and_personal_keys_are_recorded(
    services: ApiServices, database_urls: DatabaseUrls, ada: Someone
) -> None:
    person = ActingUser(ada.id)
    await services.access.store(person, "anthropic", ProviderCredentials(secret=SECRET))
    await services.access.store(person, "anthropic", ProviderCredentials(secret=f"{SECRET}2"))
    await services.access.remove(person, "anthropic")
    _, secret = await services.keys.create(person, name="laptop", expires_at=None)

    found = of_no_workspace(database_urls, ada)

    assert [tool for tool, _ in found] == [
        "credential.created", "credential.changed", "credential.deleted", "api_key.created",
    ]  # fmt: skip
    assert SECRET not in str(found)
    assert secret not in str(found)


async def test_deleting_a_workspace_writes_one_record(
    client: httpx2.AsyncClient, services: ApiServices, database_urls: DatabaseUrls, ada: Someone, tenant: Tenant
) -> None:
    await services.agents.create(tenant, name="writer", definition="")
    await services.workspaces.delete(tenant)

    with psycopg.connect(database_urls.owner) as connection:
        found = connection.execute(
            """
            select tool, user_id, arguments -> 'before' ->> 'name' from toolcrib.audit_records
            where workspace_id = %s order by position
            """,
            (tenant.workspace_id,),
        ).fetchall()

    assert found == [("agent.created", ada.id, None), ("workspace.deleted", ada.id, "website")]


async def test_failed_change_writes_no_record(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, newcomer: Newcomer, tenant: Tenant
) -> None:
    bob = await newcomer()
    await services.workspaces.add_member(tenant, email=bob.email, role=WorkspaceRole.VIEWER)
    for _ in range(2):
        await client.post(
            f"/workspaces/{tenant.workspace_id}/members",
            headers=ada.headers,
            json={"email": bob.email, "role": "owner"},
        )

    assert [record["tool"] for record in await records(client, ada, tenant.workspace_id)] == ["member.created"]
