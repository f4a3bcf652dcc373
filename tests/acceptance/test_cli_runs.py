"""``toolcrib runs``, as a person uses it with a server."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.faults.processes import run_command
from tests.wait_until import PATIENCE

Says = Callable[..., str]


@pytest.fixture
def says(server: Serving, ada: Someone, workspace: Workspace, tmp_path: Path) -> Says:
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "100", "NO_COLOR": "1"}
    environment |= {"TOOLCRIB_SERVER": server.origin, "TOOLCRIB_TOKEN": ada.token, "TOOLCRIB_WORKSPACE": workspace.id}

    def run(*arguments: str, status: int = 0) -> str:
        ended = run_command("runs", *arguments, environment=environment, scratch=tmp_path)
        assert ended.status == status, ended.said
        return ended.said

    return run


def test_runs_are_listed_shown_and_retried(says: Says, workspace: Workspace) -> None:
    # Without a provider and a model, the run fails.
    agent = workspace.post("/agents", {"name": "coder", "definition": "trust: guided\n"}).json()["id"]
    session = workspace.post("/sessions", {"agent_id": agent}).json()["id"]
    assert says("list") == "No runs found.\n"
    run = workspace.post(f"/sessions/{session}/messages", {"text": "Add a test."}).json()["id"]
    short = run[-8:]
    deadline = time.monotonic() + PATIENCE
    while workspace.get(f"/runs/{run}").json()["state"] != "ended":
        assert time.monotonic() < deadline
        Event().wait(0.01)

    listed = says("list", "--state", "ended", "--session", session[-8:])
    shown = says("show", short)
    costs = says("costs", "--by", "session")
    refused = says("cancel", short, status=2)
    retried = says("retry", short)
    newest = json.loads(says("show", "last", "--json"))

    [row] = [line for line in listed.splitlines() if short in line]
    assert "failed" in row
    assert "Add a test." in row
    assert f"run:       {run}" in shown
    assert "error:     VALIDATION_ERROR" in shown
    assert "priority:  100" in shown
    assert "cost:      $0.00\n" in shown
    assert costs == "No model was used.\n"
    assert "already ended" in refused
    assert f"Retrying as run {newest['id'][-8:]}" in retried
    assert newest["session_id"] == session
    assert newest["id"] != run
    assert "There is no run 'nonsense'" in says("show", "nonsense", status=2)
