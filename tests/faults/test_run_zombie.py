"""A server that is stopped beyond its lease and continues after another has taken over its runs: it commits nothing."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.fakes import strictness
from tests.fakes.model_server import Answer, ModelServer, Received, model_server, plain
from tests.faults.cluster import ServerCluster
from tests.faults.consistency_check import Workspace
from tests.faults.scripted import said
from tests.faults.server import Server, client_of
from tests.wait_until import PATIENCE

NOTICES = re.compile(r"run_worker\.heartbeat_lost|run\.superseded")
RULES = """
provider: openai-compatible
model: fake
trust: autonomous
context_window: 100000
tool_permissions: {write: {allowed: true}, bash: {allowed: true}}
"""
# Long enough to be stopped in, and in its own process, which continues while the server is stopped.
COMMAND = "sleep 2; echo once >> once.txt"
ALIVE = "select count(*) from toolcrib.server_processes where heartbeat_at > now() - interval '2 s'"
WAITS_IN_COMMIT = """
select count(*) from pg_locks
where not granted and relation = 'toolcrib.versions'::regclass
  and database = (select oid from pg_database where datname = current_database())
"""


@pytest.fixture
def servers(tmp_path: Path, urls: DatabaseUrls) -> Iterator[tuple[Server, Server]]:
    """Two processes of one node, not started yet."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with Server(tmp_path / "first", urls) as first, Server(tmp_path / "second", urls) as second:
        # Sealed so rarely that the server is not stopped while its sealer has a lock.
        first.environment |= {
            "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
            "TOOLCRIB_AUDIT_SEAL_INTERVAL_SECONDS": "600",
        }
        second.environment = first.environment | {"TOOLCRIB_HEARTBEAT_LEASE_SECONDS": "2"}
        yield first, second


class Script:
    """A model whose responses depend only on the request, since a busy machine may cause extra takeovers.

    Only the first request for its text is held in the middle of the response.
    """

    def __init__(self) -> None:
        self.speaks = asyncio.Event()
        self.finish = asyncio.Event()

    def answer(self, request: Received) -> Answer:
        if "messages" not in request.body:
            return plain(200, {"object": "list", "data": []})
        if refusal := strictness.openai_refusal(request.body):
            return plain(400, {"error": {"message": refusal}})
        match request.body["messages"][-1]["content"]:
            case "Run the command.":
                return said("", ("bash", {"command": COMMAND}))
            case "Speak." if not self.speaks.is_set():
                self.speaks.set()
                return said("Half", ("write", {"path": "/zombie.txt", "content": "x"}), held=self.finish)
            case "Speak.":
                return said("Said by the heir.")
            case "Are you there?":
                return said("Back again.")
        return said("The command has run.")


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def model(script: Script) -> AsyncIterator[ModelServer]:
    async with model_server(ModelServer(responder=script.answer)) as server:
        yield server


@pytest.mark.parametrize(
    "lease",
    [
        pytest.param("2", id="and knows that it slept", marks=pytest.mark.crash),
        # It assumes that no other process has taken over yet, and tries to commit its work.
        pytest.param("60", id="and does not know that it slept"),
    ],
)
async def test_work_of_a_stopped_server_is_done_once_by_the_other(
    servers: tuple[Server, Server], urls: DatabaseUrls, script: Script, model: ModelServer, lease: str
) -> None:
    zombie, heir = servers
    zombie.environment["TOOLCRIB_HEARTBEAT_LEASE_SECONDS"] = lease
    zombie.start()
    cluster = await ServerCluster.opened(zombie)
    project = zombie.data_dir / "workspaces" / cluster.workspace / "project"
    truth = Workspace(urls.owner, UUID(cluster.workspace), project)
    agent = await cluster.agent(zombie, model, RULES, provider="openai-compatible")
    running, speaking = [await cluster.session(zombie, agent) for _ in range(2)]

    await cluster.say(zombie, running, "Run the command.")
    await until(truth, "select count(*) from toolcrib.tool_calls where state = 'running'", 1)
    await cluster.say(zombie, speaking, "Speak.")
    async with asyncio.timeout(PATIENCE):
        await script.speaks.wait()
    zombie.freeze()

    await asyncio.to_thread(heir.start)
    await until(truth, "select count(*) from toolcrib.runs where end_reason = 'done'", 2)
    before = result(truth)
    if lease != "2":
        # Otherwise this one, whose lease is shorter, would go on ending the other's sessions between its heartbeats.
        heir.kill()
    script.finish.set()
    zombie.thaw()
    await noticed(zombie)

    # It works again, and nothing of its old work was added.
    await cluster.say(zombie, await cluster.session(zombie, agent), "Are you there?")
    await until(truth, "select count(*) from toolcrib.runs where end_reason = 'done'", 3)
    assert result(truth)[: len(before)] == before
    assert [row[1] for row in result(truth)[len(before) :]] == ["Are you there?", "Back again."]
    assert (project / "once.txt").read_text() == "once\n"
    assert len(truth.versions("/once.txt")) == 1
    assert not (project / "zombie.txt").exists()
    assert truth.rows("select tool, state from toolcrib.tool_calls") == [("bash", "done")]
    truth.assert_true()


async def test_locks_of_a_stopped_server_block_another_one_only_until_the_lease_ended(
    servers: tuple[Server, Server], urls: DatabaseUrls
) -> None:
    zombie, heir = servers
    zombie.environment["TOOLCRIB_HEARTBEAT_LEASE_SECONDS"] = "2"
    for server in servers:
        await asyncio.to_thread(server.start)
    cluster = await ServerCluster.opened(zombie)
    project = zombie.data_dir / "workspaces" / cluster.workspace / "project"
    truth = Workspace(urls.owner, UUID(cluster.workspace), project)
    async with await psycopg.AsyncConnection.connect(urls.owner) as blocker:
        await blocker.execute("lock table toolcrib.versions in share mode")
        lost = asyncio.create_task(write(zombie, cluster, "by the zombie"))
        await until(truth, WAITS_IN_COMMIT, 1)
        zombie.freeze()
    # The database ends the commit. Its session has the locks of the path, which is not on disk yet.

    async with asyncio.timeout(PATIENCE):
        # On a busy machine the first try may end with a conflict, after the time for which a statement waits.
        while (await write(heir, cluster, "by the heir")).status_code != 200:
            pass
    zombie.thaw()
    await lost
    await noticed(zombie)

    # It has not written its older content over the newer one.
    assert (project / "contested.txt").read_text() == "by the heir"
    assert len(truth.versions("/contested.txt")) == 2
    # The other one ends its sessions until its heartbeat is back. Then the next request gets new ones.
    await until(truth, ALIVE, 2)
    assert (await write(zombie, cluster, "later")).status_code == 200
    truth.assert_true()


async def write(server: Server, cluster: ServerCluster, content: str) -> httpx2.Response:
    async with client_of(server, cluster.token) as http:
        call = {"tool": "write", "args": {"path": "/contested.txt", "content": content, "overwrite": True}}
        return await http.post(cluster.at("tools"), json=call)


def result(truth: Workspace) -> list[tuple[Any, ...]]:
    """Return the messages of the sessions, in the order in which they were written."""
    return truth.rows("select role, content, metadata from toolcrib.messages order by created_at, position")


async def until(truth: Workspace, query: str, expected: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(truth.rows, query) != [(expected,)]:
            pass


async def noticed(server: Server) -> None:
    """Check that its runs belong to another process by now: it released them, or its commit failed."""
    async with asyncio.timeout(PATIENCE):
        while not NOTICES.search(await asyncio.to_thread(server.logged)):
            pass
