"""Hundreds of paused calls cost the server nothing: no task, no thread, no connection, no memory."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import psycopg
import pytest

from bench.paused_call_rows import fill
from tests.acceptance.pending_approvals import decide, ended, hire
from tests.acceptance.serving import Serving, serving
from tests.acceptance.workspace import PASSWORD, Workspace
from tests.databases import migrated_database, urls_of
from tests.wait_until import PATIENCE

WAITING = 500


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Serving]:
    """A server that no other test uses."""
    with migrated_database() as name, serving(tmp_path, urls_of(name)) as server:
        yield server


@pytest.fixture
def desert(alone: Serving) -> Iterator[Workspace]:
    with httpx2.Client(base_url=alone.api, trust_env=False, timeout=PATIENCE) as http:
        http.post("/auth/register", json={"email": "ada@example.com", "password": PASSWORD})
        login = http.post("/auth/login", json={"email": "ada@example.com", "password": PASSWORD})
        headers = {"Authorization": f"Bearer {login.json()['access_token']}"}
        made = http.post("/workspaces", json={"name": "w"}, headers=headers).json()
        http.cookies.clear()
        project = alone.data_dir / "workspaces" / made["id"] / "project"
        yield Workspace(http, made["id"], login.json()["access_token"], project)


@pytest.mark.long
def test_five_hundred_paused_calls_use_no_server_resources(alone: Serving, desert: Workspace) -> None:
    result = hire(desert).asks()
    decide(desert, result["pause_id"])
    ended(desert, result["call_id"])
    before = Cost(alone)

    waiting = fill(alone.database_urls.owner, desert.id, WAITING)
    # The server knows them: it lists them, and one of them is decided.
    assert len(desert.get("/paused-calls", limit=100).json()["items"]) == 100
    assert decide(desert, waiting[0], approved=False).json()["state"] == "rejected"

    after = Cost(alone)
    assert after.threads <= before.threads + 1
    assert after.connections <= before.connections + 1
    assert after.sockets <= before.sockets + 2
    assert after.bytes - before.bytes < 5_000_000, f"{(after.bytes - before.bytes) / 1e6:.1f} MB more"


class Cost:
    """The resources that a server process uses."""

    def __init__(self, server: Serving) -> None:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{_pid(server)}/status").read_text().splitlines())
        self.threads = int(status["Threads"])
        self.bytes = int(status["VmRSS"].split()[0]) * 1_024
        self.sockets = len(list(Path(f"/proc/{_pid(server)}/fd").iterdir()))
        with psycopg.connect(server.database_urls.owner) as connection:
            row = connection.execute(
                "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            ).fetchone()
        assert row is not None
        self.connections = int(row[0])


def _pid(server: Serving) -> int:
    """The process that writes the server's log and listens on its port."""
    port = server.origin.rpartition(":")[2]
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"serve" in words and port.encode() in words:
                return int(process.name)
    raise AssertionError("The server's process is not there.")
