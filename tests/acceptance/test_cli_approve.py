"""``toolcrib approve`` and ``toolcrib answer``, as a person at a terminal of 80 columns uses them."""

import json
import os
from pathlib import Path

import pytest

from tests.acceptance.pending_approvals import ended, hire, session_of
from tests.acceptance.serving import Serving
from tests.acceptance.workspace import Someone, Workspace
from tests.faults.processes import Ended, run_command


class Terminal:
    """Runs the command with a fixed environment."""

    def __init__(self, scratch: Path, **environment: str) -> None:
        self._scratch = scratch
        self._environment = {"PATH": os.environ["PATH"], "COLUMNS": "80", "NO_COLOR": "1", **environment}

    def run(self, *arguments: str) -> Ended:
        return run_command(*arguments, environment=self._environment, scratch=self._scratch)

    def says(self, *arguments: str, status: int = 0) -> str:
        ended_ = self.run(*arguments)
        assert ended_.status == status, ended_.said
        return ended_.said


@pytest.fixture
def at_server(server: Serving, ada: Someone, tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, TOOLCRIB_SERVER=server.origin, TOOLCRIB_TOKEN=ada.token)


@pytest.fixture
def at_database(server: Serving, tmp_path: Path) -> Terminal:
    """A terminal that reaches no server."""
    urls = server.database_urls
    return Terminal(
        tmp_path,
        TOOLCRIB_SERVER="http://127.0.0.1:9",
        TOOLCRIB_DATABASE_URL=urls.app,
        TOOLCRIB_SYSTEM_DATABASE_URL=urls.system,
        TOOLCRIB_DATA_DIR=str(tmp_path),
    )


def test_pending_approvals_are_listed_shown_and_approved(at_server: Terminal, workspace: Workspace) -> None:
    workspace.write("/notes/today.md", "one\ntwo\n")
    agent = hire(workspace, name="scribe")
    result = agent.asks(path="/notes/today.md", content="one\nzwei\n", overwrite=True)
    short = result["pause_id"][-8:]

    listed = at_server.says("approve", "--workspace", workspace.id)
    shown = at_server.says("approve", short, "--yes", "--workspace", workspace.id)

    assert max(map(len, listed.splitlines())) <= 80
    [row] = [line for line in listed.splitlines() if short in line]
    assert "scribe" in row
    assert "write" in row
    assert "modified /notes/today.md" in row
    assert "scribe wants to use write" in shown
    assert "-two" in shown
    assert "+zwei" in shown
    assert "Approved." in shown
    assert ended(workspace, result["call_id"])["state"] == "done"
    assert at_server.says("approve", "--workspace", workspace.id) == "No pending approvals.\n"


def test_the_agent_gets_the_reason_of_a_rejection(at_server: Terminal, workspace: Workspace) -> None:
    result = hire(workspace).asks()

    at_server.says("approve", result["pause_id"], "--reject", "--reason", "Not here.", "--yes")

    assert "Not here." in ended(workspace, result["call_id"])["error"]["message"]
    again = at_server.says("approve", result["pause_id"], "--yes", status=2)
    assert "Nothing pending has the id" in again
    assert "toolcrib approve" in again


def test_a_wider_scope_shows_its_rule_first_and_needs_confirmation(at_server: Terminal, workspace: Workspace) -> None:
    agent = hire(workspace)
    result = agent.asks(session=session_of(workspace, agent))

    # Standard input is at its end, so there is no confirmation.
    asked = at_server.run("approve", result["pause_id"], "--scope", "session")

    assert asked.status != 0
    assert "in this session, without asking" in asked.said
    assert "@project/a.txt" in " ".join(asked.said.split())
    assert workspace.get(f"/paused-calls/{result['pause_id']}").json()["state"] == "pending"
    at_server.says("approve", result["pause_id"], "--scope", "session", "--yes")
    [grant] = workspace.get("/grants").json()["items"]
    assert (grant["rule"]["tools"], grant["rule"]["paths"]) == (["write"], ["@project/a.txt"])


def test_the_rule_is_edited_before_it_is_saved(at_server: Terminal, workspace: Workspace) -> None:
    agent = hire(workspace)
    result = agent.asks(session=session_of(workspace, agent))
    approve = ("approve", result["pause_id"], "--yes", "--scope", "session", "--rule")

    wrong = at_server.run(*approve, "@project/other/**")
    assert wrong.status != 0
    assert "does not cover this call" in " ".join(wrong.said.split())
    malformed = at_server.run(*approve, '{"tools": 1}')
    assert "rule.tools" in malformed.said
    said = at_server.says(*approve, "@project/*.txt")

    assert "@project/*.txt" in " ".join(said.split())
    [grant] = workspace.get("/grants").json()["items"]
    assert grant["rule"]["paths"] == ["@project/*.txt"]


def test_json_output_is_complete_and_contains_nothing_else(at_server: Terminal, workspace: Workspace) -> None:
    result = hire(workspace).asks()

    [listed] = json.loads(at_server.says("approve", "--json", "--workspace", workspace.id))
    decided = json.loads(at_server.says("approve", result["pause_id"], "--json", "--yes"))

    assert (listed["id"], listed["workspace_id"], listed["tool"]) == (result["pause_id"], workspace.id, "write")
    assert (decided["state"], decided["grant_scope"]) == ("approved", "once")


def test_without_a_server_the_command_uses_the_database_and_a_member_decides(
    at_database: Terminal, workspace: Workspace, ada: Someone, grace: Someone
) -> None:
    result = hire(workspace).asks()

    stranger = at_database.says("approve", result["pause_id"], "--yes", "--as", grace.email, status=2)
    nobody = at_database.says("approve", "--database", "--as", "nobody@example.com", status=2)
    unnamed = at_database.says("approve", "--database", status=2)
    said = at_database.says("approve", result["pause_id"], "--yes", "--as", ada.email)

    assert "Nothing pending has the id" in stranger
    assert "There is no account nobody@example.com" in nobody
    assert "--as your@email" in unnamed
    assert "No server at" in said
    assert "Approved." in said
    assert ended(workspace, result["call_id"])["state"] == "done"


def test_an_error_names_what_is_missing_and_the_remedy(tmp_path: Path) -> None:
    nothing = Terminal(tmp_path, TOOLCRIB_SERVER="http://127.0.0.1:9").says("approve", status=2)
    alone = Terminal(tmp_path, TOOLCRIB_TOKEN="x", TOOLCRIB_SERVER="http://127.0.0.1:9").says("approve", status=2)

    assert "TOOLCRIB_TOKEN" in nothing
    assert "--database" in nothing
    assert "Cannot connect to http://127.0.0.1:9" in alone
    assert "toolcrib serve" in alone


def test_text_from_agents_cannot_control_the_terminal(at_server: Terminal, workspace: Workspace) -> None:
    agent = hire(workspace)
    result = agent.asks(path="/a.txt", content="\x1b[2J[bold]fake[/bold]\u202eevil\nApproved by ada@example.com\n")

    shown = at_server.run("approve", result["pause_id"]).said

    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\u001b[2J[bold]fake[/bold]\\u202eevil" in shown


def test_questions_are_listed_and_answered(at_server: Terminal, at_database: Terminal, workspace: Workspace) -> None:
    questions = [
        {
            "name": "framework",
            "question": "Which one?",
            "schema": {"type": "string", "enum": ["Jest", "Vitest"]},
            "buttons": [{"label": "Jest", "value": "Jest"}, {"label": "The fast one", "value": "Vitest"}],
        },
        {"name": "count", "question": "How many?", "schema": {"type": "integer", "minimum": 1}},
    ]
    asked = workspace.result("ask_user", questions=questions)["question_id"]

    listed = at_server.says("answer", "--workspace", workspace.id)
    wrong = at_server.says("answer", asked[-8:], "framework=The fast one", "count=0", status=2)
    missing = at_server.run("answer", asked, "framework=1")
    at_database.says("answer", asked, "framework=The fast one", "count=3", "--as", "ada@example.com")

    assert max(map(len, listed.splitlines())) <= 80
    assert asked[-8:] in listed
    assert "Which one?" in listed
    assert "How many?" in listed
    assert "2. The fast one" in wrong
    assert "count" in wrong
    assert "0 is less than the minimum of 1" in wrong
    assert missing.status == 2
    assert "count=value" in missing.said
    result = workspace.get(f"/paused-calls/{asked}").json()
    assert (result["answers"], result["answered_with_button"]) == ({"framework": "Vitest", "count": 3}, ["framework"])
