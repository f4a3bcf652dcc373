"""The calls of a session, the usage of a workspace and the status of the node, for the UI and other clients."""

from typing import Any

import httpx2
import pytest

from tests.integration.api.accounts import Someone, code_of
from toolcrib.core.ids import WorkspaceId, new_id


class Past:
    """A session as its client sees it."""

    def __init__(self, client: httpx2.AsyncClient, who: Someone, workspace_id: WorkspaceId, session_id: str) -> None:
        self._client = client
        self._who = who
        self.address = f"/workspaces/{workspace_id}"
        self.session_id = session_id

    async def call(self, tool: str, **args: Any) -> Any:
        body = {"tool": tool, "args": args, "session_id": self.session_id}
        answer = await self._client.post(f"{self.address}/tools", json=body, headers=self._who.headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    async def calls(self, **query: Any) -> dict[str, Any]:
        address = f"{self.address}/sessions/{self.session_id}/calls"
        found: dict[str, Any] = (await self._client.get(address, params=query, headers=self._who.headers)).json()
        return found

    async def path_state(self) -> list[tuple[str, int, bool]]:
        """Return each call's tool, its number of changed files, and whether it is in effect; oldest first."""
        items = (await self.calls())["items"]
        return [(one["tool"], one["files"], one["undone_by"] is None) for one in reversed(items)]


@pytest.fixture
async def past(client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId) -> Past:
    made = await client.post(f"/workspaces/{workspace_id}/sessions", json={"title": "work"}, headers=ada.headers)
    return Past(client, ada, workspace_id, made.json()["id"])


async def test_session_calls_are_listed_in_pages_from_the_newest(past: Past) -> None:
    for name in ("a", "b", "c"):
        await past.call("write", path=f"/{name}.md", content=name)

    first = await past.calls(limit=2)
    rest = await past.calls(limit=2, before=first["next"])

    result = first["items"] + rest["items"]
    assert [one["arguments"]["path"] for one in result] == ["/c.md", "/b.md", "/a.md"]
    assert result[0]["arguments"]["content"]["bytes"] == 1
    assert {(one["state"], one["files"], one["decision"]) for one in result} == {("done", 1, None)}
    assert rest["next"] is None


async def test_undone_call_names_the_undo_and_is_in_effect_again_after_redo(past: Past) -> None:
    await past.call("write", path="/a.md", content="a")
    [written] = (await past.calls())["items"]

    undone = await past.call("undo", calls=[written["id"]])
    after_undo = await past.path_state()
    by = (await past.calls())["items"][-1]["undone_by"]
    await past.call("undo", calls=[undone["call_id"]])

    assert after_undo == [("write", 1, False), ("undo", 1, True)]
    assert by == undone["call_id"]
    assert await past.path_state() == [("write", 1, True), ("undo", 1, False), ("undo", 1, True)]


async def test_undoing_a_session_reverts_earlier_calls_and_no_later_ones(past: Past) -> None:
    await past.call("write", path="/a.md", content="a")
    await past.call("undo", session_id=past.session_id)
    await past.call("write", path="/b.md", content="b")

    assert await past.path_state() == [("write", 1, False), ("undo", 1, True), ("write", 1, True)]


async def test_undo_preview_names_the_versions_of_each_file(past: Past) -> None:
    first = await past.call("write", path="/a.md", content="one\n")
    second = await past.call("write", path="/a.md", content="two\n", overwrite=True)
    newest = (await past.calls(limit=1))["items"][0]

    preview = await past.call("undo", calls=[newest["id"]], dry_run=True)

    [change] = preview["changes"]
    assert (change["current_version_id"], change["restored_version_id"]) == (second["version_id"], first["version_id"])
    assert [one["tool"] for one in (await past.calls())["items"]] == ["undo", "write", "write"]
    assert await past.path_state() == [("write", 1, True), ("write", 1, True), ("undo", 0, True)]


async def test_calls_of_an_unknown_session_are_not_found(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId
) -> None:
    answer = await client.get(f"/workspaces/{workspace_id}/sessions/{new_id()}/calls", headers=ada.headers)

    assert code_of(answer) == (404, "NOT_FOUND")


async def test_workspace_reports_its_usage_and_limits(past: Past, client: httpx2.AsyncClient, ada: Someone) -> None:
    await past.call("write", path="/a.md", content="a" * 1000)
    await past.call("write", path="/b.md", content="b")
    await past.call("rm", path="/b.md")

    result = (await client.get(f"{past.address}/usage", headers=ada.headers)).json()

    assert result["usage"]["files"] == 1
    assert result["usage"]["deleted_files"] == 1
    assert result["usage"]["versions"] == 3
    assert result["usage"]["content_bytes"] == 1001
    assert result["usage"]["stored_bytes"] < 1001
    assert result["limits"]["trash_max_bytes"] == 1_000_000_000


async def test_status_reports_the_isolation_of_commands(client: httpx2.AsyncClient, ada: Someone) -> None:
    result = (await client.get("/status", headers=ada.headers)).json()

    assert result["database"] == "ok"
    assert result["isolation"]["level"] in ("namespaces", "process", "none")
    assert result["isolation"]["offered"] is (result["isolation"]["level"] == "namespaces")
