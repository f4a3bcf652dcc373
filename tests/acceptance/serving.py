"""A real ``toolcrib serve``, started as an operator would, on its own port and data directory."""

import os
import random
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import httpx2

from tests import never_logged, stalls
from tests.conftest import POOL_SIZE
from tests.databases import DatabaseUrls
from tests.wait_until import PATIENCE

_LOOK_EVERY_SECONDS = 0.05
# Below the ephemeral port range, so that no outgoing connection takes the port before the server does.
_PORTS = range(20_000, 32_000)


@dataclass(frozen=True)
class Serving:
    """A running server: its origin, its token secret, its directory and its output."""

    origin: str
    jwt_secret: str
    directory: Path
    database_urls: DatabaseUrls
    audit_seal_key: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    # Servers of several tests share a database. The node name keeps each to the runs of its own workspaces.
    node: str = field(default_factory=lambda: f"acceptance-{secrets.token_hex(4)}")
    # Additional settings of the operator.
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    @property
    def api(self) -> str:
        return f"{self.origin}/api/v1"


@contextmanager
def serving(
    directory: Path, urls: DatabaseUrls, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Serving]:
    """Starts a server, waits until it is healthy, and stops it afterwards."""
    server = Serving(
        f"http://127.0.0.1:{free_port()}", secrets.token_urlsafe(48), directory, urls, environment=environment
    )
    with running(server):
        yield server


@contextmanager
def running(server: Serving) -> Iterator[subprocess.Popen[bytes]]:
    """The server process, ended by SIGTERM. A stopped server can be started again with the same data."""
    command = [str(Path(sys.executable).with_name("toolcrib")), "serve", "--port", server.origin.rpartition(":")[2]]
    with (
        server.log.open("ab") as log,
        subprocess.Popen(command, env=_environment(server), stdout=log, stderr=log) as process,
    ):
        try:
            _wait_until_healthy(server, process)
            yield process
            assert process.poll() is None, (
                f"The server ended by itself with {process.returncode}:\n{server.log.read_text()}"
            )
        finally:
            _end(process)
        never_logged.check_log(server.log.read_bytes(), "the log of a server")
        stalls.no_stalls(server.directory)


def free_port() -> int:
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("None of 100 ports is free.")


def _environment(server: Serving) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "TOOLCRIB_DATABASE_URL": server.database_urls.app,
        "TOOLCRIB_SYSTEM_DATABASE_URL": server.database_urls.system,
        "TOOLCRIB_JWT_SECRET": server.jwt_secret,
        "TOOLCRIB_AUDIT_SEAL_KEY": server.audit_seal_key,
        "TOOLCRIB_DATA_DIR": str(server.data_dir),
        "TOOLCRIB_NODE_NAME": server.node,
        "TOOLCRIB_STALLS_FILE": str(stalls.file_of(server.directory)),
        "TOOLCRIB_TAKE_OVER_HOMES": "false",
        "TOOLCRIB_POOL_SIZE": str(POOL_SIZE),
        "TOOLCRIB_OPEN_REGISTRATION": "true",
        # The model servers of these tests run on loopback.
        "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
        **server.environment,
    }


def _wait_until_healthy(server: Serving, process: subprocess.Popen[bytes]) -> None:
    tick = threading.Event()
    for _ in range(int(PATIENCE / _LOOK_EVERY_SECONDS)):
        if process.poll() is not None:
            raise AssertionError(f"The server ended with {process.returncode}:\n{server.log.read_text()}")
        if _is_healthy(server):
            return
        tick.wait(_LOOK_EVERY_SECONDS)
    raise AssertionError(f"The server is not healthy after {PATIENCE} s:\n{server.log.read_text()}")


def _is_healthy(server: Serving) -> bool:
    try:
        return httpx2.get(f"{server.origin}/health", trust_env=False, verify=False).status_code == 200
    except httpx2.TransportError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
