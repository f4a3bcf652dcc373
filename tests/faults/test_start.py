"""A server that starts after a crash: its port opens at once, and only unfinished workspaces wait for recovery."""

import asyncio
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from tests.databases import DatabaseUrls
from tests.fakes.model_server import Answer, ModelServer, Received, model_server, plain
from tests.faults.cluster import ServerCluster
from tests.faults.consistency_check import Workspace
from tests.faults.crasher import Doomed, crash
from tests.faults.processes import Site, run_command
from tests.faults.scripted import said
from tests.faults.server import Server, client_of
from tests.wait_until import PATIENCE
from toolcrib.core.callers import Caller
from toolcrib.core.ids import CallId, UserId, WorkspaceId, new_id
from toolcrib.core.tool_calls import ToolCall

RULES = """
provider: openai-compatible
model: fake
trust: autonomous
context_window: 100000
tool_permissions: {write: {allowed: true}}
"""
# Other work on the machine delays some of the starts.
TRIES = 3
GUIDED = "trust: guided\ntool_permissions: {write: {allowed: true}}"


@pytest.fixture
def server(tmp_path: Path, urls: DatabaseUrls) -> Iterator[Server]:
    with Server(tmp_path, urls) as server:
        server.environment |= {
            "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
            "TOOLCRIB_AUDIT_SEAL_INTERVAL_SECONDS": "600",
        }
        yield server


async def test_workspace_that_cannot_be_recovered_is_quarantined_until_it_can(
    server: Server, urls: DatabaseUrls, tmp_path: Path
) -> None:
    server.start()
    cluster = await ServerCluster.opened(server)
    other = await another_workspace(cluster, server)
    agent = await cluster.send(server, "POST", cluster.at("agents"), {"name": "a", "definition": GUIDED})
    key = (await cluster.send(server, "POST", cluster.at(f"agents/{agent['id']}/keys"), {"name": "k"}))["secret"]
    async with client_of(server, key) as http:
        asked = (await http.post(cluster.at("tools"), json=write("/approved.txt"))).json()["result"]
    await leaves_unfinished(cluster, server, urls, ToolCall("write", {"path": "/a.txt", "content": "a\n"}))
    server.kill()
    approved = ("approve", asked["pause_id"], "--database", "--as", "ada@example.com", "--yes")
    done = await asyncio.to_thread(run_command, *approved, environment=server.environment, scratch=tmp_path)
    assert done.status == 0, done.said
    project = project_of(server, cluster)
    mode = stat.S_IMODE(project.stat().st_mode)
    project.chmod(0o500)
    try:
        await asyncio.to_thread(server.start)
        first = await call(server, cluster, cluster.workspace, read("/a.txt"))
        again = await call(server, cluster, cluster.workspace, write("/b.txt"))
        beside = await call(server, cluster, other, write("/other.txt"))
        ready = (await get(server, "/readyz")).json()
        waiting = await cluster.send(server, "GET", cluster.at(f"calls/{asked['call_id']}"))
    finally:
        project.chmod(mode)

    for refused in (first, again):
        assert (refused.status_code, refused.json()["code"]) == (503, "QUARANTINED"), refused.text
        assert int(refused.headers["retry-after"]) >= 1
        assert "is quarantined" in refused.json()["error"]
        assert "The operating system" in refused.json()["error"]
        assert str(server.data_dir) not in refused.text
    assert beside.is_success, beside.text
    assert ready["recovery"] == {"workspaces": 1, "quarantined": 1}
    assert str(server.data_dir) not in str(ready)
    assert waiting["state"] not in ("done", "failed"), waiting
    assert f'"workspace_id": "{cluster.workspace}"' in next(
        line for line in server.logged().splitlines() if "recovery.failed" in line
    )
    # Once it is repaired, it is recovered without a restart, and what waited for it is executed.
    await until_recovered(server)
    answer = await call(server, cluster, cluster.workspace, read("/a.txt"))
    assert answer.is_success, answer.text
    await ends(cluster, server, f"calls/{asked['call_id']}")
    # Its outcome is committed a moment before the file is on disk; whoever reads it waits for that.
    written = await call(server, cluster, cluster.workspace, read("/approved.txt"))
    assert written.json()["result"]["content"] == "x", written.text
    truth_of(cluster, urls, project).assert_true()


async def test_run_of_a_quarantined_workspace_waits_and_runs_of_others_do_not(
    server: Server, urls: DatabaseUrls
) -> None:
    server.start()
    cluster = await ServerCluster.opened(server)
    beside = ServerCluster(cluster.token, await another_workspace(cluster, server))
    await leaves_unfinished(cluster, server, urls, ToolCall("write", {"path": "/a.txt", "content": "a\n"}))
    server.kill()
    project = project_of(server, cluster)
    mode = stat.S_IMODE(project.stat().st_mode)
    project.chmod(0o500)
    try:
        async with model_server(ModelServer(responder=answered)) as model:
            await asyncio.to_thread(server.start)
            ids = []
            for one in (cluster, beside):
                agent = await one.agent(server, model, RULES, provider="openai-compatible")
                ids.append(await one.say(server, await one.session(server, agent), f"Hello from {one.workspace}."))
            await ends(beside, server, f"runs/{ids[1]}")
            # It takes no room from others: nobody executes it.
            await comes_to(cluster, server, f"runs/{ids[0]}", "ready")
            asked_by = [request.body["messages"][-1]["content"] for request in model.received if asks(request)]
            project.chmod(mode)
            ended = await ends(cluster, server, f"runs/{ids[0]}")
    finally:
        project.chmod(mode)

    assert asked_by == [f"Hello from {beside.workspace}."]
    assert ended["end_reason"] == "done"


@pytest.mark.long
async def test_port_opens_at_once_although_a_crash_left_30000_files_unfinished(
    server: Server, urls: DatabaseUrls
) -> None:
    await asyncio.to_thread(server.start)
    cluster = await ServerCluster.opened(server)
    other = await another_workspace(cluster, server)
    assert (await call(server, cluster, other, write("/before.txt"))).is_success
    empty = [await asyncio.to_thread(seconds_to_restart, server) for _ in range(TRIES)]
    making = "mkdir d && cd d && for i in $(seq 30000); do echo $i > f$i; done"
    await leaves_unfinished(cluster, server, urls, ToolCall("bash", {"command": making, "timeout": 600}), steps=1_000)

    # None of them lives long enough to recover so many files.
    full = [await asyncio.to_thread(seconds_to_restart, server) for _ in range(TRIES)]
    began = time.monotonic()
    ready = await get(server, "/readyz")
    beside = await call(server, cluster, other, read("/before.txt"))
    beside_seconds = time.monotonic() - began
    ready_then = (await get(server, "/readyz")).json()["recovery"]
    # The call waits for its own workspace, which it finds whole.
    whole = await call(server, cluster, cluster.workspace, read("/d/f30000"))

    assert min(full) <= min(empty) + 1.0, (full, empty)
    assert (ready.status_code, ready.json()["recovery"]) == (200, {"workspaces": 1, "quarantined": 0})
    assert beside.is_success, beside.text
    assert ready_then["workspaces"] == 1, f"The recovery had ended already, after {beside_seconds:.1f} s."
    assert "30000" in whole.text, whole.text
    assert len(list((project_of(server, cluster) / "d").iterdir())) == 30_000
    assert (await get(server, "/readyz")).json()["recovery"]["workspaces"] == 0


def seconds_to_restart(server: Server) -> float:
    server.kill()
    began = time.monotonic()
    server.start()
    return time.monotonic() - began


async def leaves_unfinished(
    cluster: ServerCluster, server: Server, urls: DatabaseUrls, work: ToolCall, *, steps: int = 0
) -> None:
    """Make a call in another process of the node, which dies in the middle of writing to disk."""
    user = (await cluster.send(server, "GET", "/auth/me"))["id"]
    site = Site(urls.app, urls.system, server.data_dir, server.node)
    caller = Caller(WorkspaceId(UUID(cluster.workspace)), UserId(UUID(user)), call_id=CallId(new_id()))
    assert not await asyncio.to_thread(crash, Doomed(site, caller, work, steps))


def answered(request: Received) -> Answer:
    return said("Hello.") if asks(request) else plain(200, {"object": "list", "data": []})


def asks(request: Received) -> bool:
    return "messages" in request.body


async def another_workspace(cluster: ServerCluster, server: Server) -> str:
    return str((await cluster.send(server, "POST", "/workspaces", {"name": "other"}))["id"])


async def call(server: Server, cluster: ServerCluster, workspace: str, body: dict[str, Any]) -> httpx2.Response:
    async with client_of(server, cluster.token) as http:
        return await http.post(f"/workspaces/{workspace}/tools", json=body)


async def get(server: Server, path: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=server.origin, timeout=PATIENCE, trust_env=False) as http:
        return await http.get(path)


async def until_recovered(server: Server) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await get(server, "/readyz")).json()["recovery"]["workspaces"]:
            pass


async def ends(cluster: ServerCluster, server: Server, path: str) -> dict[str, Any]:
    """Wait until a run or a call has ended."""
    return await comes_to(cluster, server, path, "ended", "done", "failed")


async def comes_to(cluster: ServerCluster, server: Server, path: str, *states: str) -> dict[str, Any]:
    """Wait until a run or a call is in one of these states."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found: dict[str, Any] = await cluster.send(server, "GET", cluster.at(path))
            if found["state"] in states:
                return found


def read(path: str) -> dict[str, Any]:
    return {"tool": "read", "args": {"path": path}}


def write(path: str) -> dict[str, Any]:
    return {"tool": "write", "args": {"path": path, "content": "x"}}


def project_of(server: Server, cluster: ServerCluster) -> Path:
    return server.data_dir / "workspaces" / cluster.workspace / "project"


def truth_of(cluster: ServerCluster, urls: DatabaseUrls, project: Path) -> Workspace:
    return Workspace(urls.owner, UUID(cluster.workspace), project)
