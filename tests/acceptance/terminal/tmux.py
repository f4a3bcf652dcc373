"""A real terminal of 80 by 24: tmux, with a person's input and screen."""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from tests.acceptance.local_machine import Laptop, user_of_laptop
from tests.wait_until import PATIENCE

COLUMNS, LINES = 80, 24
_LOOK_EVERY = 0.05
_RESTING = 20
# Values that differ between runs and machines: ids, durations, relative times, ports and versions.
_CHANGING = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"--resume [0-9a-f]{8}\b"), "--resume <id>"),
    (re.compile(r"\b\d+\.\d s\b"), "<t> s"),
    # Where the line is cut depends on the duration.
    (re.compile(r"(✗ bash .*<t> s  failed: .{15}).*…$", re.MULTILINE), r"\1…"),
    (re.compile(r"\b\d+ (?:s|min) ago\b"), "<t> ago"),
    (re.compile(r"(registry\.example\.com):\d{5}\b"), r"\1:<num>"),
    (re.compile(r"\bpython3\.\d\d\b"), "python3.<n>"),
    (re.compile(r"expires in \d+ (?:s|min|h|d)\b"), "expires in <t>"),
)


@dataclass
class Screen:
    """One terminal, and the command that runs in it."""

    socket: Path

    def shows(self, *wanted: str, without: str | None = None) -> str:
        """Waits until the screen shows all of these texts (and not ``without``). Returns the screen."""
        return self.until(
            lambda screen: all(text in screen for text in wanted) and (without is None or without not in screen),
            f"{wanted}" + (f" without {without!r}" if without else ""),
        )

    def types(self, text: str) -> None:
        """Types a text literally, letter by letter."""
        self._tmux("send-keys", "-t", "0", "-l", text)

    def paste(self, text: str) -> None:
        """Pastes a text, as a terminal does it, also for a file that is dropped on it."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p", "-t", "0")

    def press(self, *keys: str) -> None:
        """Presses keys, by tmux's names: Enter, Escape, C-c, BTab."""
        self._tmux("send-keys", "-t", "0", *keys)

    def drags(self, start: str, end: str) -> None:
        """Drags with the mouse from the first character of a text on the screen to the end of another."""
        rows = self.screen().split("\n")
        positions = [
            (rows[at].index(text) + 1, at + 1)
            for text in (start, end)
            for at in [next(number for number, row in enumerate(rows) if text in row)]
        ]
        (column, row), (last_column, last_row) = positions
        last_column += len(end)
        # Pressed, moved and released, as a terminal reports it.
        for report in (f"0;{column};{row}M", f"32;{last_column};{last_row}M", f"0;{last_column};{last_row}m"):
            self.types(f"\x1b[<{report}")

    def copies(self, text: str) -> None:
        """Waits until the clipboard of the terminal has this text."""
        self.until(lambda _: self._tmux("list-buffers") != "" and self._tmux("show-buffer") == text, f"Copied {text!r}")

    def says(self, text: str) -> None:
        """Types a text, waits until it is shown, and sends it."""
        self.types(text)
        self.shows(text.split("\n")[-1][:60])
        self.press("Enter")

    def screen(self) -> str:
        return self._tmux("capture-pane", "-t", "0", "-p").rstrip("\n")

    def coloured(self) -> str:
        """The screen with its escape sequences for style."""
        return self._tmux("capture-pane", "-t", "0", "-p", "-e")

    @property
    def process(self) -> int:
        """The process id of the command."""
        return int(self._tmux("list-panes", "-F", "#{pane_pid}"))

    def ends(self) -> str:
        """What is left on the terminal after the command has exited; tmux has scrolled it by one line."""
        self.until(lambda _: self._tmux("list-panes", "-F", "#{pane_dead}").strip() == "1", "The end")
        return self._tmux("capture-pane", "-t", "0", "-p", "-S", "-")

    def rests(self) -> str:
        """Waits until the screen stops changing, and returns it."""
        seen: list[str] = []

        def same(screen: str) -> bool:
            seen.append(screen)
            return len(seen) > _RESTING and len(set(seen[-_RESTING:])) == 1

        return self.until(same, "Rest")

    def until(self, is_so: Callable[[str], bool], what: str) -> str:
        """Waits until the screen satisfies the condition, and returns it."""
        deadline = time.monotonic() + PATIENCE
        while not is_so(screen := self.screen()):
            assert time.monotonic() < deadline, f"{what} was not shown:\n{screen}"
            Event().wait(_LOOK_EVERY)
        return screen

    def _tmux(self, *words: str) -> str:
        return _tmux(self.socket, *words)


def applied(screen: str) -> str:
    """A screen without the values that differ between runs."""
    for pattern, mark in _CHANGING:
        screen = pattern.sub(mark, screen)
    return "\n".join(line.rstrip() for line in screen.splitlines())


@contextmanager
def tmux(laptop: Laptop, *arguments: str, at: Path, shell: bool = False, **environment: str) -> Iterator[Screen]:
    """The installed command in a terminal, or a shell to start it from. It stops when the terminal does."""
    socket = laptop.base / f"tmux-{os.urandom(4).hex()}"
    given = " ".join(
        f"{name}={shlex.quote(value)}"
        for name, value in (laptop.environment | {"LOGNAME": "ada"} | environment).items()
    )
    program = "PS1='$ ' bash --norc --noprofile -i" if shell else shlex.join([laptop.program, *arguments])
    command = f"cd {shlex.quote(str(at))} && exec env -i {given} TERM=screen-256color {program}"
    _tmux(
        socket,
        *("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), "sh"),
        *(";", "set-option", "-g", "remain-on-exit", "on", ";", "set-option", "-g", "status", "off"),
        *(";", "set-option", "-g", "escape-time", "0", ";", "set-option", "-g", "set-clipboard", "on"),
        *(";", "respawn-pane", "-k", "-t", "0", command),
    )
    screen = Screen(socket)
    try:
        yield screen
    finally:
        laptop.said.append(screen.screen())
        _tmux(socket, "kill-server")


def _tmux(socket: Path, *words: str) -> str:
    user = user_of_laptop()
    return subprocess.run(
        ["tmux", "-u", "-S", str(socket), *words],
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "screen-256color", "SHELL": "/bin/sh"},
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    ).stdout
