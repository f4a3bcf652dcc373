"""What a model gets is bounded, and what was cut can be fetched by id. People get what they asked for."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.acceptance.shapes import A_TIME, A_UUID, Says, refused, sha256_of
from tests.acceptance.workspace import Someone, Workspace

pytestmark = pytest.mark.req("TL-8")

LARGE = "".join(f"line {number} {'x' * 300}\n" for number in range(500))
READING = "trust: guided\n"


def cut_of(response: httpx2.Response) -> dict[str, Any]:
    """What a cut answer says of itself, once it is seen to be whole otherwise."""
    body = response.json()
    assert response.status_code == 200, body
    assert body == {
        "success": True,
        "result": body["result"],
        "error": None,
        "cut": {"cut": True, "bytes": body["cut"]["bytes"], "call_id": A_UUID},
    }
    assert len(json.dumps(body["result"], ensure_ascii=False, separators=(",", ":"))) < body["cut"]["bytes"]
    return dict(body["cut"])


def test_an_agents_large_result_is_cut_and_can_be_fetched_by_id(workspace: Workspace) -> None:
    workspace.write("/large.log", LARGE)
    agent = workspace.agent(READING)

    response = agent.call("read", path="/large.log")

    cut = cut_of(response)
    shown = response.json()["result"]
    assert len(response.content) < 70_000 < len(LARGE) < cut["bytes"]
    assert shown == {
        "path": "/large.log",
        "content": Says("line 0 ", "bytes cut", "line 499 "),
        "hash": sha256_of(LARGE),
        "synced": True,
        "total_lines": 500,
        "truncated": False,
        "offset": 0,
        "limit": 500,
    }
    kept = agent.get(f"/calls/{cut['call_id']}")
    assert kept.status_code == 200
    assert kept.json() == {
        "id": cut["call_id"],
        "tool": "read",
        "arguments": {"path": "/large.log"},
        "state": "done",
        "result": {**shown, "content": LARGE},
        "error": None,
        "change_set_id": None,
        "started_at": A_TIME,
        "ended_at": A_TIME,
    }


def test_a_person_gets_the_whole_at_once(workspace: Workspace) -> None:
    workspace.write("/large.log", LARGE)

    assert workspace.result("read", path="/large.log")["content"] == LARGE


def test_a_persons_own_key_gets_the_whole_at_once(workspace: Workspace, http: httpx2.Client) -> None:
    workspace.write("/large.log", LARGE)
    made = http.post("/api-keys", json={"name": "laptop"}, headers=workspace.headers)

    by_key = workspace.seen_with(made.json()["secret"])

    assert by_key.result("read", path="/large.log")["content"] == LARGE


def test_a_small_result_of_an_agent_is_not_cut(workspace: Workspace) -> None:
    workspace.write("/small.md", "x\n")

    assert workspace.agent(READING).result("read", path="/small.md")["content"] == "x\n"


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("cat", {"paths": ["/large.log", "/large.log"]}),
        ("read_multiple_files", {"paths": ["/large.log", "/large.log"]}),
        ("read", {"path": "/large.canvas"}),
    ],
)
def test_every_tool_is_bounded_in_the_same_place(workspace: Workspace, tool: str, args: dict[str, Any]) -> None:
    workspace.write("/large.log", LARGE)
    workspace.write("/large.canvas", {"elements": [{"text": "y" * 200}] * 1000})
    agent = workspace.agent(READING)

    response = agent.call(tool, **args)

    cut = cut_of(response)
    assert len(response.content) < 70_000
    assert agent.get(f"/calls/{cut['call_id']}").json()["result"] == workspace.result(tool, **args)


def test_a_long_list_loses_its_end(workspace: Workspace) -> None:
    for number in range(600):
        workspace.place(f"/{number:03}-{'n' * 60}.md", "")
    agent = workspace.agent(READING)

    response = agent.call("ls", limit=0)

    cut = cut_of(response)
    assert response.json()["result"]["entries"][-1] == Says("more items cut")
    assert len(agent.get(f"/calls/{cut['call_id']}").json()["result"]["entries"]) == 600


def test_members_can_fetch_it_too(workspace: Workspace, grace: Someone) -> None:
    workspace.write("/large.log", LARGE)
    call_id = cut_of(workspace.agent(READING).call("read", path="/large.log"))["call_id"]
    viewer = workspace.admit(grace, "viewer")

    for member in (workspace, viewer):
        assert member.get(f"/calls/{call_id}").json()["result"]["content"] == LARGE


def test_strangers_cannot_fetch_it(
    workspace: Workspace, new_workspace: Callable[[Someone], Workspace], grace: Someone
) -> None:
    workspace.write("/large.log", LARGE)
    call_id = cut_of(workspace.agent(READING).call("read", path="/large.log"))["call_id"]

    refused(workspace.seen_with(grace.token).get(f"/calls/{call_id}"), 403, "FORBIDDEN")
    refused(new_workspace(grace).get(f"/calls/{call_id}"), 404, "NOT_FOUND")
    refused(workspace.seen_with(None).get(f"/calls/{call_id}"), 401, "INVALID_TOKEN")


@pytest.mark.req("WS-4", part="what was cut comes to no other agent")
def test_another_agent_cannot_fetch_what_it_may_not_read(workspace: Workspace) -> None:
    workspace.write("/.env", LARGE)
    trusted = workspace.agent("trust: autonomous\nunprotect: [.env]\n")
    other = workspace.agent("trust: autonomous\n")
    call_id = cut_of(trusted.call("read", path="/.env"))["call_id"]

    refused(other.call("read", path="/.env"), 400, "VALIDATION_ERROR", Says("protected"))
    response = other.get(f"/calls/{call_id}")

    assert response.status_code in (403, 404)
    assert "line 250 " not in response.text


def test_an_unknown_call_is_not_found(workspace: Workspace) -> None:
    refused(workspace.get(f"/calls/{uuid4()}"), 404, "NOT_FOUND")
