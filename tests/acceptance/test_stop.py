"""Stop ends a run and its command, through the API and as the web UI does; queued messages do not start."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.acceptance.workspace import Workspace
from tests.fakes.model_server import KEY, ModelServer, model_server_beside
from tests.integration.runs.conftest import says
from tests.wait_until import PATIENCE, TRIES

AGENT = """
provider: openai-compatible
model: gpt-fake
trust: autonomous
toolsets: [workspace, studio]
context_window: 100000
tool_permissions:
  bash: {allowed: true}
"""
# The requirement, on a machine that does nothing else. The gate runs many tests at a time.
WITHIN = 1.0
WITHIN_IF_BUSY = 15.0


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with model_server_beside() as fake:
        yield fake


def opened(workspace: Workspace, model: ModelServer) -> str:
    stored = workspace.http.put(
        "/credentials/openai-compatible",
        json={"secret": KEY, "base_url": f"{model.url}/v1"},
        headers=workspace.headers,
    )
    assert stored.status_code == 204, stored.text
    agent = workspace.post("/agents", {"name": "coder", "definition": AGENT})
    assert agent.status_code == 201, agent.text
    return str(workspace.post("/sessions", {"agent_id": agent.json()["id"]}).json()["id"])


Stop = Callable[[Workspace, str, dict[str, Any]], None]


def over_http(workspace: Workspace, session: str, run: dict[str, Any]) -> None:
    assert workspace.post(f"/runs/{run['id']}/cancel", {}).status_code == 200


def over_websocket(workspace: Workspace, session: str, run: dict[str, Any]) -> None:
    """The web UI's Stop button, and that of the existing clients."""
    address = str(workspace.http.base_url).replace("http", "ws", 1).rstrip("/")
    with connect(f"{address}/workspaces/{workspace.id}/ws", additional_headers=workspace.headers) as socket:
        socket.send(json.dumps({"type": "chat:cancel", "id": 1, "payload": {"conversationId": session}}))
        while json.loads(socket.recv(PATIENCE)).get("id") != 1:
            pass


def stopped_after(workspace: Workspace, model: ModelServer, session: str, stop: Stop, number: int) -> float:
    """Stops a run while its command runs and a message is queued. Returns the seconds until both have ended."""
    seconds = f"43{number:02}.17"
    command = f"echo begun > begun.txt; (setsid sleep {seconds} &); sleep {seconds}; echo done > done.txt"
    model.say(says("", ("bash", {"command": command, "timeout": 600})))
    asked = len(model.received)
    run = workspace.post(f"/sessions/{session}/messages", {"text": "Wait."}).json()
    queued = workspace.post(f"/sessions/{session}/messages", {"text": "And then this."}).json()
    until(lambda: len(processes_with(seconds)) >= 2, "The command")

    began = time.monotonic()
    stop(workspace, session, run)
    until(lambda: not processes_with(seconds), "The end of the command")
    until(lambda: workspace.get(f"/runs/{run['id']}").json()["state"] == "ended", "The end of the run")
    took = time.monotonic() - began

    assert workspace.get(f"/runs/{run['id']}").json()["end_reason"] == "cancelled"
    held = workspace.get(f"/runs/{queued['id']}").json()
    assert (held["state"], held["held"], held["prompt_preview"]) == ("queued", True, "And then this.")
    assert len(model.received) == asked + 1
    assert not workspace.on_disk("/begun.txt").exists()
    assert workspace.post(f"/runs/{queued['id']}/cancel", {}).json()["state"] == "ended"
    return took


@pytest.mark.parametrize("stop", [over_http, over_websocket])
def test_stop_ends_the_run_and_its_command_and_holds_the_queue(
    workspace: Workspace, model: ModelServer, stop: Stop
) -> None:
    session = opened(workspace, model)

    took = stopped_after(workspace, model, session, stop, 1)

    sys.stdout.write(f"Stopped {stop.__name__} after {took:.2f} s\n")
    assert took < WITHIN_IF_BUSY


@pytest.mark.long
@pytest.mark.parametrize("stop", [over_http, over_websocket])
def test_stop_ends_the_run_and_its_command_within_a_second(
    workspace: Workspace, model: ModelServer, stop: Stop
) -> None:
    session = opened(workspace, model)

    took = [stopped_after(workspace, model, session, stop, number) for number in range(TRIES)]

    sys.stdout.write(f"Stopped {stop.__name__} after {', '.join(f'{one:.2f}' for one in took)} s\n")
    assert sorted(took)[TRIES // 2] < WITHIN


def test_a_held_message_starts_when_it_is_released(workspace: Workspace, model: ModelServer) -> None:
    session = opened(workspace, model)
    model.say(says("", ("bash", {"command": "sleep 4399.17", "timeout": 600})))
    run = workspace.post(f"/sessions/{session}/messages", {"text": "Wait."}).json()
    queued = workspace.post(f"/sessions/{session}/messages", {"text": "And then this."}).json()
    until(lambda: bool(processes_with("4399.17")), "The command")
    over_http(workspace, session, run)

    model.say(says("Now."))
    released = workspace.post(f"/runs/{queued['id']}/release", {})
    again = workspace.post(f"/runs/{queued['id']}/release", {})
    until(lambda: workspace.get(f"/runs/{queued['id']}").json()["state"] == "ended", "The end of the released run")

    assert released.status_code == 200, released.text
    assert not released.json()["held"]
    assert again.status_code == 409
    messages = workspace.get(f"/sessions/{session}/messages").json()["items"]
    assert [one["content"] for one in messages if one["role"] == "user"] == ["Wait.", "And then this."]
    assert messages[-1]["content"] == "Now."


def processes_with(argument: str) -> list[str]:
    """The processes with this argument, apart from shells that only mention it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if argument.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(entry.name)
    return found


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not come."
        Event().wait(0.01)
