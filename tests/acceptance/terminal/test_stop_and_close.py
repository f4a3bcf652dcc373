"""Stopping a run, suspending and closing the terminal, with the installed command on a real pseudo-terminal."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import pytest

from tests.acceptance.local_machine import Laptop, laptop, user_of_laptop
from tests.acceptance.terminal.screens import looks_like
from tests.acceptance.terminal.tmux import tmux
from tests.acceptance.test_stop import WITHIN_IF_BUSY, processes_with, until
from tests.integration.runs.conftest import says
from tests.wait_until import PATIENCE


@pytest.fixture(scope="module")
def own() -> Iterator[Laptop]:
    with laptop() as made:
        yield made


@dataclass
class Pty:
    """The command on the slave side of a pseudo-terminal, as a terminal emulator holds it."""

    process: subprocess.Popen[bytes]
    master: int
    shown: bytes = field(default=b"")

    def until(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text.encode() not in self.shown:
            assert time.monotonic() < deadline, f"{text!r} was not shown:\n{self.shown.decode(errors='replace')}"
            self.drain(0.2)

    def drain(self, seconds: float) -> None:
        if select.select([self.master], [], [], seconds)[0]:
            with suppress(OSError):
                self.shown += os.read(self.master, 65_536)

    def close(self) -> None:
        """Closes the window: the kernel hangs up the terminal."""
        os.close(self.master)
        self.master = -1


@contextmanager
def chat_on_pty(own: Laptop, at: Path, *arguments: str) -> Iterator[Pty]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    process = subprocess.Popen(
        # setsid --ctty makes the slave the controlling terminal, as a terminal emulator does.
        ["/usr/bin/setsid", "--ctty", own.program, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=at,
        env=own.environment | {"TERM": "xterm-256color"},
        user=user_of_laptop(),
        group=user_of_laptop(),
        extra_groups=None if user_of_laptop() is None else [],
    )
    os.close(slave)
    opened = Pty(process, master)
    try:
        yield opened
    finally:
        if opened.master >= 0:
            os.close(opened.master)
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)


ENDS = ("SIGTERM", "window closed while a command prints", "window closed", "SIGHUP", "window closed, then SIGTERM")


@pytest.mark.gate_cases(2)
@pytest.mark.parametrize("how", ENDS)
def test_closing_the_terminal_ends_the_process_and_what_it_started(own: Laptop, how: str) -> None:
    project = own.project()
    own.model.script = [says("", ("bash", {"command": "while :; do seq 100; sleep 0.02; done", "timeout": 600}))]
    with chat_on_pty(own, project, "chat", "--trust", "autonomous") as chat:
        chat.until("Message the agent")
        if "prints" in how:
            os.write(chat.master, b"Count\r")
            chat.until("Esc cancel")
            chat.until("100")
        family = descendants(chat.process.pid)
        began = time.monotonic()
        if "closed" in how:
            chat.close()
        if name := next((name for name in ("SIGHUP", "SIGTERM") if name in how), None):
            chat.process.send_signal(signal.Signals[name])
        while chat.process.poll() is None and time.monotonic() - began < PATIENCE:
            if chat.master >= 0:
                chat.drain(0.05)
            else:
                Event().wait(0.05)
        took = time.monotonic() - began
        status = chat.process.poll()
        alive = still_running(family, seconds=10)
        sys.stdout.write(f"{how}: {took:.1f} s\n")

    assert status in ({143} if how == "SIGTERM" else {129, 143} if "SIGTERM" in how else {129}), how
    # 1 to 2 s on an idle machine.
    assert took < 30
    assert alive == []
    assert not (own.data / "postgres" / "postmaster.pid").exists()


def test_ctrl_c_ends_a_run_of_the_command_line_and_its_command(own: Laptop) -> None:
    project = own.project()
    command = "echo begun > begun.txt; sleep 4271.17; echo done > done.txt"
    own.model.script = [says("", ("bash", {"command": command, "timeout": 600})), says("Never said.")]
    with own.terminal("run", "--trust", "autonomous", "Wait", at=project) as run:
        run.until("bash")
        until(lambda: bool(processes_with("4271.17")), "The command")
        began = time.monotonic()
        run.interrupt()
        until(lambda: not processes_with("4271.17"), "The end of the command")
        command_took = time.monotonic() - began
        run.until("Cancelled.")
        status = run.process.wait(PATIENCE)

    sys.stdout.write(f"Ctrl+C: the command ended after {command_took:.2f} s\n")
    assert status == 130
    assert command_took < WITHIN_IF_BUSY
    assert len(own.model.script) == 1
    assert list(project.iterdir()) == []


def test_esc_ends_the_run_and_its_command_and_keeps_queued_messages_on_the_screen(own: Laptop) -> None:
    project = own.project("queue", below="home")
    command = "echo begun > begun.txt; sleep 4272.17; echo done > done.txt"
    own.model.script = [says("", ("bash", {"command": command, "timeout": 600})), says("The docs are done.")]
    with tmux(own, "chat", "--trust", "autonomous", at=project) as chat:
        chat.shows("Message the agent…", "ready")
        chat.says("Wait a while")
        until(lambda: bool(processes_with("4272.17")), "The command")
        chat.says("Then write the docs")
        chat.says("And the changelog")
        chat.shows("> Then write the docs", "> And the changelog", "queued", "Esc cancel")
        began = time.monotonic()
        chat.press("Escape")
        until(lambda: not processes_with("4272.17"), "The end of the command")
        command_took = time.monotonic() - began
        looks_like(chat, "held", "Cancelled.", "> Then write the docs", "not sent", "ready")
        assert len(own.model.script) == 1
        assert list(project.iterdir()) == []

        # The newest comes back to be edited, Enter on an empty line sends the rest.
        chat.press("Escape")
        chat.shows("> Then write the docs", "not sent")
        chat.until(
            lambda screen: screen.count("And the changelog") == 1 and "> And the changelog" not in screen, "Back"
        )
        chat.press("C-u")
        chat.shows("Message the agent…")
        chat.press("Enter")
        chat.shows("The docs are done.", "ready", without="not sent")

    sys.stdout.write(f"Esc: the command ended after {command_took:.2f} s\n")
    assert command_took < WITHIN_IF_BUSY


def test_esc_at_an_approval_goes_back_from_the_reason_and_then_ends_the_run(own: Laptop) -> None:
    project = own.project("asked", below="home")
    own.model.script = [says("", ("write", {"path": "/a.txt", "content": "a\n"})), says("Never said.")]
    with tmux(own, "chat", "--trust", "guided", at=project) as chat:
        chat.shows("ready")
        chat.says("Write it")
        chat.shows("y approve")
        chat.press("n")
        chat.shows("Reason (the agent sees it)")
        chat.press("Escape")
        chat.shows("y approve", without="Reason (the agent")
        chat.press("Escape")
        chat.shows("Cancelled.", "ready", without="y approve")

    assert len(own.model.script) == 1
    assert list(project.iterdir()) == []


def test_ctrl_z_suspends_the_chat_and_fg_resumes_it(own: Laptop) -> None:
    project = own.project("job", below="home")
    own.model.script = [says("I am back.")]
    with tmux(own, at=project, shell=True) as shell:
        shell.shows("$")
        shell.says(f"{own.program} chat")
        shell.shows("Message the agent…", "ready")
        shell.types("half a mess")
        shell.shows("half a mess")
        shell.press("C-z")
        shell.shows("Stopped", without="Message the agent")
        shell.says("echo still $((40 + 2))")
        shell.shows("still 42")
        shell.says("fg")
        shell.shows("half a mess", "^D quit")
        shell.types("age")
        shell.press("Enter")
        shell.shows("> half a message", "I am back.", "ready")
        shell.press("C-d")
        shell.shows("Continue with: toolcrib chat --resume")


@pytest.mark.long
def test_ctrl_z_does_not_freeze_a_chat_that_no_shell_can_resume(own: Laptop) -> None:
    project = own.project("window", below="home")
    own.model.script = [says("Still here.")]
    with tmux(own, at=project) as chat:
        chat.shows("ready")
        chat.press("C-z")
        chat.says("Are you there?")
        chat.shows("Still here.", "ready")


def descendants(pid: int) -> list[int]:
    """The process and all processes below it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def still_running(pids: list[int], *, seconds: float) -> list[int]:
    """Which of the processes run after that time; returns early if none does."""
    deadline = time.monotonic() + seconds
    while (alive := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        Event().wait(0.02)
    return alive


def is_running(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
