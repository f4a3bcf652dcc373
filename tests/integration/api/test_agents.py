"""Agents over HTTP, and what their keys give access to."""

from uuid import uuid4

import httpx2
import pytest

from tests.integration.api.accounts import Founder, Newcomer, Someone, bearer, code_of
from toolcrib.api.api_services import ApiServices
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.database import Tenant

DEFINITION = """\
# Writes the docs, and nothing else.
trust: autonomous
tool_permissions:
  read: {allowed: true}
  write: {allowed: true, paths: ["docs/**"]}
"""


@pytest.fixture
def agents(workspace_id: WorkspaceId) -> str:
    return f"/workspaces/{workspace_id}/agents"


@pytest.fixture
async def writer(client: httpx2.AsyncClient, ada: Someone, agents: str) -> str:
    """Return the URL of an agent in Ada's workspace."""
    response = await client.post(agents, headers=ada.headers, json={"name": "writer", "definition": DEFINITION})
    assert response.status_code == 201, response.text
    return f"{agents}/{response.json()['id']}"


@pytest.fixture
async def writers_key(client: httpx2.AsyncClient, ada: Someone, writer: str) -> str:
    response = await client.post(f"{writer}/keys", headers=ada.headers, json={"name": "ci"})
    assert response.status_code == 201, response.text
    secret: str = response.json()["secret"]
    return secret


async def test_agent_definition_is_stored_verbatim(
    client: httpx2.AsyncClient, ada: Someone, agents: str, writer: str
) -> None:
    found = (await client.get(writer, headers=ada.headers)).json()
    listed = (await client.get(agents, headers=ada.headers)).json()["items"]

    assert listed == [found]
    assert found["definition"] == DEFINITION
    assert found["rules"]["trust"] == "autonomous"
    assert found["rules"]["tool_permissions"]["write"]["paths"] == ["docs/**"]


async def test_owner_update_changes_only_the_given_fields(
    client: httpx2.AsyncClient, ada: Someone, writer: str
) -> None:
    renamed = (await client.patch(writer, headers=ada.headers, json={"name": "author"})).json()
    rewritten = (await client.patch(writer, headers=ada.headers, json={"definition": "trust: guided"})).json()

    assert (renamed["name"], renamed["definition"]) == ("author", DEFINITION)
    assert (rewritten["name"], rewritten["rules"]["trust"]) == ("author", "guided")
    assert rewritten["rules"]["tool_permissions"] is None


async def test_invalid_definition_is_rejected_with_the_field(
    client: httpx2.AsyncClient, ada: Someone, agents: str, writer: str
) -> None:
    wrong = "trust: blind\ntool_permisions: {}\n"
    adding = await client.post(agents, headers=ada.headers, json={"name": "x", "definition": wrong})
    changing = await client.patch(writer, headers=ada.headers, json={"definition": wrong})

    assert code_of(adding) == code_of(changing) == (400, "VALIDATION_ERROR")
    assert set(adding.json()["fields"]) == {"trust", "tool_permisions"}


async def test_agent_name_is_unique_until_the_agent_is_deleted(
    client: httpx2.AsyncClient, ada: Someone, agents: str, writer: str
) -> None:
    another = {"name": "writer", "definition": ""}
    taken = await client.post(agents, headers=ada.headers, json=another)
    removed = await client.delete(writer, headers=ada.headers)
    free = await client.post(agents, headers=ada.headers, json=another)

    assert code_of(taken) == (409, "CONFLICT")
    assert (removed.status_code, free.status_code) == (204, 201)


async def test_members_read_agents_and_only_owners_manage_them(
    client: httpx2.AsyncClient,
    services: ApiServices,
    ada: Someone,
    newcomer: Newcomer,
    workspace_id: WorkspaceId,
    agents: str,
    writer: str,
) -> None:
    bob = await newcomer()
    await services.workspaces.add_member(Tenant(workspace_id, ada.id), email=bob.email, role=WorkspaceRole.MEMBER)

    seen = await client.get(writer, headers=bob.headers)
    refused = [
        await client.post(agents, headers=bob.headers, json={"name": "x", "definition": ""}),
        await client.patch(writer, headers=bob.headers, json={"definition": ""}),
        await client.post(f"{writer}/keys", headers=bob.headers, json={"name": "x"}),
        await client.delete(writer, headers=bob.headers),
    ]

    assert seen.status_code == 200
    assert {code_of(response) for response in refused} == {(403, "FORBIDDEN")}


async def test_unknown_agent_is_not_found(client: httpx2.AsyncClient, ada: Someone, agents: str, writer: str) -> None:
    await client.delete(writer, headers=ada.headers)
    answers = [
        await client.request(method, address, headers=ada.headers, json=body)
        for address in (writer, f"{agents}/{uuid4()}")
        for method, body in (("GET", None), ("PATCH", {"name": "x"}), ("DELETE", None))
    ]
    answers.append(await client.post(f"{writer}/keys", headers=ada.headers, json={"name": "x"}))

    assert {code_of(response) for response in answers} == {(404, "NOT_FOUND")}


async def test_agent_key_reads_only_its_own_workspace(
    client: httpx2.AsyncClient, ada: Someone, founded: Founder, workspace_id: WorkspaceId, writers_key: str
) -> None:
    another = await founded(ada)

    own = await client.get(f"/workspaces/{workspace_id}", headers=bearer(writers_key))
    others = await client.get(f"/workspaces/{another}", headers=bearer(writers_key))

    assert own.status_code == 200
    assert code_of(others) == (403, "FORBIDDEN")


async def test_agent_key_manages_nothing(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, agents: str, writer: str, writers_key: str
) -> None:
    workspace = f"/workspaces/{workspace_id}"
    attempts: list[tuple[str, str, object]] = [
        ("GET", "/auth/me", None),
        ("POST", "/auth/logout", {"everywhere": True}),
        ("GET", "/api-keys", None),
        ("POST", "/api-keys", {"name": "spare"}),
        ("GET", "/workspaces", None),
        ("POST", "/workspaces", {"name": "mine"}),
        ("PATCH", workspace, {"name": "mine"}),
        ("DELETE", workspace, None),
        ("GET", f"{workspace}/members", None),
        ("POST", f"{workspace}/members", {"email": ada.email}),
        ("PATCH", f"{workspace}/members/{ada.id}", {"role": "viewer"}),
        ("DELETE", f"{workspace}/members/{ada.id}", None),
        ("GET", agents, None),
        ("POST", agents, {"name": "x", "definition": ""}),
        ("PATCH", writer, {"definition": "trust: autonomous"}),
        ("DELETE", writer, None),
        ("POST", f"{writer}/keys", {"name": "spare"}),
        ("GET", f"{workspace}/audit", None),
    ]

    answers = [
        await client.request(method, path, headers=bearer(writers_key), json=body) for method, path, body in attempts
    ]

    assert {code_of(response) for response in answers} == {(403, "FORBIDDEN")}


async def test_deleting_an_agent_revokes_its_keys(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, writer: str, writers_key: str
) -> None:
    await client.delete(writer, headers=ada.headers)

    response = await client.get(f"/workspaces/{workspace_id}", headers=bearer(writers_key))

    assert code_of(response) == (401, "INVALID_TOKEN")


async def test_creator_of_an_agent_key_sees_and_revokes_it(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, writers_key: str
) -> None:
    [key] = (await client.get("/api-keys", headers=ada.headers)).json()["items"]

    revoked = await client.delete(f"/api-keys/{key['id']}", headers=ada.headers)
    after = await client.get(f"/workspaces/{workspace_id}", headers=bearer(writers_key))

    assert (key["name"], key["workspace_id"]) == ("ci", str(workspace_id))
    assert revoked.status_code == 204
    assert code_of(after) == (401, "INVALID_TOKEN")


async def test_unknown_tool_is_rejected_with_the_nearest_name(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, workspace_id: WorkspaceId
) -> None:
    address = f"/workspaces/{workspace_id}/agents"
    own = "tool_permissions: {my_own_tool: {allowed: true}}\n"
    program = await services.agents.create(Tenant(workspace_id, ada.id), name="program", definition=own)

    wrong = "toolsets: [workspac]\ntool_permissions: {bsah: {allowed: true}, 'mcp:later/send': {allowed: true}}\n"
    adding = await client.post(address, json={"name": "a", "definition": wrong}, headers=ada.headers)
    changing = await client.patch(f"{address}/{program.id}", json={"definition": wrong}, headers=ada.headers)
    keeping = await client.patch(
        f"{address}/{program.id}", json={"definition": own + "model: m\n"}, headers=ada.headers
    )

    assert code_of(adding) == code_of(changing) == (400, "VALIDATION_ERROR")
    assert adding.json()["fields"] == {
        "toolsets.0": "Unknown toolset `workspac`. Did you mean `workspace`?",
        "tool_permissions.bsah": "Unknown tool `bsah`. Did you mean `bash`?",
    }
    # A program's own tool exists only while the program runs; others may still edit its agent.
    assert keeping.status_code == 200, keeping.text
