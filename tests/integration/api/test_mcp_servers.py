"""MCP servers over HTTP: who may add them, which input is valid, and what is shown."""

from typing import Any

import httpx2
import pytest

from tests.integration.api.accounts import Someone
from toolcrib.core.ids import WorkspaceId

INSIDE = "https://127.0.0.1:9/mcp"


@pytest.fixture
def servers(workspace_id: WorkspaceId) -> str:
    return f"/workspaces/{workspace_id}/mcp-servers"


@pytest.mark.req("MC-1", part="configured by an owner")
async def test_owner_adds_reads_updates_and_removes_a_server(
    client: httpx2.AsyncClient, ada: Someone, servers: str
) -> None:
    given = {"name": "far", "url": INSIDE, "secrets": {"Authorization": "Bearer hush"}, "safe_tools": ["echo"]}
    made = await client.post(servers, json=given, headers=ada.headers)
    assert made.status_code == 201, made.text
    shown = made.json()
    assert "hush" not in made.text, "what was entrusted is not shown again"
    assert shown["toolset"] == "mcp:far"
    assert "in the server's private network" in shown["last_error"]
    assert (await client.post(servers, json=given, headers=ada.headers)).status_code == 409
    one = f"{servers}/{shown['id']}"
    early = await client.post(f"{one}/approve", json={"sha256": "0" * 64}, headers=ada.headers)
    assert early.json()["fields"]["sha256"].endswith("Refresh it first.")
    off = await client.patch(one, json={"enabled": False}, headers=ada.headers)
    assert off.json()["enabled"] is False
    assert [found["name"] for found in (await client.get(servers, headers=ada.headers)).json()["items"]] == ["far"]
    assert (await client.delete(one, headers=ada.headers)).status_code == 204
    assert (await client.get(one, headers=ada.headers)).status_code == 404


@pytest.mark.parametrize(
    "given",
    [
        {"name": "x"},
        {"name": "x", "url": INSIDE, "command": ["x"]},
        {"name": "x", "command": []},
        {"name": "x", "command": ["a\x00b"]},
        {"name": "X y", "url": INSIDE},
        {"name": "x", "url": "http://example.org/mcp"},
        {"name": "x", "url": INSIDE, "secrets": {"X-Key": "a\r\nHost: b"}},
        {"name": "x", "url": INSIDE, "secrets": {"Content-Length": "1"}},
        {"name": "x", "url": INSIDE, "safe_tools": ["../x"]},
    ],
)
async def test_invalid_server_is_rejected_with_the_field(
    client: httpx2.AsyncClient, ada: Someone, servers: str, given: dict[str, Any]
) -> None:
    refused = await client.post(servers, json=given, headers=ada.headers)
    assert refused.status_code == 400, refused.text
    assert refused.json()["fields"]
