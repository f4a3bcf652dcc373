"""Costs and budgets on the command line, as a person uses them with a server."""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.fakes.model_server import KEY, ModelServer, model_server_beside
from tests.faults.processes import run_command
from tests.integration.runs.conftest import says
from tests.wait_until import PATIENCE

Command = Callable[..., str]

AGENTS = {
    "priced": "provider: openai\nmodel: gpt-4o\nwire: chat_completions\ncontext_window: 128000\n",
    "unpriced": "provider: openai-compatible\nmodel: gpt-fake\ncontext_window: 128000\n",
}


@pytest.fixture
def command(server: Serving, ada: Someone, workspace: Workspace, tmp_path: Path) -> Command:
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "100", "NO_COLOR": "1"}
    environment |= {"TOOLCRIB_SERVER": server.origin, "TOOLCRIB_TOKEN": ada.token, "TOOLCRIB_WORKSPACE": workspace.id}

    def run(*arguments: str, status: int = 0) -> str:
        ended = run_command(*arguments, environment=environment, scratch=tmp_path)
        assert ended.status == status, ended.said
        return ended.said

    return run


@pytest.fixture
def model(workspace: Workspace) -> Iterator[ModelServer]:
    """A model with a price and one without, each with an agent."""
    with model_server_beside() as fake:
        for provider in ("openai", "openai-compatible"):
            given = {"secret": KEY, "base_url": f"{fake.url}/v1", "check": False}
            stored = workspace.http.put(f"/credentials/{provider}", json=given, headers=workspace.headers)
            assert stored.status_code == 204, stored.text
        for name, definition in AGENTS.items():
            assert workspace.post("/agents", {"name": name, "definition": definition}).status_code == 201
        yield fake


def test_costs_are_shown_by_model_and_an_unknown_price_is_named(command: Command, model: ModelServer) -> None:
    model.say(says("Hello.", input_tokens=100_000, output_tokens=25_000))
    command("run", "--agent", "priced", "Hello?")
    priced = command("runs", "show", "last")
    model.say(says("Hello.", input_tokens=5_000, output_tokens=100))
    command("run", "--agent", "unpriced", "Hello?")
    unpriced = command("runs", "show", "last")

    by_model = {line.split()[0]: line for line in command("runs", "costs", "--by", "model").splitlines()[1:]}
    [today] = json.loads(command("runs", "costs", "--json"))

    # At $2.50 and $10 for a million tokens.
    assert "cost:      $0.50\n" in priced
    assert "cost:      unknown price\n" in unpriced
    assert by_model["openai/gpt-4o"].split()[1:] == ["1", "100,000", "25,000", "$0.50"]
    assert by_model["openai-compatible/gpt-fake"].split()[1:] == ["1", "5,000", "100", "unknown", "price"]
    assert (float(today["cost"]), today["unpriced_turns"], today["runs"]) == (0.5, 1, 2)
    assert "$0.50, and 1 turns of unknown price" in command("runs", "costs")


def test_a_budget_stops_a_run_that_goes_on_when_it_is_raised(
    command: Command, model: ModelServer, workspace: Workspace
) -> None:
    assert command("workspace", "budget") == "No budgets.\n"
    assert "Name what to limit: session, day, month" in command("workspace", "budget", "--max-cost", "5", status=2)
    command("workspace", "budget", "day", "--max-cost", "0.25")
    model.say(says("Hello.", input_tokens=100_000, output_tokens=25_000))
    command("run", "--agent", "priced", "Hello?")

    stopped = command("run", "--agent", "priced", "And now?", status=3)
    shown = command("runs", "show", "last")
    both = command("workspace", "budget", "day", "--max-tokens", "1000000")
    command("workspace", "budget", "day", "--max-cost", "5")
    model.say(says("Now this."))
    command("runs", "retry", "last")
    run = json.loads(command("runs", "show", "last", "--json"))["id"]
    deadline = time.monotonic() + PATIENCE
    while (found := workspace.get(f"/runs/{run}").json())["state"] != "ended":
        assert time.monotonic() < deadline
        Event().wait(0.01)
    removed = command("workspace", "budget", "day", "--max-cost", "0", "--max-tokens", "0")

    why = "this workspace has cost $0.50 today (UTC); its limit is $0.25 per day."
    assert f"Stopped: {why}" in stopped
    assert "toolcrib workspace budget day --max-cost" in stopped
    assert why in shown
    assert "$0.50 of $0.25" in both
    assert "125,000 of 1,000,000" in both
    assert found["end_reason"] == "done"
    assert removed == "No budgets.\n"
