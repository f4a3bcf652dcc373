"""``kill -9`` at every row of a request with an ``Idempotency-Key``: its retries, at any node, have one effect."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, LiteralString

import httpx2
import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.faults.cluster import ServerCluster
from tests.faults.node_clients import pause
from tests.faults.node_pair import node_pair
from tests.faults.server import Server, client_of
from tests.faults.write_points import WritePoints

RULES = "provider: openai-compatible\nmodel: fake\ncontext_window: 100000"
TABLES = (
    "toolcrib.idempotency_keys",
    "toolcrib.sessions",
    "toolcrib.tool_calls",
    "toolcrib.change_sets",
    "toolcrib.members",
    "toolcrib.api_keys",
)
# More than any of the requests has.
MOST_POINTS = 12
LOOKS = 1_000


@pytest.fixture
def pair(tmp_path: Path, urls: DatabaseUrls) -> Iterator[tuple[Server, Server]]:
    # A killed node's requests are free after its lease.
    with node_pair(tmp_path, urls, TOOLCRIB_HEARTBEAT_LEASE_SECONDS="2") as both:
        yield both


@pytest.fixture
async def owner(urls: DatabaseUrls) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(urls.owner, autocommit=True) as connection:
        yield connection


class Client:
    """Sends one request with one key, to whatever server answers, until it has an answer."""

    def __init__(self, cluster: ServerCluster, path: str, body: Any) -> None:
        self._cluster = cluster
        self._path = path
        self._body = body
        self._key = {"Idempotency-Key": secrets.token_hex(16)}

    async def send(self, server: Server) -> httpx2.Response:
        async with client_of(server, self._cluster.token) as http:
            return await http.post(self._path, json=self._body, headers=self._key)

    async def retried(self, server: Server) -> httpx2.Response:
        for _ in range(LOOKS):
            answer = await self.send(server)
            if answer.status_code != 503 and answer.json().get("code") != "IDEMPOTENCY_KEY_IN_USE":
                return answer
            await pause(0.1)
        raise AssertionError("The key is still in use.")


async def effects(owner: psycopg.AsyncConnection, query: LiteralString) -> int:
    [(count,)] = await (await owner.execute(query)).fetchall()
    return int(count)


async def killed_at(points: WritePoints, number: int, client: Client, server: Server, *, commits: bool) -> bool:
    """Send the request, and kill the server at this row. Returns False if it was answered before."""
    await points.count_to(number)
    sent = asyncio.create_task(client.send(server))
    for _ in range(LOOKS):
        if await points.reached() is not None:
            is_answered = sent.done()
            await points.kill(server, commits=commits)
            with suppress(httpx2.HTTPError):
                await sent
            return not is_answered
        if sent.done():
            assert (await sent).is_success
            return False
        await pause(0.02)
    raise AssertionError("The request neither stops nor ends.")


# What is sent, where its effects are counted, and whether a retry always gets the answer.
REQUESTS: dict[str, tuple[str, Any, LiteralString, bool]] = {
    "tool call": (
        "tools",
        {"tool": "write", "args": {"path": "/{n}.txt", "content": "once\n"}},
        "select count(*) from toolcrib.change_sets",
        True,
    ),
    "message": ("sessions/{session}/messages", {"text": "Hello {n}"}, "select count(*) from toolcrib.runs", True),
    "session": ("sessions", {"title": "{n}"}, "select count(*) from toolcrib.sessions", True),
    "agent's key": ("agents/{agent}/keys", {"name": "k{n}"}, "select count(*) from toolcrib.api_keys", False),
}


@pytest.mark.gate_cases(2)
@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize(
    "commits", [pytest.param(True, id="committed", marks=pytest.mark.crash), pytest.param(False, id="rolled back")]
)
async def test_request_killed_at_any_row_has_one_effect_after_its_retries(
    pair: tuple[Server, Server], owner: psycopg.AsyncConnection, name: str, *, commits: bool
) -> None:
    first, second = pair
    cluster = await ServerCluster.opened(first)
    agent = str((await cluster.send(first, "POST", cluster.at("agents"), {"name": "a", "definition": RULES}))["id"])
    session = await cluster.session(first, agent)
    path, body, query, is_recovered = REQUESTS[name]
    # A run goes on after its request was answered, and its rows are no points of the request.
    points = await WritePoints.made(owner, *(TABLES[:1] if name == "message" else TABLES))
    lost = 0
    for number in range(1, MOST_POINTS + 1):
        before = await effects(owner, query)
        at = cluster.at(path.replace("{session}", session).replace("{agent}", agent))
        client = Client(cluster, at, _numbered(body, number))
        if not await killed_at(points, number, client, first, commits=commits):
            break
        await points.count_to(0)
        if name == "tool call":
            # Only the first node has the files.
            first.start_and_recover()
        # Two clients, at both nodes, at once.
        live = [second, first] if name == "tool call" else [second, second]
        answers = await asyncio.gather(*(client.retried(server) for server in live))
        if name != "tool call":
            first.start()
        last = await client.retried(first)

        assert await effects(owner, query) == before + 1, f"killed at row {number}: {last.text}"
        for answer in (*answers, last):
            if is_recovered:
                assert answer.is_success, f"killed at row {number}: {answer.text}"
                assert _same(answer.json()) == _same(last.json())
            elif not answer.is_success:
                assert (answer.status_code, answer.json()["code"]) == (409, "IDEMPOTENCY_ANSWER_LOST")
                lost += 1
    else:
        raise AssertionError(f"The request has more than {MOST_POINTS} rows.")
    assert number > 2, "No row was a point."
    # Only the last row is written after the effect, and it is a transaction of its own.
    assert is_recovered or lost or commits


async def test_two_clients_at_two_nodes_have_one_effect(
    pair: tuple[Server, Server], owner: psycopg.AsyncConnection
) -> None:
    cluster = await ServerCluster.opened(pair[0])
    for number in range(10):
        client = Client(cluster, cluster.at("tools"), _numbered(REQUESTS["tool call"][1], number))
        answers = await asyncio.gather(*(client.retried(server) for server in (*pair, *pair)))

        assert [answer.status_code for answer in answers] == [200] * 4
        assert len({answer.text for answer in answers}) == 1
    assert await effects(owner, "select count(*) from toolcrib.change_sets") == 10


def _numbered(body: Any, number: int) -> Any:
    if isinstance(body, dict):
        return {name: _numbered(value, number) for name, value in body.items()}
    return body.replace("{n}", str(number)) if isinstance(body, str) else body


def _same(answer: dict[str, Any]) -> Any:
    """What does not change: a run goes on, and a stored call has no metadata."""
    return answer.get("id") or answer["result"]
