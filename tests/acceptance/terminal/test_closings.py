"""The terminal closed in the middle of a command: nothing of it is left, no error is told, and the run goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.acceptance.local_machine import Laptop, laptop
from tests.acceptance.terminal.test_stop_and_close import chat_on_pty, descendants, is_running, still_running
from tests.acceptance.terminal.tmux import tmux
from tests.acceptance.test_stop import processes_with, until
from tests.integration.runs.conftest import says
from tests.wait_until import PATIENCE

pytestmark = pytest.mark.long

CLOSINGS = 20


@pytest.fixture(scope="module")
def own() -> Iterator[Laptop]:
    with laptop() as made:
        yield made


def window_closed(own: Laptop, at: Path, message: str, is_busy: Callable[[], bool]) -> list[int]:
    with chat_on_pty(own, at, "chat", "--trust", "autonomous") as chat:
        chat.until("Message the agent")
        os.write(chat.master, f"{message}\r".encode())
        until_drained(chat, is_busy)
        family = descendants(chat.process.pid)
        chat.close()
        chat.process.wait(PATIENCE)
    return family


def sighup(own: Laptop, at: Path, message: str, is_busy: Callable[[], bool]) -> list[int]:
    return ended_by(own, at, message, is_busy, lambda chat: chat.process.send_signal(signal.SIGHUP))


def ctrl_d(own: Laptop, at: Path, message: str, is_busy: Callable[[], bool]) -> list[int]:
    return ended_by(own, at, message, is_busy, lambda chat: os.write(chat.master, b"\x04"))


def ended_by(own: Laptop, at: Path, message: str, is_busy: Callable[[], bool], end: Callable[[Any], Any]) -> list[int]:
    with chat_on_pty(own, at, "chat", "--trust", "autonomous") as chat:
        chat.until("Message the agent")
        os.write(chat.master, f"{message}\r".encode())
        until_drained(chat, is_busy)
        family = descendants(chat.process.pid)
        end(chat)
        until_drained(chat, lambda: chat.process.poll() is not None)
    return family


def tmux_closed(own: Laptop, at: Path, message: str, is_busy: Callable[[], bool]) -> list[int]:
    family: list[int] = []
    # What is on the screen at the end cannot be read any more.
    with suppress(subprocess.CalledProcessError), tmux(own, "chat", "--trust", "autonomous", at=at) as chat:
        chat.shows("Message the agent…", "ready")
        chat.says(message)
        until(is_busy, "The command")
        family = descendants(chat.process)
        chat._tmux("kill-server")
    assert family
    deadline = time.monotonic() + PATIENCE
    while is_running(family[0]) and time.monotonic() < deadline:
        Event().wait(0.05)
    return family


def until_drained(chat: Any, is_so: Callable[[], bool]) -> None:
    """Wait for something while the terminal takes what is printed."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, chat.shown.decode(errors="replace")[-2_000:]
        chat.drain(0.05)


HOWS = (window_closed, sighup, ctrl_d, tmux_closed)


@pytest.mark.parametrize("number", range(CLOSINGS))
def test_a_terminal_that_is_closed_in_the_middle_of_a_command_is_no_error_of_the_command(
    own: Laptop, number: int
) -> None:
    close = HOWS[number % len(HOWS)]
    project = own.project(f"closed-{number}")
    seconds = f"42{number:02}.33"
    # Ends at once when it runs again.
    command = f"echo begun >> begun.txt; test -e go.txt || (sleep {seconds} & sleep {seconds}); echo once >> once.txt"
    own.model.script = [says("", ("bash", {"command": command, "timeout": 600}))]

    family = close(own, project, f"Go {number}", lambda: len(processes_with(seconds)) >= 2)

    # Nothing of the command is left, neither a process nor a file.
    assert still_running(family, seconds=10) == []
    assert processes_with(seconds) == []
    assert list(project.iterdir()) == []
    assert own.model.script == []
    # Who only looks wakes nobody.
    [before] = json.loads(own.says("runs", "list", "--json", at=project))
    assert (before["state"], before["end_reason"], before["error"]) == ("ready", None, None)

    (project / "go.txt").touch()
    own.model.script = [says(f"Went on with {number}.")]
    with chat_on_pty(own, project, "chat", "--trust", "autonomous", "--continue") as chat:
        chat.until(f"Went on with {number}.")
        os.write(chat.master, b"\x04")
        until_drained(chat, lambda: chat.process.poll() is not None)

    messages = own.model.last.body["messages"]
    results = [one["content"] for one in messages if one["role"] == "tool"]
    sys.stdout.write(f"{close.__name__}: the model reads {results}\n")
    assert len(results) == 1
    assert not any(word in str(messages) for word in ("nternal server error", "INTERNAL", "nterrupted", "cancelled"))
    [after] = json.loads(own.says("runs", "list", "--json", at=project))
    assert (after["id"], after["state"], after["end_reason"], after["error"]) == (before["id"], "ended", "done", None)
    assert (project / "once.txt").read_text() == "once\n"
    assert (project / "begun.txt").read_text() == "begun\n"
