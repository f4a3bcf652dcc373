"""``toolcrib schedules`` on a directory: add, list, show, pause, resume, run and remove."""

import json
from collections.abc import Iterator

import pytest

from tests.acceptance.local_machine import Laptop, laptop
from tests.integration.runs.conftest import says


@pytest.fixture(scope="module")
def own() -> Iterator[Laptop]:
    with laptop() as made:
        yield made


@pytest.mark.long
def test_the_shell_commands_manage_schedules(own: Laptop) -> None:
    project = own.project()
    own.model.script = [says("Nothing changed.")]
    with own.terminal("chat", "--plain", at=project) as chat:
        # The chat serves the directory to the commands below.
        chat.until("> ")
        nothing = own.says("schedules", at=project)
        added = own.says(
            "schedules", "add", "report", "0 9 * * mon-fri", "What changed?", "-z", "Europe/Berlin", at=project
        )
        wrong = own.says("schedules", "add", "never", "0 0 30 2 *", "x", at=project, status=2)
        no_zone = own.says("schedules", "add", "mars", "0 9 * * *", "x", "-z", "Mars/Olympus", at=project, status=2)
        listed = own.says("schedules", at=project)
        [entry] = json.loads(own.says("schedules", "list", "--json", at=project))
        paused = own.says("schedules", "pause", "report", at=project)
        shown_paused = own.says("schedules", "show", "report", at=project)
        resumed = own.says("schedules", "resume", entry["id"][-8:], at=project)
        run = json.loads(own.says("schedules", "run", "report", "--json", at=project))
        shown = own.says("schedules", "show", "report", at=project)
        session = own.says("sessions", run["session_id"], at=project)
        [now] = json.loads(own.says("schedules", "--json", at=project))
        removed = own.says("schedules", "remove", "report", at=project)
        missing = own.says("schedules", "show", "report", at=project, status=2)
        chat.end()

    assert nothing == "No schedules yet. `toolcrib schedules add` creates one.\n"
    assert added.startswith("Created: report. Next: ")
    assert added.rstrip().endswith("09:00 Europe/Berlin.")
    assert "it never fires" in wrong
    assert "There is no time zone 'Mars/Olympus'" in no_zone
    assert "report" in listed
    assert "0 9 * * mon-fri" in listed
    assert (entry["message"], entry["enabled"]) == ("What changed?", True)
    assert paused == "Paused: report.\n"
    assert "next:    paused" in shown_paused
    assert resumed.startswith("Resumed: report. Next: ")
    assert "agent:   assistant" in shown
    assert run["session_id"] in shown
    assert shown.endswith("\nWhat changed?\n")
    assert session.startswith("> What changed?")
    assert (now["last_run_id"], now["last_error"]) == (run["id"], None)
    assert removed == "Removed: report.\n"
    assert "There is no schedule 'report'" in missing
