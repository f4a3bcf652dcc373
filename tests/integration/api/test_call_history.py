"""The past of a session, what a workspace takes up, and how the node stands: what screens and other clients need."""

from typing import Any

import httpx2
import pytest

from tests.integration.api.accounts import Someone, code_of
from toolcrib.core.ids import WorkspaceId, new_id

pytestmark = pytest.mark.req("AP-3", part="the past")


class Past:
    """A session as its client has it."""

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

    async def standing(self) -> list[tuple[str, int, bool]]:
        """Each call's tool, how many files it changed, and whether it stands; the oldest first."""
        items = (await self.calls())["items"]
        return [(one["tool"], one["files"], one["undone_by"] is None) for one in reversed(items)]


@pytest.fixture
async def past(client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId) -> Past:
    made = await client.post(f"/workspaces/{workspace_id}/sessions", json={"title": "work"}, headers=ada.headers)
    return Past(client, ada, workspace_id, made.json()["id"])


async def test_a_sessions_calls_are_listed_from_the_newest_page_by_page(past: Past) -> None:
    for name in ("a", "b", "c"):
        await past.call("write", path=f"/{name}.md", content=name)

    first = await past.calls(limit=2)
    rest = await past.calls(limit=2, before=first["next"])

    told = first["items"] + rest["items"]
    assert [one["arguments"]["path"] for one in told] == ["/c.md", "/b.md", "/a.md"]
    assert told[0]["arguments"]["content"]["bytes"] == 1
    assert {(one["state"], one["files"], one["decision"]) for one in told} == {("done", 1, None)}
    assert rest["next"] is None


async def test_a_call_that_was_undone_says_by_which_and_stands_again_once_that_is_undone(past: Past) -> None:
    await past.call("write", path="/a.md", content="a")
    [written] = (await past.calls())["items"]

    undone = await past.call("undo", calls=[written["id"]])
    after_undo = await past.standing()
    by = (await past.calls())["items"][-1]["undone_by"]
    await past.call("undo", calls=[undone["call_id"]])

    assert after_undo == [("write", 1, False), ("undo", 1, True)]
    assert by == undone["call_id"]
    assert await past.standing() == [("write", 1, True), ("undo", 1, False), ("undo", 1, True)]


async def test_undoing_a_session_takes_back_what_was_before_it_and_nothing_that_came_after(past: Past) -> None:
    await past.call("write", path="/a.md", content="a")
    await past.call("undo", session_id=past.session_id)
    await past.call("write", path="/b.md", content="b")

    assert await past.standing() == [("write", 1, False), ("undo", 1, True), ("write", 1, True)]


async def test_a_preview_says_between_which_versions_each_file_would_go(past: Past) -> None:
    first = await past.call("write", path="/a.md", content="one\n")
    second = await past.call("write", path="/a.md", content="two\n", overwrite=True)
    newest = (await past.calls(limit=1))["items"][0]

    preview = await past.call("undo", calls=[newest["id"]], dry_run=True)

    [change] = preview["changes"]
    assert (change["current_version_id"], change["restored_version_id"]) == (second["version_id"], first["version_id"])
    assert [one["tool"] for one in (await past.calls())["items"]] == ["undo", "write", "write"]
    assert await past.standing() == [("write", 1, True), ("write", 1, True), ("undo", 0, True)]


async def test_calls_of_a_session_that_is_not_there_are_not_found(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId
) -> None:
    answer = await client.get(f"/workspaces/{workspace_id}/sessions/{new_id()}/calls", headers=ada.headers)

    assert code_of(answer) == (404, "NOT_FOUND")


@pytest.mark.req("AP-3", part="usage")
async def test_a_workspace_says_what_it_takes_up_and_what_it_may(
    past: Past, client: httpx2.AsyncClient, ada: Someone
) -> None:
    await past.call("write", path="/a.md", content="a" * 1000)
    await past.call("write", path="/b.md", content="b")
    await past.call("rm", path="/b.md")

    told = (await client.get(f"{past.address}/usage", headers=ada.headers)).json()

    assert told["usage"]["files"] == 1
    assert told["usage"]["deleted_files"] == 1
    assert told["usage"]["versions"] == 3
    assert told["usage"]["content_bytes"] == 1001
    assert told["usage"]["stored_bytes"] < 1001
    assert told["limits"]["trash_max_bytes"] == 1_000_000_000


@pytest.mark.req("AP-3", part="health")
async def test_people_are_told_how_well_commands_are_held(client: httpx2.AsyncClient, ada: Someone) -> None:
    told = (await client.get("/status", headers=ada.headers)).json()

    assert told["database"] == "ok"
    assert told["isolation"]["level"] in ("namespaces", "process", "none")
    assert told["isolation"]["offered"] is (told["isolation"]["level"] == "namespaces")
