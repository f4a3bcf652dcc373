"""Results for models are truncated and can be fetched by id. People get complete results."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.acceptance.shapes import A_TIME, A_UUID, Says, refused, sha256_of
from tests.acceptance.workspace import Someone, Workspace

LARGE = "".join(f"line {number} {'x' * 300}\n" for number in range(500))
READING = "trust: guided\n"


def cut_of(response: httpx2.Response) -> dict[str, Any]:
    """Checks a truncated response and returns its truncation notice."""
    body = response.json()
    assert response.status_code == 200, body
    assert body == {
        "success": True,
        "result": body["result"],
        "error": None,
        "truncated": {
            "total_bytes": body["truncated"]["total_bytes"],
            "call_id": A_UUID,
            "offset": body["truncated"]["offset"],
        },
    }
    assert len(json.dumps(body["result"], ensure_ascii=False, separators=(",", ":"))) < body["truncated"]["total_bytes"]
    return dict(body["truncated"])


def test_an_agents_large_result_is_truncated_and_can_be_fetched_by_id(workspace: Workspace) -> None:
    workspace.write("/large.log", LARGE)
    agent = workspace.agent(READING)

    response = agent.call("read", path="/large.log")

    cut = cut_of(response)
    shown = response.json()["result"]
    assert len(response.content) < 70_000 < len(LARGE) < cut["total_bytes"]
    assert shown == {
        "path": "/large.log",
        "content": Says("line 0 ", "bytes truncated", "line 499 "),
        "hash": sha256_of(LARGE),
        "synced": True,
        "total_lines": 500,
        "truncated": True,
        "offset": 0,
        "limit": 500,
        "read_on": Says("read_result", cut["call_id"], f"offset {cut['offset']}"),
    }
    kept = agent.get(f"/calls/{cut['call_id']}")
    whole = {**shown, "content": LARGE, "truncated": False}
    assert kept.status_code == 200
    assert kept.json() == {
        "id": cut["call_id"],
        "tool": "read",
        "arguments": {"path": "/large.log"},
        "state": "done",
        "result": {key: value for key, value in whole.items() if key != "read_on"},
        "error": None,
        "change_set_id": None,
        "started_at": A_TIME,
        "ended_at": A_TIME,
    }


def test_a_person_gets_the_complete_result(workspace: Workspace) -> None:
    workspace.write("/large.log", LARGE)

    assert workspace.result("read", path="/large.log")["content"] == LARGE


def test_a_persons_own_key_gets_the_complete_result(workspace: Workspace, http: httpx2.Client) -> None:
    workspace.write("/large.log", LARGE)
    made = http.post("/api-keys", json={"name": "laptop"}, headers=workspace.headers)

    by_key = workspace.seen_with(made.json()["secret"])

    assert by_key.result("read", path="/large.log")["content"] == LARGE


def test_a_small_result_of_an_agent_is_not_truncated(workspace: Workspace) -> None:
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
def test_every_tool_is_truncated_in_the_same_way(workspace: Workspace, tool: str, args: dict[str, Any]) -> None:
    workspace.write("/large.log", LARGE)
    workspace.write("/large.canvas", {"elements": [{"text": "y" * 200}] * 1000})
    agent = workspace.agent(READING)

    response = agent.call(tool, **args)

    cut = cut_of(response)
    assert len(response.content) < 70_000
    assert agent.get(f"/calls/{cut['call_id']}").json()["result"] == workspace.result(tool, **args)


def test_a_long_list_loses_its_end(workspace: Workspace) -> None:
    for number in range(600):
        workspace.put_file(f"/{number:03}-{'n' * 60}.md", "")
    agent = workspace.agent(READING)

    response = agent.call("ls", limit=0)

    cut = cut_of(response)
    assert response.json()["result"]["entries"][-1] == Says("more items truncated")
    # The list includes the agents' folder.
    assert len(agent.get(f"/calls/{cut['call_id']}").json()["result"]["entries"]) == 601


def read_on(caller: Workspace, cut: dict[str, Any]) -> str:
    """Reads the rest of a truncated result with ``read_result``, piece by piece."""
    text, offset = "", cut["offset"]
    while offset is not None:
        piece = caller.result("read_result", call_id=cut["call_id"], offset=offset)
        assert len(json.dumps(piece, ensure_ascii=False).encode()) <= 60_000
        offset = piece["metadata"]["next_offset"]
        shown, _, note = piece["output"].partition("\n[truncated: true.")
        assert bool(note) == piece["metadata"]["truncated"] == (offset is not None)
        assert offset is None or f"offset {offset}." in note
        text += shown
    return text


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("read", {"path": "/large.log"}),
        ("cat", {"paths": ["/large.log", "/large.log"]}),
        ("read_multiple_files", {"paths": ["/large.log", "/large.log"]}),
        ("read", {"path": "/large.canvas"}),
        ("grep", {"pattern": "line", "limit": 0}),
    ],
)
def test_the_shown_part_and_the_rest_make_the_complete_result(
    workspace: Workspace, tool: str, args: dict[str, Any]
) -> None:
    workspace.write("/large.log", LARGE)
    workspace.write("/large.canvas", {"elements": [{"text": 'é"y' * 60}] * 1000})
    agent = workspace.agent(READING)

    cut = cut_of(agent.call(tool, **args))

    whole = read_on(agent, {**cut, "offset": 0})
    assert json.loads(whole) == workspace.result(tool, **args)
    assert 0 < cut["offset"] < len(whole)
    assert read_on(agent, cut) == whole[cut["offset"] :]


def test_reading_past_the_end_reports_the_kept_length(workspace: Workspace) -> None:
    workspace.write("/large.log", LARGE)
    agent = workspace.agent(READING)
    cut = cut_of(agent.call("read", path="/large.log"))
    end = cut["offset"] + len(read_on(agent, cut))

    response = agent.call("read_result", call_id=cut["call_id"], offset=end)

    refused(response, 400, "TOOL_FAILED", Says(f"has {end:,} characters", "the stored result has"))


def test_an_agent_reads_only_results_of_its_own_calls_in_the_same_session(workspace: Workspace) -> None:
    workspace.write("/large.log", LARGE)
    agent, other = workspace.agent(READING), workspace.agent(READING)
    denied = workspace.agent(READING + "tool_permissions: {read: {allowed: true}, read_result: {allowed: false}}\n")
    call_id = cut_of(agent.call("read", path="/large.log"))["call_id"]

    refused(other.call("read_result", call_id=call_id), 404, "NOT_FOUND")
    refused(denied.call("read_result", call_id=call_id), 403, "NOT_PERMITTED")
    assert "line 499 " in read_on(workspace, {"call_id": call_id, "offset": 0})


def test_members_can_fetch_a_truncated_result(workspace: Workspace, grace: Someone) -> None:
    workspace.write("/large.log", LARGE)
    call_id = cut_of(workspace.agent(READING).call("read", path="/large.log"))["call_id"]
    viewer = workspace.admit(grace, "viewer")

    for member in (workspace, viewer):
        assert member.get(f"/calls/{call_id}").json()["result"]["content"] == LARGE


def test_strangers_cannot_fetch_a_truncated_result(
    workspace: Workspace, new_workspace: Callable[[Someone], Workspace], grace: Someone
) -> None:
    workspace.write("/large.log", LARGE)
    call_id = cut_of(workspace.agent(READING).call("read", path="/large.log"))["call_id"]

    refused(workspace.seen_with(grace.token).get(f"/calls/{call_id}"), 403, "FORBIDDEN")
    refused(new_workspace(grace).get(f"/calls/{call_id}"), 404, "NOT_FOUND")
    refused(workspace.seen_with(None).get(f"/calls/{call_id}"), 401, "INVALID_TOKEN")


def test_another_agent_cannot_fetch_results_it_may_not_read(workspace: Workspace) -> None:
    workspace.write("/.env", LARGE)
    trusted = workspace.agent("trust: autonomous\nunprotected_paths: [.env]\n")
    other = workspace.agent("trust: autonomous\n")
    call_id = cut_of(trusted.call("read", path="/.env"))["call_id"]

    refused(other.call("read", path="/.env"), 400, "VALIDATION_ERROR", Says("protected"))
    response = other.get(f"/calls/{call_id}")

    assert response.status_code in (403, 404)
    assert "line 250 " not in response.text


def test_an_unknown_call_is_not_found(workspace: Workspace) -> None:
    refused(workspace.get(f"/calls/{uuid4()}"), 404, "NOT_FOUND")
