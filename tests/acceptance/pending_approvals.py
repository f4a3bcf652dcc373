"""Pending approvals as clients see them: an agent whose calls need approval, and waiting for a call to end."""

import time
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.acceptance.workspace import Workspace
from tests.wait_until import PATIENCE

GUIDED = "trust: guided\ntool_permissions: {write: {allowed: true}, read: {allowed: true}, ask_user: {allowed: true}}"


@dataclass(frozen=True)
class Hired:
    """An agent: its id for the owner, and the workspace with the agent's key."""

    id: str
    name: str
    workspace: Workspace

    def asks(self, tool: str = "write", /, *, session: str | None = None, **args: Any) -> dict[str, Any]:
        """Makes a call that must wait. Returns the result that the agent gets."""
        body = {"tool": tool, "args": args or {"path": "/a.txt", "content": "a\n"}}
        response = self.workspace.post("/tools", body | ({"session_id": session} if session else {}))
        assert response.status_code == 202, response.text
        result = response.json()
        assert result == {"success": True, "result": result["result"], "error": None}
        return dict(result["result"])


def hire(workspace: Workspace, rules: str = GUIDED, *, name: str = "helper") -> Hired:
    made = workspace.post("/agents", {"name": name, "definition": rules})
    assert made.status_code == 201, made.text
    key = workspace.post(f"/agents/{made.json()['id']}/keys", {"name": "test"})
    assert key.status_code == 201, key.text
    return Hired(made.json()["id"], name, workspace.seen_with(key.json()["secret"]))


def session_of(workspace: Workspace, agent: Hired) -> str:
    made = workspace.post("/sessions", {"agent_id": agent.id})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def events_of(workspace: Workspace, session: str) -> list[tuple[str, dict[str, Any]]]:
    found = workspace.get(f"/sessions/{session}/events").json()["items"]
    return [(event["type"], event["payload"]) for event in found]


def decide(workspace: Workspace, approval_id: str, **said: Any) -> httpx2.Response:
    """Decides as a client that has just shown the approval."""
    shown = workspace.get(f"/paused-calls/{approval_id}").json()
    seen = {"approved": True, "arguments_sha256": shown.get("arguments_sha256", "0" * 64)}
    return workspace.post(f"/paused-calls/{approval_id}/decision", seen | said)


def ended(workspace: Workspace, call_id: str) -> dict[str, Any]:
    """Waits until the call has ended and returns it."""
    until = time.monotonic() + PATIENCE
    while True:
        call = dict(workspace.get(f"/calls/{call_id}").json())
        if call["state"] not in ("paused", "running"):
            return call
        assert time.monotonic() < until, f"Not ended after {PATIENCE} s: {call}"
