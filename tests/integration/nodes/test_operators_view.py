"""What an operator sees of nodes: their list, their log, and their metrics."""

import asyncio
import json
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.databases import DatabaseUrls
from tests.faults.cluster import ServerCluster
from tests.faults.node_pair import node_pair, workspace_of_first
from tests.faults.server import Server
from tests.wait_until import PATIENCE

TOKEN = secrets.token_urlsafe(48)
RULES = "trust: supervised\ntool_permissions: {write: {allowed: true}}\n"
AGENT = "provider: openai-compatible\nmodel: fake\n"


@pytest.fixture
def pair(tmp_path: Path, database_urls: DatabaseUrls) -> Iterator[tuple[Server, Server]]:
    with node_pair(
        tmp_path, database_urls, TOOLCRIB_HEARTBEAT_LEASE_SECONDS="2", TOOLCRIB_METRICS_TOKEN=TOKEN
    ) as servers:
        yield servers


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(holds):
            pass


def states(server: Server) -> dict[str, str]:
    """The second column of ``toolcrib nodes list``, by the first."""
    lines = [line.split() for line in server.command("nodes", "list").stdout.splitlines() if line.strip()]
    return {line[0]: line[1] for line in lines[1:]}


def metrics(server: Server) -> dict[str, float]:
    shown = httpx2.get(f"{server.origin}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False).text
    return {name: float(value) for name, value in re.findall(r"^(toolcrib_\S+) (\S+)$", shown, re.MULTILINE)}


@pytest.mark.long
async def test_gauges_of_the_installation_are_the_same_at_each_node_and_counters_are_not(
    pair: tuple[Server, Server],
) -> None:
    shared = await workspace_of_first(*pair)
    async with shared.client() as http:
        agent = (await http.post(f"{shared.url}/agents", json={"name": "a", "definition": RULES})).json()["id"]
        key = (await http.post(f"{shared.url}/agents/{agent}/keys", json={"name": "a"})).json()["secret"]
        call = {"tool": "write", "args": {"path": "/a.txt", "content": "a"}}
        paused = await http.post(f"{shared.url}/tools", json=call, headers={"Authorization": f"Bearer {key}"})
        assert paused.json()["result"]["pause_id"], paused.text
        waiting = 'toolcrib_approvals_pending{kind="approval"}'
        await until(lambda: [metrics(server)[waiting] for server in pair] == [1, 1])

        route = 'toolcrib_http_requests_total{method="GET",route="/api/v1/status",status="200"}'
        for _ in range(3):
            await http.get("/status")

    assert (metrics(pair[0]).get(route, 0), metrics(pair[1])[route]) == (0, 3)


@pytest.mark.long
async def test_killed_node_is_silent_and_what_runs_there_waits_for_a_process_of_it(
    pair: tuple[Server, Server],
) -> None:
    first, second = pair
    shared = await workspace_of_first(first, second)
    before = states(second)
    first.kill()
    await until(lambda: states(second)["first"] == "silent")

    # These nodes do not take workspaces over.
    async with shared.client() as http:
        definition = {"name": "a", "definition": AGENT}
        agent = (await http.post(f"{shared.url}/agents", json=definition)).json()["id"]
        session = await shared.session(agent_id=agent)
        run = (await http.post(f"{shared.url}/sessions/{session}/messages", json={"text": "Hello"})).json()["id"]
        found = (await http.get(f"{shared.url}/runs/{run}")).json()
    answer = await shared.answer("ls", path="/")

    assert before == {"first": "alive", "second": "alive"}
    assert (found["state"], found["waits_for"]) == ("ready", "worker")
    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert states(second)["second"] == "alive"


async def test_only_node_that_drains_keeps_its_workspaces_and_says_so(
    tmp_path: Path, database_urls: DatabaseUrls
) -> None:
    with Server(tmp_path, database_urls) as server:
        server.environment |= {"TOOLCRIB_TAKE_OVER_HOMES": "true", "TOOLCRIB_HEARTBEAT_LEASE_SECONDS": "2"}
        server.start()
        cluster = await ServerCluster.opened(server)
        server.command("nodes", "drain", server.node)
        await until(lambda: "homes.no_successor" in server.logged())

        [node] = json.loads(server.command("nodes", "list", "--json").stdout)
        listed = await cluster.send(server, "POST", cluster.at("tools"), {"tool": "ls", "args": {"path": "/"}})
        shown = states(server)

    assert (shown, node["workspaces"]) == ({server.node: "draining"}, 1)
    assert listed["success"]
