"""Workspaces over HTTP: who creates, sees, renames and deletes them."""

from uuid import uuid4

import httpx2
import pytest

from tests.integration.api.accounts import Founder, Newcomer, Someone, code_of
from toolcrib.api.api_services import ApiServices
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.database import Tenant


async def test_creator_of_a_workspace_owns_it(client: httpx2.AsyncClient, ada: Someone) -> None:
    founded = await client.post("/workspaces", headers=ada.headers, json={"name": " website "})
    found = await client.get(f"/workspaces/{founded.json()['id']}", headers=ada.headers)

    assert founded.status_code == 201
    assert (founded.json()["name"], founded.json()["role"]) == ("website", "owner")
    assert found.json() == founded.json()


async def test_workspaces_are_listed_in_pages(client: httpx2.AsyncClient, ada: Someone, founded: Founder) -> None:
    made = [str(await founded(ada)) for _ in range(3)]

    first = (await client.get("/workspaces", headers=ada.headers, params={"limit": 2})).json()
    second = await client.get("/workspaces", headers=ada.headers, params={"limit": 2, "before": first["next"]})

    listed = [workspace["id"] for workspace in first["items"] + second.json()["items"]]
    assert listed == made[::-1]
    assert second.json()["next"] is None


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("GET", "/members"),
        ("POST", "/members"),
        ("PATCH", "/members/{id}"),
        ("DELETE", "/members/{id}"),
        ("GET", "/agents"),
        ("POST", "/agents"),
        ("GET", "/agents/{id}"),
        ("PATCH", "/agents/{id}"),
        ("DELETE", "/agents/{id}"),
        ("POST", "/agents/{id}/keys"),
        ("GET", "/audit"),
    ],
)
async def test_foreign_and_unknown_workspace_get_the_same_response(
    client: httpx2.AsyncClient, ada: Someone, newcomer: Newcomer, founded: Founder, method: str, path: str
) -> None:
    foreign = await founded(await newcomer())
    suits_some_route = {
        "": {"name": "x"},
        "/members": {"email": ada.email},
        "/members/{id}": {"role": "viewer"},
        "/agents": {"name": "x", "definition": ""},
    }.get(path, {"name": "x"})

    answers = [
        await client.request(
            method,
            f"/workspaces/{workspace_id}{path.format(id=uuid4())}",
            headers=ada.headers,
            json=None if method in ("GET", "DELETE") else suits_some_route,
        )
        for workspace_id in (foreign, uuid4())
    ]

    assert answers[0].status_code == answers[1].status_code == 403
    assert (
        answers[0].json()
        == answers[1].json()
        == {
            "success": False,
            "error": "Access forbidden: User is not a member of this workspace",
            "code": "FORBIDDEN",
        }
    )


@pytest.mark.parametrize("role", [WorkspaceRole.VIEWER, WorkspaceRole.MEMBER])
async def test_only_owners_rename_and_delete(
    client: httpx2.AsyncClient,
    services: ApiServices,
    ada: Someone,
    newcomer: Newcomer,
    workspace_id: WorkspaceId,
    role: WorkspaceRole,
) -> None:
    bob = await newcomer()
    await services.workspaces.add_member(Tenant(workspace_id, ada.id), email=bob.email, role=role)

    seen = await client.get(f"/workspaces/{workspace_id}", headers=bob.headers)
    renamed = await client.patch(f"/workspaces/{workspace_id}", headers=bob.headers, json={"name": "bob's"})
    removed = await client.delete(f"/workspaces/{workspace_id}", headers=bob.headers)

    assert seen.json()["role"] == role
    assert code_of(renamed) == code_of(removed) == (403, "FORBIDDEN")


async def test_owner_renames_and_deletes(client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId) -> None:
    renamed = await client.patch(f"/workspaces/{workspace_id}", headers=ada.headers, json={"name": "shop"})
    removed = await client.delete(f"/workspaces/{workspace_id}", headers=ada.headers)
    after = await client.get(f"/workspaces/{workspace_id}", headers=ada.headers)

    assert renamed.json()["name"] == "shop"
    assert removed.status_code == 204
    assert code_of(after) == (403, "FORBIDDEN")


async def test_malformed_id_is_a_validation_error(client: httpx2.AsyncClient, ada: Someone) -> None:
    response = await client.get("/workspaces/website", headers=ada.headers)

    assert code_of(response) == (400, "VALIDATION_ERROR")
    assert list(response.json()["fields"]) == ["workspace_id"]


async def test_malformed_id_without_a_token_is_unauthenticated(client: httpx2.AsyncClient) -> None:
    assert code_of(await client.get("/workspaces/website")) == (401, "INVALID_TOKEN")


async def test_owner_sets_a_trust_ceiling_that_limits_sessions(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId
) -> None:
    url = f"/workspaces/{workspace_id}"
    agent = await client.post(f"{url}/agents", json={"name": "a", "definition": "trust: guided"}, headers=ada.headers)
    set_ = await client.patch(url, json={"max_trust": "supervised"}, headers=ada.headers)
    named = await client.patch(url, json={"name": "same ceiling"}, headers=ada.headers)
    given = {"agent_id": agent.json()["id"], "trust": "guided"}
    refused = await client.post(f"{url}/sessions", json=given, headers=ada.headers)
    seen = await client.get(f"{url}/agents/{given['agent_id']}", headers=ada.headers)
    lifted = await client.patch(url, json={"max_trust": None}, headers=ada.headers)
    begun = await client.post(f"{url}/sessions", json=given, headers=ada.headers)

    assert (set_.json()["max_trust"], named.json()["max_trust"]) == ("supervised", "supervised")
    assert code_of(refused) == (403, "FORBIDDEN")
    assert seen.json()["max_trust"] == "supervised"
    assert (lifted.json()["max_trust"], begun.status_code) == (None, 201)
