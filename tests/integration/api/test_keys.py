"""A person's own API keys. Keys of agents are in ``test_agents``."""

from uuid import uuid4

import httpx2
import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.integration.api.accounts import Newcomer, Someone, bearer, code_of
from toolcrib.core.ids import WorkspaceId


async def made(client: httpx2.AsyncClient, ada: Someone, **given: object) -> tuple[str, str]:
    """Create a key and return its id and secret."""
    response = await client.post("/api-keys", headers=ada.headers, json={"name": "laptop"} | given)
    assert response.status_code == 201, response.text
    return response.json()["key"]["id"], response.json()["secret"]


async def test_key_authenticates_its_person(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId
) -> None:
    _, secret = await made(client, ada)

    me = await client.get("/auth/me", headers=bearer(secret))
    workspace = await client.get(f"/workspaces/{workspace_id}", headers=bearer(secret))

    assert me.json()["id"] == str(ada.id)
    assert workspace.json()["role"] == "owner"


async def test_secret_is_shown_once_and_stored_as_a_hash(
    client: httpx2.AsyncClient, ada: Someone, database_urls: DatabaseUrls
) -> None:
    key_id, secret = await made(client, ada, expires_in_days=30)

    listed = await client.get("/api-keys", headers=ada.headers)
    async with await psycopg.AsyncConnection.connect(database_urls.owner) as connection:
        cursor = await connection.execute("select k::text from toolcrib.api_keys k where id = %s", (key_id,))
        row = await cursor.fetchone()

    [key] = listed.json()["items"]
    assert (key["id"], key["name"], key["agent_id"]) == (key_id, "laptop", None)
    assert secret.startswith(key["hint"])
    assert key["expires_at"] is not None
    assert secret not in listed.text
    assert row is not None
    assert secret not in row[0]


async def test_revoked_key_is_rejected_at_once(client: httpx2.AsyncClient, ada: Someone) -> None:
    key_id, secret = await made(client, ada)

    revoked = await client.delete(f"/api-keys/{key_id}", headers=ada.headers)
    after = await client.get("/auth/me", headers=bearer(secret))
    again = await client.delete(f"/api-keys/{key_id}", headers=ada.headers)

    assert revoked.status_code == 204
    assert code_of(after) == (401, "INVALID_TOKEN")
    assert code_of(again) == (404, "NOT_FOUND")


async def test_expired_key_is_rejected(client: httpx2.AsyncClient, ada: Someone, database_urls: DatabaseUrls) -> None:
    key_id, secret = await made(client, ada, expires_in_days=1)
    async with await psycopg.AsyncConnection.connect(database_urls.owner) as connection:
        await connection.execute(
            "update toolcrib.api_keys set expires_at = now() - interval '1 second' where id = %s", (key_id,)
        )

    assert code_of(await client.get("/auth/me", headers=bearer(secret))) == (401, "INVALID_TOKEN")


async def test_unknown_key_is_rejected(client: httpx2.AsyncClient) -> None:
    assert code_of(await client.get("/auth/me", headers=bearer("tck_unknown"))) == (401, "INVALID_TOKEN")


async def test_keys_of_others_are_neither_listed_nor_revoked(
    client: httpx2.AsyncClient, ada: Someone, newcomer: Newcomer
) -> None:
    key_id, secret = await made(client, ada)
    bob = await newcomer()

    listed = await client.get("/api-keys", headers=bob.headers)
    revoked = await client.delete(f"/api-keys/{key_id}", headers=bob.headers)

    assert listed.json()["items"] == []
    assert code_of(revoked) == (404, "NOT_FOUND")
    assert (await client.get("/auth/me", headers=bearer(secret))).status_code == 200


async def test_key_cannot_create_or_revoke_keys(client: httpx2.AsyncClient, ada: Someone) -> None:
    key_id, secret = await made(client, ada)

    making = await client.post("/api-keys", headers=bearer(secret), json={"name": "spare"})
    revoking = await client.delete(f"/api-keys/{key_id}", headers=bearer(secret))

    assert code_of(making) == code_of(revoking) == (403, "FORBIDDEN")


@pytest.mark.parametrize("given", [{"name": ""}, {"name": "x" * 201}, {"name": "laptop", "expires_in_days": 0}])
async def test_invalid_key_request_is_rejected(
    client: httpx2.AsyncClient, ada: Someone, given: dict[str, object]
) -> None:
    response = await client.post("/api-keys", headers=ada.headers, json=given)

    assert code_of(response) == (400, "VALIDATION_ERROR")


async def test_unknown_key_cannot_be_revoked(client: httpx2.AsyncClient, ada: Someone) -> None:
    response = await client.delete(f"/api-keys/{uuid4()}", headers=ada.headers)

    assert code_of(response) == (404, "NOT_FOUND")
