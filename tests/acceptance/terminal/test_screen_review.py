"""The review in the full-screen chat and as a command: what the agent changed is kept or reverted by file and hunk."""

import json
from collections.abc import Iterator

import pytest

from tests.acceptance.local_machine import Laptop, laptop
from tests.acceptance.terminal.tmux import Screen, tmux
from tests.integration.runs.conftest import says

LINES = "".join(f"line {number}\n" for number in range(20))
EDITS = (
    ("edit", {"path": "/a.txt", "old_string": "line 3\n", "new_string": "three\n"}),
    ("edit", {"path": "/a.txt", "old_string": "line 15\n", "new_string": "fifteen\n"}),
)
WRITES = ("write", {"path": "/b.txt", "content": "new\n"})
ANNOUNCED = "2 files changed (+3 -2) — /review to look, keep or revert"


@pytest.fixture(scope="module")
def own() -> Iterator[Laptop]:
    with laptop() as made:
        yield made


def finishes(chat: Screen, text: str) -> str:
    """Waits until the screen shows a text. Approves what the agent asks about until then."""
    while text not in (screen := chat.until(lambda shown: text in shown or "y approve" in shown, text)):
        chat.press("y")
        chat.shows(without="y approve")
    return screen


def test_a_run_is_reviewed_by_hunk_in_the_chat_and_the_next_message_tells_the_agent(own: Laptop) -> None:
    project = own.project()
    (project / "a.txt").write_text(LINES)
    own.model.script = [*(says("", one) for one in EDITS), says("", WRITES), says("Changed."), says("Fine.")]
    with tmux(own, "chat", "--trust", "review", at=project) as chat:
        chat.shows("Message the agent…", "ready")
        chat.says("Change it")
        finishes(chat, ANNOUNCED)
        chat.shows("Changed.", "ready")

        chat.says("/review")
        chat.shows("modified /a.txt +2 -2", "k keep")
        # The file, its first hunk, its second hunk.
        chat.press("Down", "k", "r")
        chat.shows("REVERT", "keep")
        chat.press("Enter")
        chat.shows("reviewed: reverted /a.txt", "1 still open")
        assert (project / "a.txt").read_text() == LINES.replace("line 3\n", "three\n")

        chat.says("Go on")
        chat.shows("Fine.")
        told = own.model.received[-1].body["messages"][-1]["content"]
        assert "reverted /a.txt (1 of 2 hunks)" in told
        assert told.endswith("Go on")
        chat.says("/review")
        chat.shows("created /b.txt", "k keep")
        chat.press("Escape")
        chat.shows("Message the agent…", without="k keep")
        assert (project / "b.txt").exists()


@pytest.mark.long
def test_the_command_shows_and_decides_a_review(own: Laptop) -> None:
    project = own.project()
    (project / "a.txt").write_text(LINES)
    own.model.script = [*(says("", one) for one in EDITS), says("", WRITES), says("Changed.")]
    with own.terminal("chat", "--plain", "--trust", "autonomous", at=project) as chat:
        chat.until("> ")
        own.says("run", "--trust", "autonomous", "--quiet", "Change it", at=project)
        shown = json.loads(own.says("review", "--json", at=project))
        text = own.says("review", at=project)
        kept = own.says("review", "--keep", "b.txt", at=project)
        with own.terminal("review", at=project) as asked:
            asked.until("Keep this file? [k/r/s/h/q] ")
            asked.type("h")
            asked.until("Keep this hunk? [k/r] ")
            asked.type("r")
            asked.until("Keep this hunk? [k/r] ")
            asked.type("k")
            asked.until("reverted: /a.txt (1 of 2 hunks)")
            assert asked.process.wait(60) == 0
        nothing = own.says("review", "--revert-all", at=project)
        unknown = own.says("undo", at=project)
        chat.end()

    assert [one["path"] for one in shown["files"]] == ["/a.txt", "/b.txt"]
    assert "2 files changed (+3 -2)" in text
    assert "+fifteen" in text
    assert "kept: /b.txt" in kept
    assert "1 still open" in kept
    assert nothing.strip() == "No changes wait for a review."
    assert "changed back: /a.txt" in unknown
    assert (project / "a.txt").read_text() == LINES.replace("line 3\n", "three\n").replace("line 15\n", "fifteen\n")
