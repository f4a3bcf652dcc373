"""MCP servers over HTTP: who may add them, which input is valid, and what is shown."""

from typing import Any

import httpx2
import pytest

from tests.integration.api.accounts import Newcomer, Someone
from toolcrib.core.ids import WorkspaceId

INSIDE = "https://127.0.0.1:9/mcp"


@pytest.fixture
def servers(workspace_id: WorkspaceId) -> str:
    return f"/workspaces/{workspace_id}/mcp-servers"


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
        {"name": "x", "url": INSIDE, "hosts": ["example.org"]},
        {"name": "x", "url": INSIDE, "workspace_access": "read-only"},
        {"name": "x", "command": ["x"], "hosts": ["http://example.org"]},
        {"name": "x", "command": ["x"], "hosts": ["127.0.0.1"]},
        {"name": "x", "command": ["x"], "workspace_access": "all"},
    ],
)
async def test_invalid_server_is_rejected_with_the_field(
    client: httpx2.AsyncClient, ada: Someone, servers: str, given: dict[str, Any]
) -> None:
    refused = await client.post(servers, json=given, headers=ada.headers)
    assert refused.status_code == 400, refused.text
    assert refused.json()["fields"]


async def test_owner_changes_secrets_hosts_and_access_and_only_names_are_shown(
    client: httpx2.AsyncClient, ada: Someone, newcomer: Newcomer, servers: str
) -> None:
    given = {"name": "p", "command": ["/bin/false"], "secrets": {"A_TOKEN": "hush-0001", "B_KEY": "hush-0002"}}
    made = await client.post(servers, json={**given, "hosts": ["API.example.com"]}, headers=ada.headers)
    assert made.status_code == 201, made.text
    one = f"{servers}/{made.json()['id']}"
    assert (made.json()["secret_names"], made.json()["hosts"]) == (["A_TOKEN", "B_KEY"], ["api.example.com"])
    assert made.json()["workspace_access"] == "none"

    change = {"secrets": {"A_TOKEN": None, "C_KEY": "hush-0003"}, "hosts": ["*.example.org:8443"]}
    assert (await client.patch(one, json=change, headers=(await newcomer()).headers)).status_code == 403
    changed = await client.patch(one, json={**change, "workspace_access": "transaction"}, headers=ada.headers)
    assert changed.status_code == 200, changed.text
    assert (changed.json()["secret_names"], changed.json()["hosts"]) == (["B_KEY", "C_KEY"], ["*.example.org:8443"])
    assert changed.json()["workspace_access"] == "transaction"
    same = await client.patch(one, json={"enabled": True}, headers=ada.headers)
    assert same.json()["secret_names"] == ["B_KEY", "C_KEY"], "what is not named stays"
    many = {"secrets": {f"N{number}": "hush-0004" for number in range(19)}}
    refused = await client.patch(one, json=many, headers=ada.headers)
    assert "at most 20 secrets" in refused.json()["fields"]["secrets"]
    assert (await client.patch(one, json={"hosts": ["https://x.y"]}, headers=ada.headers)).status_code == 400
    listed = await client.get(servers, headers=ada.headers)
    audit = await client.get(f"{servers.removesuffix('/mcp-servers')}/audit", headers=ada.headers)
    assert "B_KEY" in audit.text
    for shown in (made, changed, same, refused, listed, audit):
        assert "hush" not in shown.text


async def test_a_server_with_a_url_gets_neither_hosts_nor_a_workspace_later(
    client: httpx2.AsyncClient, ada: Someone, servers: str
) -> None:
    made = await client.post(servers, json={"name": "far", "url": INSIDE}, headers=ada.headers)
    one = f"{servers}/{made.json()['id']}"
    for change in ({"hosts": ["x.org"]}, {"workspace_access": "read-only"}, {"secrets": {"Host": "x.org"}}):
        assert (await client.patch(one, json=change, headers=ada.headers)).status_code == 400, change
    assert (await client.patch(one, json={"secrets": {"X-Key": "hush"}}, headers=ada.headers)).status_code == 200
