"""A home that dies or freezes while it has forwarded calls: the answers are true, and nothing is done twice."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.faults.node_pair import PairedWorkspace, node_pair, workspace_of_first
from tests.faults.server import Server
from tests.wait_until import PATIENCE

LEASE = 4.0
WRITES = 60


@pytest.fixture
def servers(tmp_path: Path, urls: DatabaseUrls) -> Iterator[tuple[Server, Server]]:
    with node_pair(
        tmp_path, urls, TOOLCRIB_HEARTBEAT_LEASE_SECONDS=str(LEASE), TOOLCRIB_TAKE_OVER_HOMES="true"
    ) as pair:
        yield pair


@pytest.fixture
async def shared(servers: tuple[Server, Server]) -> PairedWorkspace:
    return await workspace_of_first(*servers)


def versions_of(urls: DatabaseUrls) -> dict[str, int]:
    """How many versions the history has of each written file."""
    with psycopg.connect(urls.owner) as database:
        rows = database.execute(
            "select f.path, count(*) from toolcrib.files f join toolcrib.versions v on v.file_id = f.id "
            "where f.path like '/w/%' group by f.path"
        )
        return dict(rows.fetchall())


async def settled(shared: PairedWorkspace, path: str) -> None:
    """Wait until the second node serves the workspace. Until then it says that it cannot, and when to retry."""
    async with asyncio.timeout(PATIENCE):
        while (answer := await shared.answer("read", path=path)).status_code != 200:
            assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE"), answer.text
            assert answer.headers["retry-after"] == "1"


async def test_writes_during_a_kill_of_the_home_are_answered_truly_and_done_once(
    shared: PairedWorkspace, urls: DatabaseUrls
) -> None:
    await shared.result("write", path="/before.txt", content="before\n")

    async def write(number: int) -> tuple[str, httpx2.Response]:
        path = f"/w/{number}.txt"
        answer = await shared.answer("write", path=path, content=f"{number}\n")
        if number == WRITES // 3:
            shared.first.kill()
        return path, answer

    answers = await asyncio.gather(*(write(number) for number in range(WRITES)))
    await settled(shared, "/before.txt")

    kept = versions_of(urls)
    for path, answer in answers:
        if answer.status_code == 200:
            assert kept[path] == 1
        else:
            assert answer.json()["code"] in ("UNAVAILABLE", "INTERRUPTED"), answer.text
            # What the client is told: nothing was changed, so it may call again.
            assert path not in kept
    assert any(answer.status_code == 200 for _, answer in answers)
    assert any(answer.status_code != 200 for _, answer in answers)
    repeated = [path for path, answer in answers if answer.status_code != 200]
    for path in repeated[:5]:
        await shared.result("write", path=path, content="again\n")
    assert all(count == 1 for count in versions_of(urls).values())


@pytest.mark.long
async def test_frozen_home_holds_nobody_up_and_does_nothing_when_it_wakes(
    shared: PairedWorkspace, urls: DatabaseUrls
) -> None:
    await shared.result("write", path="/w/before.txt", content="before\n")
    shared.first.freeze()
    began = time.monotonic()
    answer = await shared.answer("write", path="/w/frozen.txt", content="frozen\n")
    took = time.monotonic() - began
    shared.first.thaw()
    await settled(shared, "/w/before.txt")

    assert answer.status_code in (409, 503), answer.text
    assert answer.json()["code"] in ("INTERRUPTED", "UNAVAILABLE")
    assert took < LEASE + 30
    assert versions_of(urls) == {"/w/before.txt": 1}


async def test_calls_follow_a_workspace_that_moves(shared: PairedWorkspace) -> None:
    """Both nodes remember the old home, and neither answers with 409."""
    await shared.result("write", path="/a.txt", content="a\n")
    await shared.result("read", path="/a.txt", at=shared.first)
    assert shared.first.command("nodes", "drain", "first").returncode == 0
    moved = shared.second.data_dir / "workspaces" / str(shared.workspace) / "project" / "a.txt"
    async with asyncio.timeout(PATIENCE):
        while not moved.exists():
            for node in (shared.first, shared.second):
                answer = await shared.answer("read", path="/a.txt", at=node)
                assert answer.status_code in (200, 503), answer.text

    await shared.result("write", path="/b.txt", content="b\n", at=shared.first)
    assert (moved.parent / "b.txt").read_text() == "b\n"
    assert "b" in (await shared.result("read", path="/b.txt"))["content"]
