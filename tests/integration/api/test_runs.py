"""Runs of a workspace over HTTP: listed, filtered, shown and retried. No worker executes them here."""

from base64 import b64encode
from typing import Any

import httpx2
import pytest

from tests.integration.api.accounts import Newcomer, Someone, code_of
from toolcrib.api.api_services import ApiServices
from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.errors import PermissionDenied
from toolcrib.core.ids import WorkspaceId
from toolcrib.core.tool_calls import ToolCall
from toolcrib.settings import Settings
from toolcrib.storage.database import Tenant


@pytest.fixture
def url(workspace_id: WorkspaceId) -> str:
    return f"/workspaces/{workspace_id}"


async def session(client: httpx2.AsyncClient, who: Someone, url: str) -> str:
    return str((await client.post(f"{url}/sessions", json={}, headers=who.headers)).json()["id"])


async def send(client: httpx2.AsyncClient, who: Someone, url: str, session_id: str, text: str = "Go.") -> Any:
    response = await client.post(f"{url}/sessions/{session_id}/messages", json={"text": text}, headers=who.headers)
    assert response.status_code == 202, response.text
    return response.json()


async def end(services: ApiServices, run_id: str, reason: str) -> None:
    async with services.database.as_system() as connection:
        await connection.execute(
            "update toolcrib.runs set state = 'ended', end_reason = %s, ended_at = now() where id = %s",
            (reason, run_id),
        )


async def test_runs_of_a_workspace_are_listed_newest_first_in_pages(
    client: httpx2.AsyncClient, ada: Someone, url: str
) -> None:
    made = [(await send(client, ada, url, await session(client, ada, url)))["id"] for _ in range(3)]

    first = (await client.get(f"{url}/runs", params={"limit": 2}, headers=ada.headers)).json()
    second = (await client.get(f"{url}/runs", params={"limit": 2, "before": first["next"]}, headers=ada.headers)).json()

    assert [item["id"] for item in first["items"] + second["items"]] == made[::-1]
    assert second["next"] is None


async def test_runs_are_filtered_by_state_and_session(client: httpx2.AsyncClient, ada: Someone, url: str) -> None:
    one, other = [await session(client, ada, url) for _ in range(2)]
    begun, queued = [(await send(client, ada, url, one))["id"] for _ in range(2)]
    await send(client, ada, url, other)

    async def found(**wanted: str) -> list[str]:
        page = await client.get(f"{url}/runs", params=wanted, headers=ada.headers)
        return [item["id"] for item in page.json()["items"]]

    assert await found(state="queued") == [queued]
    assert await found(session_id=one) == [queued, begun]
    assert await found(session_id=one, state="ready") == [begun]
    assert await found(state="ended") == []
    missing = await client.get(f"{url}/runs", params={"session_id": begun}, headers=ada.headers)
    assert code_of(missing) == (404, "NOT_FOUND")
    wrong = await client.get(f"{url}/runs", params={"state": "asleep"}, headers=ada.headers)
    assert code_of(wrong) == (400, "VALIDATION_ERROR")


async def test_a_message_brings_images_of_the_workspace(
    client: httpx2.AsyncClient, ada: Someone, url: str, settings: Settings, workspace_id: WorkspaceId
) -> None:
    project = settings.data_dir / "workspaces" / str(workspace_id) / "project"
    project.mkdir(parents=True, exist_ok=True)
    (project / "plan.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x01")
    (project / "notes.txt").write_text("Notes.")
    session_id = await session(client, ada, url)
    messages = f"{url}/sessions/{session_id}/messages"

    async def attach(*paths: str) -> httpx2.Response:
        return await client.post(messages, json={"text": "Look.", "attachments": paths}, headers=ada.headers)

    assert (await attach("/plan.png")).status_code == 202
    (message,) = (await client.get(messages, headers=ada.headers)).json()["items"]
    (attached,) = message["metadata"]["attachments"]
    assert attached["path"] == "/plan.png"

    (project / "fake.png").write_bytes(b"\x00\x01 no picture")
    for wrong in ("/notes.txt", "/missing.png", "/../plan.png", "/fake.png"):
        refused = await attach(wrong)
        assert code_of(refused) == (400, "VALIDATION_ERROR"), wrong
        assert "attachments.0" in refused.text
    assert len((await client.get(messages, headers=ada.headers)).json()["items"]) == 1
    elsewhere = f"{url}/sessions/{workspace_id}/messages"
    body = {"text": "Look.", "attachments": ["/plan.png"]}
    assert code_of(await client.post(elsewhere, json=body, headers=ada.headers)) == (404, "NOT_FOUND")


async def test_a_message_brings_files_with_their_content(
    client: httpx2.AsyncClient, ada: Someone, url: str, settings: Settings, workspace_id: WorkspaceId
) -> None:
    session_id = await session(client, ada, url)
    messages = f"{url}/sessions/{session_id}/messages"
    image = b64encode(b"\x89PNG\r\n\x1a\n\x00\x01").decode()

    async def attach(*files: Any) -> httpx2.Response:
        return await client.post(messages, json={"text": "Look.", "attachments": files}, headers=ada.headers)

    sent = await attach({"name": "shot.png", "data": image})
    assert sent.status_code == 202, sent.text
    (message,) = (await client.get(messages, headers=ada.headers)).json()["items"]
    (attached,) = message["metadata"]["attachments"]
    assert attached["path"] == "shot.png"
    # It is shown to people from the call that stored it, and is no file of the workspace.
    call = (await client.get(f"{url}/calls/{attached['call_id']}", headers=ada.headers)).json()
    assert call["result"]["media"] == [
        {"type": "image", "name": "shot.png", "mime_type": "image/png", "data": image},
    ]
    assert image not in str(call["arguments"])
    assert not (settings.data_dir / "workspaces" / str(workspace_id) / "project" / "shot.png").exists()
    events = (await client.get(f"{url}/sessions/{session_id}/events", headers=ada.headers)).json()["items"]
    assert [event["payload"].get("attachments") for event in events if event["type"] == "message"] == [
        [{"path": "shot.png", "toolId": attached["call_id"]}]
    ]

    wrong: list[tuple[Any, str]] = [
        ({"name": "shot.png", "data": "bm8gcGljdHVyZQ=="}, "is not an image"),
        ({"name": "shot.png", "data": "@@"}, "is not base64"),
        ({"name": "shot.png", "data": b64encode(b"\x89PNG\r\n\x1a\n".ljust(5_000_001)).decode()}, "too large"),
        ({"name": "a/b.png", "data": image}, "attachments.0"),
    ]
    for file, why in wrong:
        refused = await attach(file)
        assert code_of(refused) == (400, "VALIDATION_ERROR"), why
        assert why in refused.text
    assert code_of(await attach(*[{"name": "a.png", "data": image}] * 9)) == (400, "VALIDATION_ERROR")
    assert len((await client.get(messages, headers=ada.headers)).json()["items"]) == 1


async def test_only_people_attach_files(services: ApiServices, ada: Someone, workspace_id: WorkspaceId) -> None:
    tenant = Tenant(workspace_id, ada.id)
    rules = "toolsets: [attachments]\ntool_permissions: {attach: {allowed: true}}\n"
    agent = await services.agents.create(tenant, name="sneaky", definition=rules)
    caller = Caller(workspace_id, ada.id, agent=agent.as_caller)

    outcome = await services.executor.execute(ToolCall("attach", {"name": "a.png", "content": "iVBORw0KGgo="}), caller)

    assert isinstance(outcome.error, PermissionDenied)


async def test_a_run_says_what_it_waits_for(client: httpx2.AsyncClient, ada: Someone, url: str) -> None:
    session_id = await session(client, ada, url)
    begun, queued, third = [await send(client, ada, url, session_id) for _ in range(3)]
    await client.post(f"{url}/runs/{begun['id']}/cancel", headers=ada.headers)
    held = (await client.get(f"{url}/runs/{third['id']}", headers=ada.headers)).json()

    assert (begun["state"], begun["waits_for"]) == ("ready", "worker")
    assert (queued["state"], queued["waits_for"]) == ("queued", "queue")
    assert (held["held"], held["waits_for"]) == (True, "release")
    assert (held["priority"], held["attempts"], held["takeovers"]) == (100, 0, 0)


@pytest.mark.parametrize("reason", ["failed", "cancelled"])
async def test_a_run_that_failed_or_was_cancelled_is_retried_in_its_session(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, url: str, reason: str
) -> None:
    session_id = await session(client, ada, url)
    run = await send(client, ada, url, session_id, "Add a test.")
    await end(services, run["id"], reason)

    again = await client.post(f"{url}/runs/{run['id']}/retry", headers=ada.headers)

    assert again.status_code == 202, again.text
    made = again.json()
    assert made["id"] != run["id"]
    assert (made["session_id"], made["prompt_preview"], made["state"]) == (session_id, "Add a test.", "ready")
    messages = (await client.get(f"{url}/sessions/{session_id}/messages", headers=ada.headers)).json()["items"]
    assert [one["content"] for one in messages] == ["Add a test.", "Add a test."]


@pytest.mark.parametrize(
    ("reason", "why"), [(None, "has not ended: it is ready"), ("done", "'done'"), ("violation", "'violation'")]
)
async def test_other_runs_are_not_retried(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, url: str, reason: str | None, why: str
) -> None:
    run = await send(client, ada, url, await session(client, ada, url))
    if reason is not None:
        await end(services, run["id"], reason)

    refused = await client.post(f"{url}/runs/{run['id']}/retry", headers=ada.headers)

    assert code_of(refused) == (409, "CONFLICT")
    assert why in refused.json()["error"]


async def test_a_viewer_lists_runs_and_retries_none(
    client: httpx2.AsyncClient,
    services: ApiServices,
    ada: Someone,
    newcomer: Newcomer,
    workspace_id: WorkspaceId,
    url: str,
) -> None:
    bob = await newcomer()
    await services.workspaces.add_member(Tenant(workspace_id, ada.id), email=bob.email, role=WorkspaceRole.VIEWER)
    run = await send(client, ada, url, await session(client, ada, url))
    await end(services, run["id"], "failed")

    listed = await client.get(f"{url}/runs", headers=bob.headers)
    refused = await client.post(f"{url}/runs/{run['id']}/retry", headers=bob.headers)

    assert [item["id"] for item in listed.json()["items"]] == [run["id"]]
    assert code_of(refused) == (403, "FORBIDDEN")


async def test_a_message_has_the_priority_that_it_asks_for(client: httpx2.AsyncClient, ada: Someone, url: str) -> None:
    path = f"{url}/sessions/{await session(client, ada, url)}/messages"

    sent = await client.post(path, json={"text": "Later.", "priority": 700}, headers=ada.headers)
    wrong = await client.post(path, json={"text": "Never.", "priority": 1001}, headers=ada.headers)

    assert (sent.status_code, sent.json()["priority"]) == (202, 700)
    assert code_of(wrong) == (400, "VALIDATION_ERROR")


async def test_only_an_owner_puts_a_message_before_those_of_others(
    client: httpx2.AsyncClient,
    services: ApiServices,
    ada: Someone,
    newcomer: Newcomer,
    workspace_id: WorkspaceId,
    url: str,
) -> None:
    bob = await newcomer()
    await services.workspaces.add_member(Tenant(workspace_id, ada.id), email=bob.email, role=WorkspaceRole.MEMBER)
    path = f"{url}/sessions/{await session(client, ada, url)}/messages"
    urgent = {"text": "Now.", "priority": 99}

    refused = await client.post(path, json=urgent, headers=bob.headers)
    later = await client.post(path, json=urgent | {"priority": 100}, headers=bob.headers)
    owners = await client.post(path, json=urgent, headers=ada.headers)
    await client.post(f"{url}/runs/{owners.json()['id']}/cancel", headers=ada.headers)
    retried = await client.post(f"{url}/runs/{owners.json()['id']}/retry", headers=bob.headers)

    assert code_of(refused) == (403, "FORBIDDEN")
    assert (later.status_code, owners.status_code) == (202, 202)
    assert retried.json()["priority"] == 100


async def test_a_session_is_compacted_by_a_run_without_a_message(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, url: str
) -> None:
    session_id = await session(client, ada, url)
    run = await send(client, ada, url, session_id, "Add a test.")
    behind = await client.post(f"{url}/sessions/{session_id}/compact", headers=ada.headers)
    await end(services, run["id"], "done")
    await end(services, behind.json()["id"], "done")
    started = await client.post(f"{url}/sessions/{session_id}/compact", headers=ada.headers)
    messages = (await client.get(f"{url}/sessions/{session_id}/messages", headers=ada.headers)).json()["items"]
    missing = await client.post(f"{url}/sessions/{run['id']}/compact", headers=ada.headers)

    assert (behind.status_code, behind.json()["state"]) == (202, "queued")
    assert started.json()["state"] == "ready"
    assert [one["content"] for one in messages] == ["Add a test."]
    assert code_of(missing) == (404, "NOT_FOUND")
