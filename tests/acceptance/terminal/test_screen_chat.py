"""The full-screen chat in a real terminal of 80 by 24, through complete sessions."""

import json
import os
import re
import signal
from collections.abc import Iterator

import pytest

from tests.acceptance.local_machine import Laptop, laptop
from tests.acceptance.terminal.screens import looks_like
from tests.acceptance.terminal.tmux import tmux
from tests.fakes import wires
from tests.fakes.model_server import Answer
from tests.fakes.scripted_turns import Scene
from tests.integration.runs.conftest import says

# A foreground or background colour; shades of grey do not count.
COLOUR = re.compile(r"[34]8;5;(?!2(?:3[2-9]|4\d|5[0-5])[;m])")
HAIKU = "An old silent pond\nA frog jumps into the pond\nSplash! Silence again\n"
WRITES = ("write", {"path": "/haiku.md", "content": HAIKU})
EDITS = ("edit", {"path": "/haiku.md", "old_string": "frog", "new_string": "toad"})
ASKS = {
    "name": "season",
    "question": "Which season?",
    "schema": {"type": "string"},
    "buttons": [{"label": "Spring", "value": "spring"}, {"label": "Autumn", "value": "autumn"}],
}
PLAN = {"title": "Sea", "content": "1. Look at the sea\n2. Write it down\n", "path": "/plans/calm-blue-sea.plan"}
REVIEW = {
    "name": "approval",
    "question": "Shall I build /plans/calm-blue-sea.plan?",
    "schema": {"type": "string"},
    "buttons": [{"label": "Accept", "value": "Accept"}, {"label": "Reject", "value": "Reject"}],
}


@pytest.fixture(scope="module")
def own() -> Iterator[Laptop]:
    with laptop() as made:
        yield made


def cut_off(text: str) -> Answer:
    """A response that starts and never ends."""
    return Answer(tuple(wires.chat_completions(Scene(text=text), "gpt-4o"))[:3], hang=True)


def style_of(text: str, coloured: str) -> str:
    """The last escape sequence before a text on the screen."""
    before, found, _ = coloured.partition(text)
    assert found, coloured
    styles: list[str] = re.findall(r"\x1b\[([\d;]*)m", before)
    return styles[-1]


def test_a_session_from_the_first_message_to_resuming_after_a_kill(own: Laptop) -> None:
    project = own.project("pond", below="home")
    haiku = project / "haiku.md"
    own.model.script = [
        says("I will write a **haiku**:\n\n- short\n- about a pond", WRITES),
        says("I wrote it to `haiku.md`."),
        says("", EDITS),
        says("Then the frog stays."),
        says("", ("ask_user", {"questions": [ASKS]})),
        says("Autumn it is."),
    ]
    with tmux(own, "chat", "--trust", "guided", at=project) as chat:
        looks_like(chat, "begin", "Message the agent…", "ready")
        assert COLOUR.search(chat.coloured())
        chat.says("Write a haiku")
        looks_like(chat, "approval", "+A frog jumps into the pond", "y approve")
        assert not haiku.exists()
        chat.press("y")
        looks_like(chat, "approved", "✓ write /haiku.md", "I wrote it to haiku.md.", "ready")
        assert haiku.read_text() == HAIKU

        chat.says("Make it a toad")
        chat.shows("+A toad jumps into the pond")
        lines = ("-A frog jumps", "+A toad jumps", " Splash!")
        assert len({style_of(line, chat.coloured()) for line in lines}) == len(lines)
        chat.press("a")
        looks_like(chat, "rule", "Always approve in this session: any call of edit", "n back")
        chat.press("n", "n")
        chat.shows("Reason (the agent sees it)")
        chat.says("Frogs are better")
        looks_like(chat, "rejected", "✗ edit /haiku.md", "Then the frog stays.", "ready")
        assert haiku.read_text() == HAIKU

        chat.says("Ask me")
        looks_like(chat, "question", "Which season?", "1. Spring", "2. Autumn")
        chat.press("2")
        chat.shows("Autumn it is.", "ready")

        chat.press("C-g")
        looks_like(chat, "undo", "would be removed: /haiku.md", "y yes")
        assert haiku.exists()
        chat.press("y")
        chat.shows("Undone: 1 file.")
        assert not haiku.exists()

        own.model.script = [
            says("", ("plan_write", PLAN)),
            says("", ("ask_user", {"questions": [REVIEW]})),
            says("", ("exit_plan_mode", {"plan_file_path": PLAN["path"]})),
            says("Now I build."),
            cut_off("I begin, and then"),
        ]
        chat.says("/plan")
        chat.shows("plan · guided")
        chat.says("Plan it")
        looks_like(chat, "plan", "Look at the sea", "1. Accept", "2. Reject")
        chat.press("Enter")
        looks_like(chat, "built", "Now I build.", "build · guided", "ready")
        chat.says("Go on")
        chat.shows("I begin")
        os.kill(chat.process, signal.SIGKILL)
        chat.ends()

    own.model.script = [says("", WRITES), says("Written."), cut_off("Once upon")]
    with tmux(own, "chat", "--resume", "last", at=project, NO_COLOR="1") as again:
        # The interrupted run resumes without a command, below the earlier messages.
        again.shows("> Go on", "+A frog jumps into the pond")
        again.press("y")
        looks_like(again, "resumed", "Now I build.", "Written.", "ready")
        assert not COLOUR.search(again.coloured())
        again.says("Tell me a story")
        again.shows("Once upon", "Esc cancel")
        again.press("Escape")
        again.shows("Cancelled.", "ready")
        again.press("C-d")
        assert "Continue with: toolcrib chat --resume" in again.ends()

    assert haiku.read_text() == HAIKU
    assert not (own.data / "postgres" / "postmaster.pid").exists()


def test_approval_shows_a_command_in_its_lines_and_says_who_was_faster(own: Laptop) -> None:
    project = own.project("marsh", below="home")
    deceptive = "ok\r-removed\u202e" + " " * 300 + "evil" + "\n"
    own.model.script = [
        says("", ("write", {"path": "/a.txt", "content": deceptive})),
        says("Written, all\n\nof *it*.\n"),
    ]
    with tmux(own, "chat", "--trust", "guided", at=project) as chat:
        chat.shows("ready")
        chat.says("Write")
        chat.shows("1 file changed, +1 -0", "+ok\\r-removed\\u202e⟦300 spaces⟧evil", "y approve")
        [pending] = json.loads(own.says("approve", "--json", at=project))
        own.says("approve", pending["id"], "--yes", at=project)
        chat.shows("Already approved by", "Written, all", "of it.", "ready", without="n reject")
        chat.drags("all", "of it.")
        chat.press("C-c")
        chat.copies("all\nof it.")


@pytest.mark.long
def test_another_terminal_takes_over_and_a_killed_database_restarts(own: Laptop) -> None:
    project = own.project("lake", below="home")
    own.model.script = [says("Hello from the first."), says("I am still with you."), says("And now too.")]
    with tmux(own, at=project) as first:
        first.shows("ready")
        with tmux(own, at=project) as second:
            second.shows("ready")
            first.says("Hello")
            first.shows("Hello from the first.", "ready")
            first.press("C-d")
            first.ends()
            second.shows("has stopped. Continuing in this terminal.", "ready")
            second.says("Are you there?")
            second.shows("I am still with you.", "ready")

            os.kill(database_process(own), signal.SIGKILL)
            second.says("And now?")
            unavailable, answer = "The database is temporarily unavailable.", "And now too."
            # The database restarts without a command. If the message was too early, it is still in the input.
            if unavailable in second.until(lambda shown: unavailable in shown or answer in shown, "Either"):
                second.until(lambda _: own.run("sessions", at=project).status == 0, "The database, running again")
                second.press("Enter")
            second.shows(answer, "ready")
            # SIGTERM leaves the terminal and the database in the same state as a normal exit.
            os.kill(second.process, signal.SIGTERM)
            assert "Continue with: toolcrib chat --resume" in second.ends()
    assert not (own.data / "postgres" / "postmaster.pid").exists()


def database_process(own: Laptop) -> int:
    return int((own.data / "postgres" / "postmaster.pid").read_text().split("\n")[0])
