"""Paused runs use no resources of any server, outlive it, and continue when a person has decided."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.fakes.model_server import ModelServer
from tests.faults.cluster import ServerCluster
from tests.faults.server import Server
from tests.integration.runs.conftest import says
from tests.wait_until import PATIENCE

RUNS = 20
_LOOKS = 3_000
_RULES = "provider: openai-compatible\nmodel: fake\ncontext_window: 100000\ntool_permissions: {write: {allowed: true}}"


@pytest.fixture
def server(tmp_path: Path, urls: DatabaseUrls) -> Iterator[Server]:
    with Server(tmp_path, urls) as server:
        server.environment |= {"TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*", "TOOLCRIB_HEARTBEAT_LEASE_SECONDS": "2"}
        server.start()
        yield server


@pytest.mark.long
def test_paused_runs_use_no_resources_and_outlive_their_server(
    server: Server, urls: DatabaseUrls, model: ModelServer
) -> None:
    cluster, agent = asyncio.run(_office(server, model))
    workspace, headers = cluster.workspace, {"Authorization": f"Bearer {cluster.token}"}
    with httpx2.Client(base_url=f"{server.origin}/api/v1", headers=headers, trust_env=False, timeout=PATIENCE) as http:
        # So many runs fill the pools of threads, which have a fixed size, but for the odd thread on a busy machine.
        _wait_for_runs(http, urls, model, workspace, agent, RUNS)
        threads = _threads(server)
        _wait_for_runs(http, urls, model, workspace, agent, RUNS)

        assert _threads(server) < threads + RUNS // 4
        assert (
            _rows(urls, "select count(*) from toolcrib.runs where worker_id is not null or active_since is not null")
            == 0
        )
        server.kill()
        server.start()
        assert _rows(urls, "select count(*) from toolcrib.runs where state = 'waiting'") == 2 * RUNS

        model.say(*(says("Written.") for _ in range(2 * RUNS)))
        for approval in http.get(f"/workspaces/{workspace}/paused-calls", params={"limit": 100}).json()["items"]:
            decided = http.post(
                f"/workspaces/{workspace}/paused-calls/{approval['id']}/decision",
                json={"approved": True, "arguments_sha256": approval["arguments_sha256"]},
            )
            assert decided.status_code == 200, decided.text
        _until(urls, "select count(*) from toolcrib.runs where end_reason = 'done'", 2 * RUNS)
    project = server.data_dir / "workspaces" / workspace / "project"
    assert len(list(project.glob("*.txt"))) == 2 * RUNS


async def _office(server: Server, model: ModelServer) -> tuple[ServerCluster, str]:
    cluster = await ServerCluster.opened(server)
    return cluster, await cluster.agent(server, model, _RULES, provider="openai-compatible")


def _wait_for_runs(
    http: httpx2.Client, urls: DatabaseUrls, model: ModelServer, workspace: str, agent: str, runs: int
) -> None:
    """Start runs that each request to write a file, until all of them wait."""
    before = _rows(urls, "select count(*) from toolcrib.runs")
    for number in range(runs):
        session = http.post(f"/workspaces/{workspace}/sessions", json={"agent_id": agent}).raise_for_status().json()
        model.say(says("", ("write", {"path": f"/{before + number}.txt", "content": "x"})))
        sent = http.post(f"/workspaces/{workspace}/sessions/{session['id']}/messages", json={"text": "Write."})
        sent.raise_for_status()
    _until(urls, "select count(*) from toolcrib.runs where state = 'waiting'", before + runs)
    _until(urls, "select count(*) from dbos.workflow_status where status <> 'SUCCESS' and name = 'advance'", 0)


def _threads(server: Server) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in status)["Threads"])


def _until(urls: DatabaseUrls, query: str, expected: int) -> None:
    for _ in range(_LOOKS):
        if _rows(urls, query) == expected:
            return
    raise AssertionError(f"{_rows(urls, query)}, not {expected}: {query}")


def _rows(urls: DatabaseUrls, query: str) -> Any:
    with psycopg.connect(urls.owner) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]
