"""Packages over HTTP: who installs them, what is shown, and sessions that run their workflows."""

import json

import httpx2
import pytest

from tests.fakes.packages import AGENT, DOCUMENT, GRAPH, package_of
from tests.integration.api.accounts import Newcomer, Someone, code_of
from toolcrib.api.api_services import ApiServices
from toolcrib.core.ids import WorkspaceId

FILES = {"docs/guide.md": "# Guide\n", "agents/planner.yaml": AGENT, "workflow.md": DOCUMENT}


@pytest.fixture
def workspace(workspace_id: WorkspaceId) -> str:
    return f"/workspaces/{workspace_id}"


async def read(client: httpx2.AsyncClient, who: Someone, workspace: str, path: str) -> object:
    call = {"tool": "fs.read", "args": {"path": path}}
    return (await client.post(f"{workspace}/tools", json=call, headers=who.headers)).json()["result"].get("content")


async def test_package_is_installed_replaced_and_removed(
    client: httpx2.AsyncClient, ada: Someone, workspace: str
) -> None:
    address = f"{workspace}/packages"
    made = await client.post(address, content=package_of(files=FILES), headers=ada.headers)
    assert made.status_code == 201, made.text
    shown = made.json()
    assert (shown["name"], shown["files"], shown["agents"]) == ("demo", 4, ["demo.planner"])
    assert shown["has_workflow"] is True
    assert (await client.get(address, headers=ada.headers)).json()["items"] == [shown]
    assert await read(client, ada, workspace, "@pkg/docs/guide.md") == "# Guide\n"
    [planner] = (await client.get(f"{workspace}/agents", headers=ada.headers)).json()["items"]

    newer = {"docs/guide.md": "# Newer\n", "agents/planner.yaml": "# 2\n", "agents/tester.yaml": ""}
    made = await client.post(address, content=package_of(version="2.0.0", files=newer), headers=ada.headers)
    assert made.json()["version"] == "2.0.0"
    assert await read(client, ada, workspace, "@pkg/docs/guide.md") == "# Newer\n"
    assert await read(client, ada, workspace, "@pkg/workflow.md") is None
    agents = {
        one["name"]: one for one in (await client.get(f"{workspace}/agents", headers=ada.headers)).json()["items"]
    }
    assert set(agents) == {"demo.planner", "demo.tester"}
    assert agents["demo.planner"]["id"] == planner["id"]
    assert (await client.post(address, content=package_of(name="other"), headers=ada.headers)).status_code == 409

    assert (await client.delete(f"{address}/other", headers=ada.headers)).status_code == 404
    assert (await client.delete(f"{address}/demo", headers=ada.headers)).status_code == 204
    assert (await client.get(address, headers=ada.headers)).json()["items"] == []
    assert (await client.get(f"{workspace}/agents", headers=ada.headers)).json()["items"] == []
    assert await read(client, ada, workspace, "@pkg/docs/guide.md") is None
    result = (await client.get(f"{workspace}/audit?kind=admin", headers=ada.headers)).json()["items"]
    assert [one["tool"] for one in result if one["tool"].startswith("package.")] == [
        "package.deleted", "package.changed", "package.created",
    ]  # fmt: skip


async def test_only_owners_install_and_remove(
    client: httpx2.AsyncClient, ada: Someone, newcomer: Newcomer, workspace: str
) -> None:
    bob = await newcomer()
    await client.post(f"{workspace}/members", json={"email": bob.email, "role": "member"}, headers=ada.headers)

    refused = await client.post(f"{workspace}/packages", content=package_of(), headers=bob.headers)
    assert code_of(refused) == (403, "FORBIDDEN")
    await client.post(f"{workspace}/packages", content=package_of(), headers=ada.headers)
    assert code_of(await client.delete(f"{workspace}/packages/demo", headers=bob.headers)) == (403, "FORBIDDEN")
    assert len((await client.get(f"{workspace}/packages", headers=bob.headers)).json()["items"]) == 1


async def test_invalid_package_is_rejected_with_the_reason(
    client: httpx2.AsyncClient, ada: Someone, workspace: str
) -> None:
    refused = await client.post(f"{workspace}/packages", content=b"no archive", headers=ada.headers)

    assert code_of(refused) == (400, "VALIDATION_ERROR")
    assert "zip" in refused.json()["fields"]["archive"]


async def test_session_with_a_package_starts_with_its_document_and_keeps_its_rules(
    client: httpx2.AsyncClient, ada: Someone, workspace: str, services: ApiServices
) -> None:
    sessions = f"{workspace}/sessions"
    assert code_of(await client.post(sessions, json={"package": "demo"}, headers=ada.headers)) == (404, "NOT_FOUND")
    files = {**FILES, "workflow.graph.json": json.dumps(GRAPH)}
    await client.post(f"{workspace}/packages", content=package_of(files=files), headers=ada.headers)
    made = (await client.post(sessions, json={"package": "demo"}, headers=ada.headers)).json()
    assert made["package"] == "demo"
    call = {"tool": "fs.read", "args": {"path": "@state/workflow.md"}, "session_id": made["id"]}
    found = (await client.post(f"{workspace}/tools", json=call, headers=ada.headers)).json()["result"]
    assert found["content"] == DOCUMENT

    await client.post(f"{workspace}/packages", content=package_of(version="2"), headers=ada.headers)
    refused = await client.post(sessions, json={"package": "demo"}, headers=ada.headers)
    assert code_of(refused) == (400, "VALIDATION_ERROR")
    [kept] = (await client.get(sessions, headers=ada.headers)).json()["items"]
    assert kept["package"] == "demo"


async def test_unknown_tool_in_a_package_is_a_warning(client: httpx2.AsyncClient, ada: Someone, workspace: str) -> None:
    files = {"agents/planner.yaml": "tool_permissions: {raed: {allowed: true}, read: {allowed: true}}\n"}
    made = await client.post(f"{workspace}/packages", content=package_of(files=files), headers=ada.headers)

    assert made.status_code == 201, made.text
    assert made.json()["warnings"] == ["demo.planner: Unknown tool `raed`. Did you mean `read`?"]
