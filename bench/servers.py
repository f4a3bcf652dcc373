"""The two servers under load, ours and the bare one, on one fresh database."""

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psycopg
from psycopg import sql

from toolcrib.runs import durable
from toolcrib.storage import migrate

ADMIN = os.environ.get("TOOLCRIB_TEST_DATABASE_URL", "postgresql://postgres@127.0.0.1:5432/postgres")


@dataclass(frozen=True)
class ServerPair:
    """Both servers, and a person with access to them."""

    ours: int
    bare: int
    token: str
    workspace: str
    database: str


@contextmanager
def fresh_database() -> Iterator[str]:
    name = f"toolcrib_bench_{secrets.token_hex(4)}"
    with psycopg.connect(ADMIN, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            yield name
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@contextmanager
def server_pair(scratch: Path) -> Iterator[ServerPair]:
    """Start both servers, and stop them at the end."""
    with fresh_database() as name:
        owner = url_of(name)
        durable.upgrade(owner)
        with our_server(scratch, url_of(name, migrate.APP_ROLE)) as ours:
            token, workspace, user = member(ours.port)
            folder = scratch / "bare"
            folder.mkdir()
            port = free_port()
            command = [sys.executable, "-m", "bench.bare", owner, str(folder), workspace, user, str(port)]
            with _running(command, {}, port, "/openapi.json"):
                yield ServerPair(ours.port, port, token, workspace, name)


@dataclass(frozen=True)
class Ours:
    """Our server and its process."""

    port: int
    pid: int


@contextmanager
def our_server(scratch: Path, url: str, *, program: list[str] | None = None, **more: str) -> Iterator[Ours]:
    """Start our server, with models on loopback allowed. ``more`` is added to its environment."""
    port = free_port()
    environment = {
        "TOOLCRIB_DATABASE_URL": url,
        "TOOLCRIB_JWT_SECRET": secrets.token_urlsafe(48),
        "TOOLCRIB_AUDIT_SEAL_KEY": secrets.token_urlsafe(48),
        "TOOLCRIB_DATA_DIR": str(scratch / "data"),
        "TOOLCRIB_ACCESS_TOKEN_MINUTES": "600",
        "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
        "TOOLCRIB_OPEN_REGISTRATION": "true",
        **more,
    }
    command = [*(program or [str(Path(sys.executable).parent / "toolcrib")]), "serve", "--port", str(port)]
    with _running(command, environment, port, "/health") as pid:
        yield Ours(port, pid)


@contextmanager
def _running(command: list[str], environment: dict[str, str], port: int, probe: str) -> Iterator[int]:
    process = subprocess.Popen(command, env={**os.environ, **environment})
    try:
        for _ in range(200):
            try:
                httpx2.get(f"http://127.0.0.1:{port}{probe}", timeout=1)
                break
            except httpx2.TransportError:
                time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        process.wait(20)


def member(port: int) -> tuple[str, str, str]:
    """Create a person with a workspace. Returns token, workspace and user."""
    # Hashing a password takes long on a busy machine.
    client = httpx2.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=60)
    account = {"email": f"{secrets.token_hex(6)}@example.org", "password": secrets.token_urlsafe(24)}
    user = client.post("/auth/register", json=account).raise_for_status().json()["id"]
    token = client.post("/auth/login", json=account).raise_for_status().json()["access_token"]
    client.cookies.clear()
    client.headers["authorization"] = f"Bearer {token}"
    workspace = client.post("/workspaces", json={"name": "bench"}).raise_for_status().json()["id"]
    return token, workspace, user


def url_of(database: str, user: str | None = None) -> str:
    facts = psycopg.conninfo.conninfo_to_dict(ADMIN)
    return f"postgresql://{user or facts.get('user')}@{facts.get('host')}:{facts.get('port', 5432)}/{database}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
