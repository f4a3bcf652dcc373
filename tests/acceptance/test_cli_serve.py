"""``toolcrib serve``, as a process manager runs it."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from tests.databases import DatabaseUrls, migrated_database, urls_of
from tests.fakes.model_server import Answer, ModelServer, Received, model_server, plain
from tests.faults.cluster import ServerCluster
from tests.faults.scripted import said
from tests.faults.server import Server
from tests.wait_until import PATIENCE

RULES = """
provider: openai-compatible
model: fake
trust: autonomous
tool_permissions: {write: {allowed: true}}
"""


@pytest.fixture
def urls() -> Iterator[DatabaseUrls]:
    """A database for one test: its audit log is verified, and its processes are counted."""
    with migrated_database() as name:
        yield urls_of(name)


@pytest.fixture
def server(tmp_path: Path, urls: DatabaseUrls) -> Iterator[Server]:
    """A server that is not started yet. It seals only when it starts and when it ends."""
    with Server(tmp_path, urls) as server:
        server.environment |= {
            "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
            "TOOLCRIB_AUDIT_SEAL_INTERVAL_SECONDS": "6000",
            "TOOLCRIB_DRAIN_SECONDS": str(PATIENCE),
        }
        yield server


class Script:
    """A model that holds its first response to "Write it." until ``finish`` is set."""

    def __init__(self) -> None:
        self.speaks = asyncio.Event()
        self.finish = asyncio.Event()
        self.asked: list[str] = []

    def answer(self, request: Received) -> Answer:
        if "messages" not in request.body:
            return plain(200, {"object": "list", "data": []})
        last = request.body["messages"][-1]
        self.asked.append(last["content"] if last["role"] == "user" else "result")
        if last["role"] == "user" and last["content"] == "Write it.":
            held = None if self.speaks.is_set() else self.finish
            self.speaks.set()
            return said("I will.", ("write", {"path": "/a.txt", "content": "a"}), held=held)
        return said("Done.")


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def model(script: Script) -> AsyncIterator[ModelServer]:
    async with model_server(ModelServer(responder=script.answer)) as serving:
        yield serving


async def test_sigterm_lets_the_turn_finish_and_the_next_server_continues(
    server: Server, urls: DatabaseUrls, script: Script, model: ModelServer
) -> None:
    cluster = await speaking(server, script, model)
    [agent] = (await cluster.send(server, "GET", cluster.at("agents")))["items"]
    later = await cluster.session(server, agent["id"])

    server.signal(signal.SIGTERM)
    await refuses_to_be_ready(server)
    assert status(server, "/livez") == 200
    await cluster.say(server, later, "Hello.")
    script.finish.set()
    assert await asyncio.to_thread(server.await_death) == 0, server.logged()

    # The turn is committed. Its call and the new run are left to the next server.
    assert script.asked == ["Write it."]
    assert rows(urls, "select role, content from toolcrib.messages where role = 'assistant'") == [
        ("assistant", "I will.")
    ]
    assert rows(urls, "select state, worker_id, attempts from toolcrib.runs") == [("ready", None, 0)] * 2
    assert_left_in_order(server, urls)

    await asyncio.to_thread(server.start)
    await until_ended(urls, 2)
    assert sorted(script.asked) == ["Hello.", "Write it.", "result"]
    assert rows(urls, "select tool, state from toolcrib.tool_calls") == [("write", "done")]


@pytest.mark.long
async def test_turn_that_takes_longer_than_the_limit_is_released_and_asked_again(
    server: Server, urls: DatabaseUrls, script: Script, model: ModelServer
) -> None:
    server.environment["TOOLCRIB_DRAIN_SECONDS"] = "1"
    await speaking(server, script, model)

    server.signal(signal.SIGTERM)
    assert await asyncio.to_thread(server.await_death) == 0, server.logged()

    assert rows(urls, "select state, worker_id, attempts from toolcrib.runs") == [("ready", None, 0)]
    assert_left_in_order(server, urls)

    await asyncio.to_thread(server.start)
    await until_ended(urls, 1)
    assert script.asked == ["Write it.", "Write it.", "result"]
    assert rows(urls, "select role, content from toolcrib.messages order by position") == [
        ("user", "Write it."),
        ("assistant", "I will."),
        ("assistant", "Done."),
    ]


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGTERM, 0), pytest.param(signal.SIGINT, 130, marks=pytest.mark.long)]
)
async def test_second_signal_ends_the_server_at_once(
    server: Server, urls: DatabaseUrls, script: Script, model: ModelServer, number: signal.Signals, expected: int
) -> None:
    await speaking(server, script, model)

    server.signal(number)
    await refuses_to_be_ready(server)
    server.signal(number)

    assert await asyncio.to_thread(server.await_death) == expected, server.logged()
    assert rows(urls, "select state, worker_id from toolcrib.runs") == [("ready", None)]
    assert_left_in_order(server, urls)


async def test_open_event_stream_ends_with_the_server(server: Server, script: Script, model: ModelServer) -> None:
    cluster = await speaking(server, script, model)
    [session] = (await cluster.send(server, "GET", cluster.at("sessions")))["items"]
    url = f"{server.origin}/api/v1{cluster.at('sessions')}/{session['id']}/events/stream"
    headers = {"Authorization": f"Bearer {cluster.token}"}
    async with (
        httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as http,
        http.stream("GET", url, headers=headers) as stream,
    ):
        server.signal(signal.SIGINT)
        script.finish.set()
        text = (await stream.aread()).decode()

    assert "I will." in text
    assert await asyncio.to_thread(server.await_death) == 0, server.logged()


async def speaking(server: Server, script: Script, model: ModelServer) -> ServerCluster:
    """Start the server with a run in the middle of its model's turn."""
    await asyncio.to_thread(server.start)
    cluster = await ServerCluster.opened(server)
    agent = await cluster.agent(server, model, RULES, provider="openai-compatible")
    await cluster.say(server, await cluster.session(server, agent), "Write it.")
    async with asyncio.timeout(PATIENCE):
        await script.speaks.wait()
    return cluster


async def refuses_to_be_ready(server: Server) -> None:
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(status, server, "/readyz") != 503:
            pass


def status(server: Server, path: str) -> int:
    return httpx2.get(f"{server.origin}{path}", trust_env=False).status_code


def assert_left_in_order(server: Server, urls: DatabaseUrls) -> None:
    assert rows(urls, "select id from toolcrib.server_processes") == []
    verified = server.command("audit", "verify", "--json")
    assert verified.returncode == 0, verified.stderr
    assert json.loads(verified.stdout)["unsealed_records"] == 0
    assert "Traceback" not in server.logged()


async def until_ended(urls: DatabaseUrls, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(rows, urls, "select end_reason from toolcrib.runs") != [("done",)] * count:
            pass


def rows(urls: DatabaseUrls, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(urls.owner) as connection:
        return connection.execute(query).fetchall()
