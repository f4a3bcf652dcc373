"""A home that nobody hears from: calls at the other node are answered in time, and no acknowledged write is lost."""

import asyncio
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.databases import DatabaseUrls
from tests.faults.database_server import CuttableProxy
from tests.faults.node_pair import PairedWorkspace, node_pair, workspace_of_first
from tests.faults.server import Server
from tests.wait_until import PATIENCE

LEASE = 4.0
WRITERS = 8
# What the other node may need after the lease until it has taken the workspace over, and serves it.
WITHIN = LEASE + 5.0
# A busy machine needs this many times longer than for the same calls before the fault.
BUSY = 10


@pytest.fixture
def proxy(urls: DatabaseUrls) -> Iterator[CuttableProxy]:
    """The only way from the first node to the database."""
    made = CuttableProxy(int(conninfo_to_dict(urls.owner)["port"] or 0))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def servers(tmp_path: Path, urls: DatabaseUrls, proxy: CuttableProxy) -> Iterator[tuple[Server, Server]]:
    def through_proxy(url: str) -> str:
        return re.sub(r"@[^/]+/", f"@127.0.0.1:{proxy.port}/", url)

    given = {"TOOLCRIB_HEARTBEAT_LEASE_SECONDS": str(LEASE), "TOOLCRIB_TAKE_OVER_HOMES": "true"}
    first_urls = replace(urls, app=through_proxy(urls.app), system=through_proxy(urls.system))
    with node_pair(tmp_path, urls, first_urls=first_urls, **given) as pair:
        yield pair


@pytest.fixture
async def shared(servers: tuple[Server, Server]) -> PairedWorkspace:
    return await workspace_of_first(*servers)


@pytest.fixture
async def limit(shared: PairedWorkspace) -> float:
    """The seconds within which each call is answered."""
    began = time.monotonic()
    await asyncio.gather(*(until_done(shared, "write", path=f"/{n}.txt", content="before\n") for n in range(WRITERS)))
    return WITHIN + BUSY * (time.monotonic() - began)


@dataclass(frozen=True)
class Answered:
    """The answers to a call that was repeated until it succeeded, and the longest time that one took."""

    answers: list[httpx2.Response]
    slowest: float

    def assert_denied_until_done(self) -> None:
        """Check that all answers but the last say that nothing was done."""
        for answer in self.answers[:-1]:
            told = (answer.status_code, answer.json()["code"])
            assert told in ((503, "UNAVAILABLE"), (409, "INTERRUPTED")), answer.text


async def until_done(shared: PairedWorkspace, tool: str, /, *, at: Server | None = None, **arguments: str) -> Answered:
    """Repeat a call, at the second node or another, until it succeeds."""
    answers: list[httpx2.Response] = []
    slowest = 0.0
    async with asyncio.timeout(PATIENCE):
        while not answers or answers[-1].status_code != 200:
            began = time.monotonic()
            answers.append(await shared.answer(tool, at=at, **arguments))
            slowest = max(slowest, time.monotonic() - began)
    return Answered(answers, slowest)


def history(urls: DatabaseUrls) -> dict[str, int]:
    """How many versions each file has."""
    with psycopg.connect(urls.owner) as database:
        rows = database.execute(
            "select f.path, count(*) from toolcrib.files f join toolcrib.versions v on v.file_id = f.id "
            "where f.path like '%.txt' group by f.path"
        )
        return dict(rows.fetchall())


def home_of(urls: DatabaseUrls, shared: PairedWorkspace) -> str:
    with psycopg.connect(urls.owner) as database:
        row = database.execute("select home_node from toolcrib.workspaces where id = %s", (shared.workspace,))
        return str(row.fetchall()[0][0])


@pytest.mark.long
async def test_home_without_the_database_keeps_nobody_waiting_until_it_is_joined_again(
    shared: PairedWorkspace, urls: DatabaseUrls, proxy: CuttableProxy, limit: float
) -> None:
    """The other node still reaches it, and it answers there."""
    before = await asyncio.to_thread(history, urls)
    proxy.block()
    read, wrote = await asyncio.gather(
        until_done(shared, "read", path="/0.txt"),
        until_done(shared, "write", path="/cut-off.txt", content="cut off\n"),
    )
    # Here it is still cut off, so no answer waited for the end of that.
    new_home = await asyncio.to_thread(home_of, urls, shared)
    proxy.unblock()

    for call in (read, wrote):
        call.assert_denied_until_done()
        assert call.slowest < limit
    assert new_home == "second"
    # The old home is a node like any other again, and has added nothing of what it was asked for.
    seen = await until_done(shared, "read", path="/cut-off.txt", at=shared.first)
    assert seen.answers[-1].json()["result"]["content"] == "cut off\n"
    assert await asyncio.to_thread(history, urls) == before | {"/cut-off.txt": 1}


async def test_writes_while_the_home_is_frozen_succeed_after_the_take_over_and_none_is_lost(
    shared: PairedWorkspace, urls: DatabaseUrls, limit: float
) -> None:
    before = await asyncio.to_thread(history, urls)
    shared.first.freeze()
    listing = asyncio.create_task(sessions_at_the_second(shared))
    written = await asyncio.gather(
        *(until_done(shared, "write", path=f"/w/{number}.txt", content=f"{number}\n") for number in range(WRITERS))
    )
    sessions = await listing
    new_home = await asyncio.to_thread(home_of, urls, shared)
    during = await asyncio.to_thread(history, urls)
    shared.first.thaw()

    for write in written:
        write.assert_denied_until_done()
        assert write.slowest < limit
    # The home was not taken over yet, and acknowledged nothing.
    assert any(len(write.answers) > 1 for write in written)
    # What needs no files does not need the home.
    assert sessions.status_code == 200
    assert new_home == "second"
    assert during == before | {f"/w/{number}.txt": 1 for number in range(WRITERS)}
    # What the old home does when it wakes adds nothing and takes nothing away.
    await until_done(shared, "read", path="/w/0.txt", at=shared.first)
    assert await asyncio.to_thread(history, urls) == during
    for number in range(WRITERS):
        assert (await shared.result("read", path=f"/w/{number}.txt"))["content"] == f"{number}\n"


async def sessions_at_the_second(shared: PairedWorkspace) -> httpx2.Response:
    async with shared.client() as http:
        return await http.get(f"{shared.url}/sessions")
