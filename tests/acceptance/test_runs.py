"""A message over HTTP to an agent whose model runs on loopback: the common case of a team's clients."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.acceptance.conftest import registered
from tests.acceptance.pending_approvals import decide
from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.fakes.model_server import KEY, ModelServer, model_server_beside
from tests.integration.runs.conftest import says
from tests.wait_until import PATIENCE

AGENT = """
provider: openai-compatible
model: gpt-fake
trust: {trust}
toolsets: [workspace, studio]
context_window: 100000
tool_permissions:
  read: {{allowed: true}}
  write: {{allowed: true}}
  ask_user: {{allowed: true}}
"""


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with model_server_beside() as fake:
        yield fake


def opened(workspace: Workspace, model: ModelServer, *, trust: str = "autonomous") -> str:
    """Creates a session with an agent that uses Ada's provider key. Returns its id."""
    stored = workspace.http.put(
        "/credentials/openai-compatible",
        json={"secret": KEY, "base_url": f"{model.url}/v1"},
        headers=workspace.headers,
    )
    assert stored.status_code == 204, stored.text
    agent = workspace.post("/agents", {"name": f"coder {trust}", "definition": AGENT.format(trust=trust)})
    assert agent.status_code == 201, agent.text
    session = workspace.post("/sessions", {"agent_id": agent.json()["id"]})
    assert session.status_code == 201, session.text
    return str(session.json()["id"])


def until(workspace: Workspace, run: dict[str, Any], *states: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE
    found: dict[str, Any] = run
    while found["state"] not in states:
        assert time.monotonic() < deadline, f"The run is {found['state']}, not {states}."
        found = workspace.get(f"/runs/{run['id']}").json()
    return found


def test_a_message_is_answered_with_the_results_of_tools(workspace: Workspace, model: ModelServer) -> None:
    session = opened(workspace, model)
    workspace.write("/notes.md", "Buy milk.\n")
    model.say(says("I look.", ("read", {"path": "/notes.md"})), says("You must buy milk."))

    sent = workspace.post(f"/sessions/{session}/messages", {"text": "What must I do?"})

    assert sent.status_code == 202
    ended = until(workspace, sent.json(), "ended")
    assert (ended["end_reason"], ended["turns"], ended["output_tokens"]) == ("done", 2, 14)
    messages = workspace.get(f"/sessions/{session}/messages").json()["items"]
    assert [one["content"] for one in messages] == ["What must I do?", "I look.", "You must buy milk."]
    [call] = messages[1]["metadata"]["tool_calls"]
    kept = workspace.get(f"/calls/{call['call_id']}").json()
    assert (kept["tool"], kept["state"]) == ("read", "done")
    assert "Buy milk." in json.dumps(model.last.body)


def test_a_run_waits_until_a_person_approves_its_call(workspace: Workspace, model: ModelServer) -> None:
    session = opened(workspace, model, trust="guided")
    model.say(says("", ("write", {"path": "/a.txt", "content": "a\n"})), says("Written."))

    run = workspace.post(f"/sessions/{session}/messages", {"text": "Write."}).json()
    until(workspace, run, "waiting")
    [approval] = workspace.get("/paused-calls", session_id=session).json()["items"]
    assert approval["changes"][0]["path"] == "/a.txt"
    decided = decide(workspace, approval["id"])

    assert decided.status_code == 200, decided.text
    assert until(workspace, run, "ended")["end_reason"] == "done"
    assert workspace.on_disk("/a.txt").read_text() == "a\n"


def test_credentials_are_stored_verified_and_never_shown(
    server: Serving, new_workspace: Callable[[Someone], Workspace], model: ModelServer
) -> None:
    # Other tests store credentials of Ada's.
    workspace = new_workspace(registered(server, "keys@example.com"))
    opened(workspace, model)

    listed = workspace.http.get("/credentials", headers=workspace.headers)
    wrong = workspace.http.put(
        "/credentials/openai-compatible",
        json={"secret": "sk-wrong", "base_url": f"{model.url}/v1"},
        headers=workspace.headers,
    )
    models = workspace.http.get("/providers/openai-compatible/models", headers=workspace.headers)

    assert [one["provider"] for one in listed.json()["items"]] == ["openai-compatible"]
    assert KEY not in listed.text
    assert wrong.status_code == 502
    assert "sk-wrong" not in wrong.text
    assert {one["id"]: one["supports_tools"] for one in models.json()["items"]}["toolless"] is False
