"""Limits of a credential: all processes together keep to them, also when one of them is killed."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.databases import DatabaseUrls
from tests.fakes import wires
from tests.fakes.model_server import KEY, Answer, ModelServer, Received, model_server, plain
from tests.fakes.scripted_turns import Scene
from tests.faults.cluster import ServerCluster
from tests.faults.consistency_check import Workspace
from tests.faults.processes import run_command
from tests.faults.server import Server
from tests.wait_until import PATIENCE
from toolcrib.core.model_stream import FinishReason

PROVIDER = "openai-compatible"
RULES = "provider: openai-compatible\nmodel: fake\ncontext_window: 100000\n"


@dataclass
class CountingModel(ModelServer):
    """Rejects more requests at once than ``most``, as a provider with such a limit does, and answers when told to."""

    most: int = 2
    # The messages that it works on, in the order of their requests, and what it has rejected.
    at_work: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    _ends: dict[str, asyncio.Event] = field(default_factory=dict)
    _changes: asyncio.Condition = field(default_factory=asyncio.Condition)

    def at_work_again(self, attempts: Mapping[str, int]) -> list[str]:
        """Return those of these messages that it works on, at the given attempt."""
        return [text for text in self.at_work if self.begun.count(text) == attempts.get(text)]

    async def changed(self) -> None:
        """Wait until a request begins or ends."""
        async with self._changes:
            await self._changes.wait()

    async def _notify(self) -> None:
        async with self._changes:
            self._changes.notify_all()

    def finish(self, text: str) -> None:
        self._ends[text].set()

    async def _write(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        asked = self.received[-1].body
        if "messages" not in asked:
            return await super()._write(answer, reader, writer)
        text = str(asked["messages"][-1]["content"])
        if len(self.at_work) >= self.most:
            self.rejected.append(text)
            return await super()._write(plain(429, {"error": {"message": "Too many."}}), reader, writer)
        self.at_work.append(text)
        self.begun.append(text)
        end = self._ends[text] = asyncio.Event()
        await self._notify()
        ended, gone = asyncio.ensure_future(end.wait()), asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([ended, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Before the answer: the client may send its next request as soon as it has it.
            self.at_work.remove(text)
            ended.cancel()
            await self._notify()
        if gone.done():
            return False
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        return await super()._write(answer, reader, writer)


def answer(request: Received) -> Answer:
    assert request.headers["authorization"] == f"Bearer {KEY}"
    if "messages" not in request.body:
        return plain(200, {"object": "list", "data": []})
    return Answer(tuple(wires.chat_completions(Scene(text="Done.", reason=FinishReason.STOP), "fake")))


@pytest.fixture
async def model() -> AsyncIterator[CountingModel]:
    counting = CountingModel(responder=answer)
    async with model_server(counting):
        yield counting


@pytest.fixture
def servers(tmp_path: Path, urls: DatabaseUrls) -> Iterator[list[Server]]:
    """Two processes of one node."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(Server(tmp_path, urls)) for _ in range(2))
        first.environment |= {
            "TOOLCRIB_HEARTBEAT_LEASE_SECONDS": "2",
            "TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*",
            "TOOLCRIB_AUDIT_SEAL_INTERVAL_SECONDS": "600",
        }
        second.environment = first.environment
        first.start()
        second.start()
        yield [first, second]


async def test_two_processes_keep_to_the_limit_together_and_workspaces_take_turns(
    servers: list[Server], urls: DatabaseUrls, model: CountingModel, tmp_path: Path
) -> None:
    cluster = await ServerCluster.opened(servers[0])
    agent = await cluster.agent(servers[0], model, RULES, provider=PROVIDER)
    limited = await limit(servers[0], cluster, tmp_path, "--at-once", "2")
    runs = [await send(cluster, servers[number % 2], agent, f"one {number}") for number in range(5)]
    await until(model, lambda: len(model.at_work) == 2)
    waiting = [await state_of(cluster, servers[0], run, "credential") for run in runs[2:]]
    # A run of another workspace comes before those of the first one that wait already.
    other = ServerCluster(cluster.token, (await cluster.send(servers[1], "POST", "/workspaces", {"name": "b"}))["id"])
    elsewhere = await other.send(servers[1], "POST", other.at("agents"), {"name": "b", "definition": RULES})
    late = await send(other, servers[1], elsewhere["id"], "two 0")
    await state_of(other, servers[1], late, "credential")
    delays = [await next_after(model, model.at_work[0]) for _ in range(4)]
    for text in list(model.at_work):
        model.finish(text)
    for run in runs:
        await ended(cluster, servers[1], run)
    await ended(other, servers[0], late)

    assert "2 at once" in limited
    assert [run["state"] for run in waiting] == ["ready"] * 3
    assert model.rejected == []
    assert model.begun[2] == "two 0"
    assert sorted(model.begun) == [*(f"one {number}" for number in range(5)), "two 0"]
    # The bound is one second; the rest is for a busy machine.
    assert max(delays) < PATIENCE / 4
    assert rows(urls, "select count(*) from toolcrib.model_slots") == [(0,)]
    assert rows(urls, "select held from toolcrib.model_lanes") == [(0,)]


@pytest.mark.long
async def test_slots_of_a_killed_process_come_free(
    servers: list[Server], urls: DatabaseUrls, model: CountingModel, tmp_path: Path
) -> None:
    first, second = servers
    cluster = await ServerCluster.opened(first)
    agent = await cluster.agent(first, model, RULES, provider=PROVIDER)
    await limit(first, cluster, tmp_path, "--at-once", "2")
    held = [await send(cluster, first, agent, f"held {number}") for number in range(2)]
    await until(model, lambda: len(model.at_work) == 2)
    holders = rows(urls, "select distinct process_id from toolcrib.model_slots")
    waiting = await send(cluster, second, agent, "waiting")
    await state_of(cluster, second, waiting, "credential")

    for server in servers:
        server.kill()
    await asyncio.to_thread(second.start)
    # What the dead processes held is taken up again, and what waited comes after it.
    unfinished = {"held 0": 2, "held 1": 2, "waiting": 1}
    while unfinished:
        await until(model, lambda: bool(model.at_work_again(unfinished)))
        for text in model.at_work_again(unfinished):
            model.finish(text)
            del unfinished[text]
    for run in (*held, waiting):
        await ended(cluster, second, run)

    assert len(holders) >= 1
    assert model.rejected == []
    assert rows(urls, "select count(*) from toolcrib.model_slots") == [(0,)]


async def limit(server: Server, cluster: ServerCluster, scratch: Path, *options: str) -> str:
    environment = {"PATH": server.environment["PATH"], "HOME": str(scratch), "TOOLCRIB_TOKEN": cluster.token}
    at = ("--server", server.origin, "--workspace", cluster.workspace)
    command = ("models", *at, "limit", PROVIDER, *options)
    done = await asyncio.to_thread(run_command, *command, environment=environment, scratch=scratch)
    assert done.status == 0, done.said
    shown = await cluster.send(server, "GET", "/credentials")
    assert shown["items"][0]["at_once"] == 2, json.dumps(shown)
    return done.said


async def send(cluster: ServerCluster, server: Server, agent: str, text: str) -> str:
    return await cluster.say(server, await cluster.session(server, agent), text)


async def next_after(model: CountingModel, text: str) -> float:
    """End a request. Returns after how many seconds the next one began."""
    begun, since = len(model.begun), time.monotonic()
    model.finish(text)
    await until(model, lambda: len(model.begun) > begun)
    return time.monotonic() - since


async def state_of(cluster: ServerCluster, server: Server, run: str, waits_for: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while True:
            found: dict[str, Any] = await cluster.send(server, "GET", cluster.at(f"runs/{run}"))
            if found["waits_for"] == waits_for:
                return found


async def ended(cluster: ServerCluster, server: Server, run: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while (found := await cluster.send(server, "GET", cluster.at(f"runs/{run}")))["state"] != "ended":
            pass
    assert found["end_reason"] == "done", found


async def until(model: CountingModel, is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():
            await model.changed()


def rows(urls: DatabaseUrls, query: str) -> list[tuple[Any, ...]]:
    return Workspace(urls.owner, UUID(int=0), Path("/dev/null")).rows(query)
