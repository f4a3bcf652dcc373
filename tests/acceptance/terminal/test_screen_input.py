"""What a person brings into the full-screen chat: files, commands, images, models, sessions and earlier messages."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.local_machine import Laptop, laptop
from tests.acceptance.terminal.screens import looks_like
from tests.acceptance.terminal.tmux import tmux
from tests.integration.runs.conftest import says

PARSER = "def parse(text):\n    return text.split()\n"
# One white pixel.
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def own() -> Iterator[Laptop]:
    with laptop() as made:
        yield made


def files(project: Path) -> None:
    (project / "src").mkdir()
    (project / "src" / "parser.py").write_text(PARSER)
    (project / "build").mkdir()
    (project / "build" / "parser.pyc").write_text("ignored")
    (project / ".gitignore").write_text("build/\n")
    (project / "my notes.txt").write_text("Buy milk\n")
    (project / "shot.png").write_bytes(PIXEL)
    for path in project.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)


def last_message(own: Laptop) -> Any:
    """What the model received last from the person."""
    return [one["content"] for one in own.model.last.body["messages"] if one["role"] == "user"][-1]


def test_a_file_is_completed_and_attached_and_a_name_that_is_no_file_is_not(own: Laptop) -> None:
    project = own.project("mention", below="home")
    files(project)
    own.model.script = [says("It splits."), says("Milk.")]
    with tmux(own, "chat", at=project) as chat:
        chat.shows("Message the agent…", "ready")
        chat.types("Explain @psr")
        # Its letters in order; what git ignores is not offered.
        looks_like(chat, "mention", "src/parser.py")
        chat.press("Enter")
        chat.shows("Explain @src/parser.py", without="@psr")
        chat.types("to ada@example.org and @nobody")
        chat.press("Enter")
        looks_like(chat, "mentioned", "It splits.", "+ 4 lines attached", "ready")
        explained = last_message(own)
        chat.types("And @note")
        chat.shows("my notes.txt")
        chat.press("Tab", "Enter")
        chat.shows("Milk.", "ready")

    words, _, attached = explained.partition("\n\n")
    assert words == "Explain @src/parser.py to ada@example.org and @nobody"
    assert attached == f'<attached>\n<file path="/src/parser.py">\n{PARSER}</file>\n</attached>'
    assert last_message(own).startswith('And @"my notes.txt"\n\n<attached>\n<file path="/my notes.txt">\nBuy milk\n')


def test_a_command_of_the_person_runs_in_the_sandbox_goes_to_the_agent_and_can_be_undone(own: Laptop) -> None:
    project = own.project("command", below="home")
    files(project)
    own.model.script = [says("It said hello."), says("Nothing.")]
    with tmux(own, "chat", "--trust", "supervised", at=project) as chat:
        chat.shows("Message the agent…", "ready")
        chat.says("!echo hello; echo made > made.txt; ls /home")
        # Nobody is asked: it is the person's own.
        chat.shows("✓ bash", "+ $ echo hello", "ready")
        assert (project / "made.txt").read_text() == "made\n"
        chat.says("What did it say?")
        looks_like(chat, "command", "It said hello.", "lines attached", "ready")
        told = last_message(own)
        chat.press("C-g")
        chat.shows("would be removed: /made.txt", "y yes")
        chat.press("y")
        chat.shows("Undone: 1 file.")
        assert not (project / "made.txt").exists()

        chat.says("!echo started; sleep 600; touch never.txt")
        chat.shows("started", "your command runs", "Esc cancel")
        chat.press("Escape")
        chat.shows("✗ bash", "ready")
        chat.says("And now?")
        chat.shows("Nothing.", "ready")

    assert told.startswith('What did it say?\n\n<attached>\n<command exit_code="0">\n$ echo hello; echo made')
    assert "\nhello\n" in told
    # What was cancelled is not attached, and has changed nothing.
    assert last_message(own) == (
        "[The person has undone changes to /made.txt. Read these files again before you edit them.]\n\nAnd now?"
    )
    assert not (project / "never.txt").exists()


@pytest.mark.long
def test_the_path_of_an_image_becomes_an_attachment(own: Laptop) -> None:
    project = own.project("picture", below="home")
    files(project)
    own.model.script = [says("A white pixel."), says("The same.")]
    with tmux(own, "chat", at=project) as chat:
        chat.shows("Message the agent…", "ready")
        chat.paste(f"{project}/shot.png")
        looks_like(chat, "image", "+ /shot.png")
        chat.press("BSpace")
        chat.shows("ready", without="+ /shot.png")
        chat.says("/image none.png")
        chat.shows("'none.png' is no image or PDF")
        chat.says("/image shot.png")
        chat.shows("+ /shot.png", "Attached to your next message")
        chat.says("What is it?")
        chat.shows("A white pixel.", "ready")
        first = last_message(own)
        chat.says("And @shot.png ?")
        chat.shows("The same.", "ready")
        # A path that is no image stays text.
        chat.paste("/tmp/none/other.png")
        chat.shows("/tmp/none/other.png")

    for message in (first, last_message(own)):
        [image] = [part for part in message if part["type"] == "image_url"]
        assert image["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"


@pytest.mark.long
def test_models_sessions_and_earlier_messages_are_picked_by_typing(own: Laptop) -> None:
    project = own.project("picker", below="home")
    own.model.script = [says("Noted."), says("Fine."), says("Again.")]
    with tmux(own, "chat", at=project) as chat:
        chat.shows("Message the agent…", "ready")
        chat.says("Remember the seven")
        chat.shows("Noted.", "ready")
        chat.says("/new")
        chat.shows("ready", without="Noted.")
        chat.says("Another subject")
        chat.shows("Fine.", "ready")

        chat.says("/model")
        looks_like(chat, "models", "Choose a model", "gpt-fake")
        chat.types("fake")
        chat.shows("gpt-fake", without="/gpt-4o ")
        chat.press("Enter")
        chat.shows("assistant now uses", "/gpt-fake.")

        chat.press("C-s")
        chat.shows("Continue a session", "Remember the seven", "Another subject")
        chat.types("seven")
        chat.shows("Continue a session", "Remember the seven")
        chat.press("Enter")
        chat.shows("> Remember the seven", "Noted.", "ready", without="Continue a session")

        chat.press("C-r")
        chat.shows("Earlier messages", "Remember the seven")
        chat.types("other sub")
        chat.shows("other sub", without="│Remember the seven")
        looks_like(chat, "history", "Earlier messages", "Another subject")
        chat.press("Enter")
        chat.shows("Another subject", without="Earlier messages")
        chat.press("Enter")
        chat.shows("Again.", "ready")
        chat.says("/cost")
        chat.shows("Cost of this session:", "Tokens:", "Model:")
        chat.press("C-d")
        chat.ends()

    assert own.model.last.body["model"] == "gpt-fake"
    # The session that was used last goes on, also after another one was created later.
    with tmux(own, "chat", "--continue", at=project) as again:
        again.shows("> Remember the seven", "> Another subject", "Again.", "ready")
    kept = list(own.data.rglob("said.jsonl"))
    assert kept
    assert {file.stat().st_mode & 0o777 for file in kept} == {0o600}
