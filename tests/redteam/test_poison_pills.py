"""Poison pills: durable work that kills or freezes every server that runs it is abandoned, and nothing else is."""

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.databases import DatabaseUrls
from tests.fakes import wires
from tests.fakes.model_server import Answer, ModelServer, Received, model_server, plain
from tests.fakes.scripted_turns import Scene, SceneCall
from tests.faults.cluster import ServerCluster
from tests.faults.consistency_check import Workspace
from tests.faults.processes import run_command
from tests.faults.server import Server, client_of
from tests.wait_until import PATIENCE
from toolcrib.core.ids import new_id
from toolcrib.core.model_stream import FinishReason

ATTEMPTS = 3
PROGRAM = [sys.executable, "-m", "tests.redteam.poisoned_server"]
RULES = """
provider: openai-compatible
model: fake
trust: autonomous
context_window: 100000
tool_permissions: {write: {allowed: true}}
"""
GUIDED = "trust: guided\ntool_permissions: {write: {allowed: true}}"
GIVEN_UP = f"Failed after {ATTEMPTS} attempts, each of which stopped the server."


@pytest.fixture
def servers(tmp_path: Path, urls: DatabaseUrls) -> Iterator[tuple[Server, Server]]:
    """Two processes of one node, not started yet. Both can be poisoned."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with Server(tmp_path / "first", urls) as first, Server(tmp_path / "second", urls) as second:
        first.environment |= {
            "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
            "TOOLCRIB_AUDIT_SEAL_INTERVAL_SECONDS": "600",
            "TOOLCRIB_HEARTBEAT_LEASE_SECONDS": "2",
            "TOOLCRIB_MAX_ATTEMPTS": str(ATTEMPTS),
        }
        second.environment = first.environment
        first.program = second.program = PROGRAM
        yield first, second


@pytest.fixture
def server(servers: tuple[Server, Server]) -> Server:
    return servers[0]


class Script:
    """A model that writes the requested file, and then reports it. ``Think.`` blocks it until it is released."""

    def __init__(self) -> None:
        self.thought = asyncio.Event()

    def answer(self, request: Received) -> Answer:
        if "messages" not in request.body:
            return plain(200, {"object": "list", "data": []})
        last = request.body["messages"][-1]
        if last["role"] == "tool":
            return said("Written.")
        if last["content"] == "Think.":
            return said("Thought about it.", held=self.thought)
        return said("", ("write", {"path": last["content"], "content": "x"}))


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def model(script: Script) -> AsyncIterator[ModelServer]:
    async with model_server(ModelServer(responder=script.answer)) as server:
        yield server


@pytest.mark.long
async def test_run_that_kills_its_server_is_abandoned_and_a_concurrent_one_is_not(
    server: Server, urls: DatabaseUrls, script: Script, model: ModelServer, tmp_path: Path
) -> None:
    server.start()
    cluster = await ServerCluster.opened(server)
    agent = await cluster.agent(server, model, RULES, provider="openai-compatible")
    thinking, poisoned = [await cluster.session(server, agent) for _ in range(2)]
    innocent = await cluster.say(server, thinking, "Think.")
    await until(urls, "select count(*) from toolcrib.events where type = 'stream-start'", 1)
    poison = await say_and_die(cluster, server, poisoned, "/kill.txt")

    for _ in range(ATTEMPTS - 1):
        assert await dies_again(server) == -signal.SIGKILL
    await asyncio.to_thread(server.start)
    await until(urls, f"select count(*) from toolcrib.runs where id = '{poison}' and state = 'ended'", 1)
    script.thought.set()
    await until(urls, f"select count(*) from toolcrib.runs where id = '{innocent}' and end_reason = 'done'", 1)

    [(ending, error)] = rows(urls, f"select end_reason, error from toolcrib.runs where id = '{poison}'")
    assert (ending, error["code"]) == ("failed", "GIVEN_UP")
    assert error["message"].startswith(GIVEN_UP)
    # Subscribers of the session get the event, and a request for the call returns it.
    [(model_input,)] = rows(
        urls,
        f"select payload from toolcrib.events where type = 'run-state' and payload ->> 'runId' = '{poison}' "
        "order by seq desc limit 1",
    )
    assert model_input["error"] == error
    assert rows(urls, "select distinct state from toolcrib.tool_calls") == [("done",)]
    # REST and the command line show why it ended, and after how many attempts.
    run = await cluster.send(server, "GET", cluster.at(f"runs/{poison}"))
    environment = {"PATH": server.environment["PATH"], "HOME": str(tmp_path), "NO_COLOR": "1"}
    environment |= {"TOOLCRIB_SERVER": server.origin, "TOOLCRIB_TOKEN": cluster.token}
    environment |= {"TOOLCRIB_WORKSPACE": cluster.workspace}
    asked = ("runs", "show", poison)
    shown = await asyncio.to_thread(run_command, *asked, environment=environment, scratch=tmp_path)
    assert (run["end_reason"], run["error"]["code"], run["attempts"]) == ("failed", "GIVEN_UP", ATTEMPTS)
    assert run["error"]["message"].startswith(GIVEN_UP)
    assert shown.status == 0, shown.said
    assert f"error:     GIVEN_UP: {GIVEN_UP}" in shown.said
    assert f"attempts:  {ATTEMPTS}" in shown.said
    # The session works again.
    after = await cluster.say(server, poisoned, "/fine.txt")
    await until(urls, f"select count(*) from toolcrib.runs where id = '{after}' and end_reason = 'done'", 1)


@pytest.mark.redteam
async def test_run_that_freezes_every_process_that_takes_it_over_is_abandoned(
    servers: tuple[Server, Server], urls: DatabaseUrls, model: ModelServer
) -> None:
    first, second = servers
    first.start()
    cluster = await ServerCluster.opened(first)
    agent = await cluster.agent(first, model, RULES, provider="openai-compatible")
    run = await cluster.say(first, await cluster.session(first, agent), "/freeze.txt")

    await until(urls, attempts_of(run), 1)
    # The first hangs undetected: the second takes over when its lease has expired, and hangs as well.
    await asyncio.to_thread(second.start)
    await until(urls, attempts_of(run), 2)
    first.kill()
    await asyncio.to_thread(first.start)
    await until(urls, attempts_of(run), ATTEMPTS)
    second.kill()
    await asyncio.to_thread(second.start)
    await until(urls, f"select count(*) from toolcrib.runs where id = '{run}' and state = 'ended'", 1)

    assert rows(urls, "select end_reason, error ->> 'code' from toolcrib.runs") == [("failed", "GIVEN_UP")]


@pytest.mark.redteam
async def test_operator_who_kills_the_server_repeatedly_ends_no_run_that_makes_progress(
    server: Server, urls: DatabaseUrls, script: Script, model: ModelServer
) -> None:
    server.start()
    cluster = await ServerCluster.opened(server)
    agent = await cluster.agent(server, model, RULES, provider="openai-compatible")
    run = await cluster.say(server, await cluster.session(server, agent), "Think.")

    for number in range(1, ATTEMPTS + 2):
        await until(urls, "select count(*) from toolcrib.events where type = 'stream-start'", number)
        server.kill()
        await asyncio.to_thread(server.start)
    script.thought.set()

    await until(urls, f"select count(*) from toolcrib.runs where id = '{run}' and end_reason = 'done'", 1)


@pytest.mark.long
async def test_approved_call_that_kills_its_server_is_abandoned_and_concurrent_ones_are_executed(
    server: Server, urls: DatabaseUrls, tmp_path: Path
) -> None:
    server.start()
    cluster = await ServerCluster.opened(server)
    agent = await cluster.send(server, "POST", cluster.at("agents"), {"name": "a", "definition": GUIDED})
    key = (await cluster.send(server, "POST", cluster.at(f"agents/{agent['id']}/keys"), {"name": "k"}))["secret"]
    asked = {}
    async with client_of(server, key) as http:
        for path in ("/kill.txt", "/one.txt", "/two.txt"):
            model_input = (await http.post(cluster.at("tools"), json=write(path))).raise_for_status()
            asked[path] = model_input.json()["result"]

    # Decided while no server runs, and the poison first: all of them start in the process that it kills.
    server.kill()
    for one in asked.values():
        decided = ("approve", one["pause_id"], "--database", "--as", "ada@example.com", "--yes")
        done = await asyncio.to_thread(run_command, *decided, environment=server.environment, scratch=tmp_path)
        assert done.status == 0, done.said
    for _ in range(ATTEMPTS):
        assert await dies_again(server) == -signal.SIGKILL
    await asyncio.to_thread(server.start)
    await until(urls, "select count(*) from toolcrib.tool_calls where ended_at is null", 0)

    ended = {
        path: await cluster.send(server, "GET", cluster.at(f"calls/{one['call_id']}")) for path, one in asked.items()
    }
    assert [ended[path]["state"] for path in ("/one.txt", "/two.txt")] == ["done", "done"]
    assert ended["/kill.txt"]["state"] == "denied"
    assert ended["/kill.txt"]["error"]["code"] == "GIVEN_UP"
    assert ended["/kill.txt"]["error"]["message"].startswith(GIVEN_UP)
    truth = truth_of(server, cluster, urls)
    assert {row.path for row in truth.heads()} == {"/one.txt", "/two.txt"}
    truth.assert_true()


async def test_unwritable_workspace_does_not_stop_a_node_from_starting(server: Server, urls: DatabaseUrls) -> None:
    server.start()
    cluster = await ServerCluster.opened(server)
    project = server.data_dir / "workspaces" / cluster.workspace / "project"
    await cluster.send(server, "POST", cluster.at("tools"), write("/before.txt"))
    mode = stat.S_IMODE(project.stat().st_mode)
    project.chmod(0o500)
    try:
        async with client_of(server, cluster.token) as http:
            refused = await http.post(cluster.at("tools"), json=write("/after.txt"))
        assert refused.is_error
        assert await asyncio.to_thread(rows, urls, "select count(*) from toolcrib.pending_applies") == [(0,)]
        server.kill()
        await asyncio.to_thread(server.start)
        other = (await cluster.send(server, "POST", "/workspaces", {"name": "other"}))["id"]
        await cluster.send(server, "POST", f"/workspaces/{other}/tools", write("/other.txt"))
    finally:
        project.chmod(mode)

    # Once repaired, it can be used.
    await cluster.send(server, "POST", cluster.at("tools"), write("/after.txt"))
    read = await cluster.send(server, "POST", cluster.at("tools"), {"tool": "read", "args": {"path": "/after.txt"}})
    assert "x" in json.dumps(read)
    truth_of(server, cluster, urls).assert_true()


def write(path: str) -> dict[str, Any]:
    return {"tool": "write", "args": {"path": path, "content": "x"}}


def said(text: str, *calls: tuple[str, dict[str, Any]], held: asyncio.Event | None = None) -> Answer:
    scene = Scene(
        text=text,
        calls=tuple(SceneCall(f"call_{new_id()}", name, json.dumps(args)) for name, args in calls),
        reason=FinishReason.TOOL_CALLS if calls else FinishReason.STOP,
    )
    return Answer(tuple(wires.chat_completions(scene, "fake")), held=held)


async def say_and_die(cluster: ServerCluster, server: Server, session: str, text: str) -> str:
    """Return the id of the run that kills the server: it may be dead before it has responded."""
    run = await cluster.say(server, session, text)
    assert await asyncio.to_thread(server.await_death) == -signal.SIGKILL
    return run


async def dies_again(server: Server) -> int:
    await asyncio.to_thread(server.launch)
    return await asyncio.to_thread(server.await_death)


def attempts_of(run: str) -> str:
    return f"select attempts from toolcrib.runs where id = '{run}'"


def rows(urls: DatabaseUrls, query: str) -> list[tuple[Any, ...]]:
    return Workspace(urls.owner, UUID(int=0), Path(os.devnull)).rows(query)


def truth_of(server: Server, cluster: ServerCluster, urls: DatabaseUrls) -> Workspace:
    return Workspace(
        urls.owner, UUID(cluster.workspace), server.data_dir / "workspaces" / cluster.workspace / "project"
    )


async def until(urls: DatabaseUrls, query: str, expected: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(rows, urls, query) != [(expected,)]:
            pass
