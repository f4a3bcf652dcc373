"""A real ``toolcrib serve`` that can be killed and started again on the same data."""

import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import httpx2

from tests import never_logged, stalls
from tests.conftest import POOL_SIZE
from tests.databases import DatabaseUrls
from tests.faults.preloaded import ForkedProcess, Preloaded
from tests.wait_until import PATIENCE

TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))
_LOOK_EVERY_SECONDS = 0.05
# Below the ephemeral port range, so that no outgoing connection takes our port between two starts.
_PORTS = range(10_000, 20_000)


class Server:
    """One server after the other, at the same address."""

    def __init__(self, directory: Path, urls: DatabaseUrls, *, address: str = "127.0.0.1") -> None:
        self.address = address
        self.data_dir = directory / "data"
        self.jwt_secret = secrets.token_urlsafe(48)
        # Its own name: a node has one disk.
        self.node = f"killed-{secrets.token_hex(4)}"
        # The program to start; a test may use another one that serves the same way.
        self.program = [TOOLCRIB]
        self._port = free_port()
        self._directory = directory
        self._log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self.environment = {
            "PATH": os.environ["PATH"],
            "TOOLCRIB_DATABASE_URL": urls.app,
            "TOOLCRIB_SYSTEM_DATABASE_URL": urls.system,
            "TOOLCRIB_JWT_SECRET": self.jwt_secret,
            "TOOLCRIB_AUDIT_SEAL_KEY": secrets.token_urlsafe(48),
            # So often that some of the kills happen during sealing.
            "TOOLCRIB_AUDIT_SEAL_INTERVAL_SECONDS": "0.1",
            "TOOLCRIB_DATA_DIR": str(self.data_dir),
            "TOOLCRIB_NODE_NAME": self.node,
            "TOOLCRIB_STALLS_FILE": str(stalls.file_of(directory)),
            # Tests share a database: a server must not go on with what an earlier test left behind.
            "TOOLCRIB_TAKE_OVER_HOMES": "false",
            "TOOLCRIB_POOL_SIZE": str(POOL_SIZE),
            "TOOLCRIB_OPEN_REGISTRATION": "true",
            # One login lasts for all the kills.
            "TOOLCRIB_ACCESS_TOKEN_MINUTES": "600",
        }

    @property
    def origin(self) -> str:
        return f"http://{self.address}:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        if self._process is not None:
            self.kill()
        if failure is None and self._log.exists():
            never_logged.check_log(self._log.read_bytes(), "the log of a server")
            stalls.no_stalls(self._directory)

    def start_and_recover(self) -> None:
        """Return when the server responds, and has recovered every workspace."""
        self.start()
        tick = threading.Event()
        for _ in range(int(PATIENCE / _LOOK_EVERY_SECONDS)):
            answer = httpx2.get(f"{self.origin}/readyz", timeout=PATIENCE, trust_env=False, verify=False).json()
            if answer.get("recovery", {}).get("workspaces") == 0:
                return
            tick.wait(_LOOK_EVERY_SECONDS)
        raise AssertionError(f"The server has not recovered after {PATIENCE} s:\n{self._log.read_text()}")

    def start(self) -> None:
        """Return when the server responds. It recovers workspaces meanwhile, or when they are used."""
        self.launch()
        assert self._process is not None
        tick = threading.Event()
        for _ in range(int(PATIENCE / _LOOK_EVERY_SECONDS)):
            assert self._process.poll() is None, f"The server ended by itself:\n{self._log.read_text()}"
            if self._answers():
                return
            tick.wait(_LOOK_EVERY_SECONDS)
        raise AssertionError(f"The server does not answer after {PATIENCE} s:\n{self._log.read_text()}")

    def launch(self) -> None:
        """Start the process, and return at once: what it takes up may end it before it responds."""
        arguments = ["serve", "--port", str(self._port)]
        if self.program == [TOOLCRIB]:
            self._process = Preloaded.start(arguments, self.environment, self._log)
        else:
            with self._log.open("ab") as log:
                command = [*self.program, *arguments]
                self._process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill it as the kernel does when memory runs out: at once and without cleanup."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def await_death(self) -> int:
        """Wait until it ends by itself and return its exit status."""
        assert self._process is not None
        status = self._process.wait(PATIENCE)
        self._process = None
        return status

    def signal(self, number: signal.Signals) -> None:
        """Send a signal as a process manager or a terminal does."""
        assert self._process is not None
        self._process.send_signal(number)

    def freeze(self) -> None:
        """Stop it like a virtual machine that is moved: nothing in it runs, and it does not notice."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def logged(self) -> str:
        return self._log.read_text()

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another operator command with the server's settings."""
        return subprocess.run([TOOLCRIB, *arguments], env=self.environment, capture_output=True, text=True, check=False)

    def _answers(self) -> bool:
        # A connection is enough, and is cheap.
        with socket.socket() as probe:
            return probe.connect_ex((self.address, self._port)) == 0


@contextmanager
def started_server(directory: Path, urls: DatabaseUrls, *, prefix: str = "", **environment: str) -> Iterator[Server]:
    """Start a server process. ``environment`` is added to its own, ``prefix`` is a command that starts it."""
    with Server(directory, urls) as server:
        server.program = [*prefix.split(), *server.program]
        server.environment |= environment
        server.start()
        yield server


def free_port() -> int:
    """Return a port that nobody uses."""
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("None of 100 ports is free.")


def client_of(server: Server, token: str | None = None) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"} if token else None
    # No certificate is needed here, and reading those of the machine takes longer than most requests.
    return httpx2.AsyncClient(
        base_url=f"{server.origin}/api/v1", headers=headers, timeout=PATIENCE, trust_env=False, verify=False
    )
