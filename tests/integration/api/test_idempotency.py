"""``Idempotency-Key``: a repeated POST has one effect and one answer."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from tests.databases import DatabaseUrls
from tests.integration.api.accounts import (
    API,
    Founder,
    Newcomer,
    Someone,
    bearer,
    code_of,
    keyed,
    new_email,
    sessions_of,
)
from tests.wait_until import PATIENCE
from toolcrib.api.api_services import ApiServices
from toolcrib.api.app import create_app
from toolcrib.api.idempotency import effect_kind
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.idempotency import EffectKind
from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.blobs import RetentionStore
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.users import ActingUser


async def calls_of(database: Database, person: Someone, workspace: WorkspaceId) -> int:
    async with database.transaction(Tenant(workspace, person.id)) as connection:
        row = await connection.returned_row(
            "select count(*) from toolcrib.tool_calls where workspace_id = %s", (workspace,)
        )
    return int(row[0])


def write(path: str = "/notes.md", content: str = "once\n") -> dict[str, Any]:
    return {"tool": "write", "args": {"path": path, "content": content}}


async def test_repeated_post_creates_one_session_and_gets_the_same_answer(
    client: httpx2.AsyncClient, ada: Someone, founded: Founder
) -> None:
    workspace, headers = await founded(ada), keyed(ada)

    first = await client.post(f"/workspaces/{workspace}/sessions", headers=headers, json={"title": "a"})
    again = await client.post(f"/workspaces/{workspace}/sessions", headers=headers, json={"title": "a"})

    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert len(await sessions_of(client, ada, workspace)) == 1


async def test_post_without_a_key_is_done_every_time(
    client: httpx2.AsyncClient, ada: Someone, founded: Founder
) -> None:
    workspace = await founded(ada)

    for _ in range(2):
        await client.post(f"/workspaces/{workspace}/sessions", headers=ada.headers, json={})

    assert len(await sessions_of(client, ada, workspace)) == 2


async def test_repeated_tool_call_is_made_once(
    client: httpx2.AsyncClient, ada: Someone, founded: Founder, database: Database
) -> None:
    workspace, headers = await founded(ada), keyed(ada)

    first = await client.post(f"/workspaces/{workspace}/tools", headers=headers, json=write())
    again = await client.post(f"/workspaces/{workspace}/tools", headers=headers, json=write())

    assert first.status_code == 200, first.text
    assert again.json() == first.json()
    assert await calls_of(database, ada, workspace) == 1


async def test_two_clients_at_once_have_one_effect(
    client: httpx2.AsyncClient, ada: Someone, founded: Founder, database: Database
) -> None:
    workspace, headers = await founded(ada), keyed(ada)
    answers = await asyncio.gather(
        *(client.post(f"/workspaces/{workspace}/tools", headers=headers, json=write()) for _ in range(8))
    )

    done = [answer for answer in answers if answer.status_code == 200]
    others = [answer for answer in answers if answer.status_code != 200]
    assert done
    assert len({answer.text for answer in done}) == 1
    for other in others:
        assert code_of(other) == (409, "IDEMPOTENCY_KEY_IN_USE")
        assert other.headers["retry-after"] == "1"
    assert await calls_of(database, ada, workspace) == 1


@pytest.mark.parametrize(("path", "body"), [("sessions", {"title": "b"}), ("tools", write())])
async def test_key_of_another_request_is_refused(
    client: httpx2.AsyncClient, ada: Someone, founded: Founder, path: str, body: dict[str, Any]
) -> None:
    workspace, headers = await founded(ada), keyed(ada)
    await client.post(f"/workspaces/{workspace}/sessions", headers=headers, json={"title": "a"})

    other = await client.post(f"/workspaces/{workspace}/{path}", headers=headers, json=body)

    assert code_of(other) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert len(await sessions_of(client, ada, workspace)) == 1


async def test_same_key_of_two_people_is_two_keys(client: httpx2.AsyncClient, ada: Someone, newcomer: Newcomer) -> None:
    bob = await newcomer()

    made = [
        (await client.post("/workspaces", headers=keyed(one, "same"), json={"name": "w"})).json()["id"]
        for one in (ada, bob)
    ]

    assert made[0] != made[1]


async def test_request_that_failed_does_not_use_up_its_key(
    client: httpx2.AsyncClient, ada: Someone, founded: Founder, services: ApiServices
) -> None:
    workspace, headers = await founded(ada), keyed(ada)
    invalid = await client.post(f"/workspaces/{workspace}/sessions", headers=headers, json={"title": 5})
    unknown = await client.post(f"/workspaces/{uuid4()}/sessions", headers=headers, json={})

    made = await client.post(f"/workspaces/{workspace}/sessions", headers=headers, json={"title": "a"})

    assert code_of(invalid) == (400, "VALIDATION_ERROR")
    assert code_of(unknown) == (403, "FORBIDDEN")
    assert made.status_code == 201


async def test_failed_tool_call_is_not_made_again(client: httpx2.AsyncClient, ada: Someone, founded: Founder) -> None:
    workspace, headers = await founded(ada), keyed(ada)
    body = {"tool": "read", "args": {"path": "/later.md"}}
    first = await client.post(f"/workspaces/{workspace}/tools", headers=headers, json=body)
    await client.post(f"/workspaces/{workspace}/tools", headers=ada.headers, json=write("/later.md"))

    again = await client.post(f"/workspaces/{workspace}/tools", headers=headers, json=body)

    assert code_of(first) == code_of(again) == (404, "NOT_FOUND")


@pytest.mark.parametrize("key", ["", " ", "a b", "ä", "x" * 256])
async def test_malformed_key_is_refused(client: httpx2.AsyncClient, ada: Someone, key: str) -> None:
    headers = [(b"Authorization", f"Bearer {ada.token}".encode()), (b"Idempotency-Key", key.encode("latin-1"))]

    refused = await client.post("/workspaces", headers=headers, json={"name": "w"})

    assert code_of(refused) == (400, "VALIDATION_ERROR")
    assert "Idempotency-Key" in refused.json()["fields"]


async def test_quoted_key_is_the_same_key(client: httpx2.AsyncClient, ada: Someone) -> None:
    made = [
        (await client.post("/workspaces", headers=keyed(ada, key), json={"name": "w"})).json()["id"]
        for key in ("quoted", '"quoted"')
    ]

    assert made[0] == made[1]


async def test_streamed_tool_call_is_made_once(
    client: httpx2.AsyncClient, ada: Someone, founded: Founder, database: Database
) -> None:
    workspace, headers = await founded(ada), {**keyed(ada), "Accept": "text/event-stream"}

    ends = []
    for _ in range(2):
        answer = await client.post(f"/workspaces/{workspace}/tools", headers=headers, json=write())
        [line] = [line for line in answer.text.splitlines() if line.startswith("data: ") and '"end"' in line]
        ends.append(json.loads(line[6:])["payload"])

    assert ends[0]["status"] == 200
    assert ends[0] == ends[1]
    assert await calls_of(database, ada, workspace) == 1


async def test_secret_of_a_created_key_is_shown_once_and_not_kept(
    client: httpx2.AsyncClient, ada: Someone, database_urls: DatabaseUrls
) -> None:
    headers = keyed(ada, "the-clients-own-key")

    first = await client.post("/api-keys", headers=headers, json={"name": "ci"})
    again = await client.post("/api-keys", headers=headers, json={"name": "ci"})

    assert first.status_code == 201
    assert code_of(again) == (409, "IDEMPOTENCY_ANSWER_LOST")
    assert len((await client.get("/api-keys", headers=ada.headers)).json()["items"]) == 1
    async with await psycopg.AsyncConnection.connect(database_urls.owner) as owner:
        query = "select state, answer, key_hash from toolcrib.idempotency_keys where user_id = %s"
        [(state, answer, key_hash)] = await (await owner.execute(query, (ada.id,))).fetchall()
    assert (state, answer) == ("done", None)
    assert b"the-clients-own-key" not in key_hash


@pytest.mark.parametrize("path", ["invitations", "tickets", "agents/{agent}/keys"])
async def test_other_secrets_are_not_kept_either(
    client: httpx2.AsyncClient, ada: Someone, founded: Founder, services: ApiServices, path: str
) -> None:
    workspace = await founded(ada)
    agent = await services.agents.create(Tenant(workspace, ada.id), name="bot", definition="")
    at, headers = f"/workspaces/{workspace}/{path.format(agent=agent.id)}", keyed(ada)
    body = {"name": "k"} if path.startswith("agents") else {"email": new_email()} if path == "invitations" else None

    first, again = [await client.post(at, headers=headers, json=body) for _ in range(2)]

    assert first.is_success, first.text
    assert code_of(again) == (409, "IDEMPOTENCY_ANSWER_LOST")


async def test_answer_of_a_login_is_not_replayed_to_an_api_key_of_the_user(
    client: httpx2.AsyncClient, ada: Someone, services: ApiServices
) -> None:
    _, secret = await services.keys.create(ActingUser(ada.id, 0), name="ci", expires_at=None)
    body = {"name": "w"}

    first = await client.post("/workspaces", headers=keyed(ada, "same"), json=body)
    others = await client.post("/workspaces", headers={**bearer(secret), "Idempotency-Key": "same"}, json=body)
    refused = await client.post("/api-keys", headers={**bearer(secret), "Idempotency-Key": "k"}, json={"name": "n"})

    assert others.json()["id"] != first.json()["id"]
    assert code_of(refused) == (403, "FORBIDDEN")


async def test_member_who_lost_their_role_does_not_get_an_earlier_answer(
    client: httpx2.AsyncClient, ada: Someone, newcomer: Newcomer, founded: Founder, services: ApiServices
) -> None:
    workspace, bob = await founded(ada), await newcomer()
    tenant = Tenant(workspace, ada.id)
    await services.workspaces.add_member(tenant, email=bob.email, role=WorkspaceRole.OWNER)
    headers, body = keyed(bob), {"name": "bot", "definition": ""}
    made = await client.post(f"/workspaces/{workspace}/agents", headers=headers, json=body)
    await services.workspaces.change_role(tenant, bob.id, WorkspaceRole.VIEWER)

    again = await client.post(f"/workspaces/{workspace}/agents", headers=headers, json=body)

    assert made.status_code == 201
    assert code_of(again) == (403, "FORBIDDEN")


async def test_removed_member_does_not_get_an_earlier_answer(
    client: httpx2.AsyncClient, ada: Someone, newcomer: Newcomer, founded: Founder, services: ApiServices
) -> None:
    workspace, bob = await founded(ada), await newcomer()
    tenant = Tenant(workspace, ada.id)
    await services.workspaces.add_member(tenant, email=bob.email, role=WorkspaceRole.MEMBER)
    headers, body = keyed(bob), {"tool": "ls", "args": {"path": "/"}}
    assert (await client.post(f"/workspaces/{workspace}/tools", headers=headers, json=body)).status_code == 200
    await services.workspaces.remove_member(tenant, bob.id)

    again = await client.post(f"/workspaces/{workspace}/tools", headers=headers, json=body)

    assert code_of(again) == (403, "FORBIDDEN")


async def test_revoked_token_does_not_get_an_earlier_answer(
    client: httpx2.AsyncClient, ada: Someone, services: ApiServices
) -> None:
    headers = keyed(ada)
    await client.post("/workspaces", headers=headers, json={"name": "w"})
    await client.post("/auth/logout", headers=ada.headers, json={"everywhere": True})

    again = await client.post("/workspaces", headers=headers, json={"name": "w"})

    assert code_of(again) == (401, "INVALID_TOKEN")


async def test_large_answer_is_read_again(client: httpx2.AsyncClient, ada: Someone, founded: Founder) -> None:
    workspace, headers = await founded(ada), keyed(ada)
    large = "x" * 200 + "\n"
    await client.post(f"/workspaces/{workspace}/tools", headers=ada.headers, json=write("/large.txt", large * 800))
    body = {"tool": "read", "args": {"path": "/large.txt"}}

    first = await client.post(f"/workspaces/{workspace}/tools", headers=headers, json=body)
    again = await client.post(f"/workspaces/{workspace}/tools", headers=headers, json=body)

    assert len(first.content) > 65_536
    assert again.json()["result"]["content"] == first.json()["result"]["content"]


async def test_keys_of_one_caller_are_bounded(
    client: httpx2.AsyncClient, ada: Someone, services: ApiServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, secret = await services.keys.create(ActingUser(ada.id, 0), name="ci", expires_at=None)
    monkeypatch.setattr(services.idempotency_keys, "_most", 2)
    answers = [
        await client.post("/workspaces", headers={**bearer(secret), "Idempotency-Key": key}, json={"name": "w"})
        for key in "abc"
    ]
    own = await client.post("/workspaces", headers=keyed(ada), json={"name": "w"})

    assert [answer.status_code for answer in answers] == [201, 201, 429]
    assert own.status_code == 201


async def test_claim_does_not_wait_for_an_attempt_that_commits(
    client: httpx2.AsyncClient, ada: Someone, database_urls: DatabaseUrls
) -> None:
    headers = keyed(ada)
    await client.post("/workspaces", headers=headers, json={"name": "w"})
    async with await psycopg.AsyncConnection.connect(database_urls.owner) as owner:
        await owner.execute("select from toolcrib.idempotency_keys where user_id = %s for update", (ada.id,))

        async with asyncio.timeout(PATIENCE):
            again = await client.post("/workspaces", headers=headers, json={"name": "w"})

    assert code_of(again) == (409, "IDEMPOTENCY_KEY_IN_USE")


async def test_stored_hash_does_not_confirm_a_guessed_body_and_outlives_the_secret(
    client: httpx2.AsyncClient,
    ada: Someone,
    workspace_id: WorkspaceId,
    services: ApiServices,
    database_urls: DatabaseUrls,
) -> None:
    path, headers = f"/workspaces/{workspace_id}/sessions", keyed(ada)
    first = await client.post(path, headers=headers, json={})
    async with await psycopg.AsyncConnection.connect(database_urls.owner) as owner:
        query = "select request_hash from toolcrib.idempotency_keys where user_id = %s"
        [(stored,)] = await (await owner.execute(query, (ada.id,))).fetchall()
    head = sha256(f"POST\n/api/v1{path}\n".encode()).digest()
    rotated = {"jwt_secret": SecretStr("n" * 64), "jwt_previous_secret": services.settings.jwt_secret}
    app = create_app(replace(services, settings=services.settings.model_copy(update=rotated)))

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=API) as other:
        again = await other.post(path, headers=headers, json={})

    assert stored != sha256(head + b"{}").digest()
    assert again.json()["id"] == first.json()["id"]


async def test_old_keys_are_deleted_and_can_be_used_again(
    client: httpx2.AsyncClient, ada: Someone, database_urls: DatabaseUrls, database: Database
) -> None:
    headers = keyed(ada)
    first = await client.post("/workspaces", headers=headers, json={"name": "w"})
    async with await psycopg.AsyncConnection.connect(database_urls.owner, autocommit=True) as owner:
        old = "update toolcrib.idempotency_keys set created_at = now() - interval '25 hours' where user_id = %s"
        await owner.execute(old, (ada.id,))
        again = await client.post("/workspaces", headers=headers, json={"name": "w"})
        await owner.execute(old, (ada.id,))

        deleted = await RetentionStore(database).delete_old_idempotency_keys(older_than=timedelta(hours=24), limit=1)

        count = await (
            await owner.execute("select count(*) from toolcrib.idempotency_keys where user_id = %s", (ada.id,))
        ).fetchone()
    assert again.json()["id"] != first.json()["id"]
    assert deleted == 1
    assert count == (0,)


async def test_agents_key_and_its_user_are_different_callers(
    client: httpx2.AsyncClient, ada: Someone, founded: Founder, services: ApiServices
) -> None:
    workspace = await founded(ada)
    tenant = Tenant(workspace, ada.id)
    agent = await services.agents.create(tenant, name="bot", definition="tool_permissions: {write: {allowed: true}}")
    _, secret = await services.keys.create_for_agent(tenant, agent.id, name="k", expires_at=None)

    answers = [
        await client.post(f"/workspaces/{workspace}/tools", headers=headers, json=write())
        for headers in (keyed(ada, "same"), {**bearer(secret), "Idempotency-Key": "same"})
    ]

    assert [answer.headers.get("idempotent-replayed") for answer in answers] == [None, None]


def test_every_post_of_the_document_that_has_an_effect_takes_a_key(app: FastAPI) -> None:
    """New routes are covered; the exceptions are named here."""
    document = app.openapi()
    posts = {path: operations["post"] for path, operations in document["paths"].items() if "post" in operations}

    without = {
        path
        for path, operation in posts.items()
        if not any(one["name"] == "Idempotency-Key" for one in operation.get("parameters", []))
    }

    assert without == {
        "/api/v1/auth/register",
        "/api/v1/auth/login",
        "/api/v1/auth/link",
        "/api/v1/auth/refresh",
        "/api/v1/auth/logout",
        "/api/v1/auth/password",
        "/api/v1/auth/password/reset",
        "/api/v1/auth/invitations/accept",
        "/api/v1/workspaces/{workspace_id}/explain",
    }
    assert effect_kind("/v1/chat/completions") is EffectKind.RUN
    installs = posts["/api/v1/workspaces/{workspace_id}/packages"]
    assert "IDEMPOTENCY_EFFECT_UNKNOWN" in installs["responses"]["409"]["content"]["application/json"]["examples"]
