"""Two thousand requests at once: the excess is rejected at once, others are served, and the server stays small."""

import asyncio
import json
import resource
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.faults.server import Server
from tests.redteam.visitors import Visitor, visitor
from tests.wait_until import PATIENCE
from toolcrib.api.connection_limits import raise_descriptor_limit

pytestmark = pytest.mark.redteam

REQUESTS = 2_000
# What one account's flood may add to the memory of the server, in megabytes: 100 kB for each request.
MOST_GROWTH = 200
# Of another account's read meanwhile. Behind the whole flood it would take several times as long.
SLOWEST_SECONDS = 3.0


@pytest.fixture(autouse=True)
def many_descriptors() -> Iterator[None]:
    """Let this process open as many connections as it may."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_descriptor_limit()
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_2000_requests_of_one_account_delay_no_other_and_fail_in_no_other_way(served: Server) -> None:
    async with visitor(served) as stranger, visitor(served) as person:
        for visiting in (stranger, person):
            await visiting.result("write", path="/a.txt", content="a\n")
        before = resident_megabytes(served.pid)
        flood = [asyncio.create_task(status_of(stranger, number)) for number in range(REQUESTS)]
        try:
            served_meanwhile = []
            while not all(one.done() for one in flood):
                began = time.monotonic()
                answer = await person.call("read", path="/a.txt")
                served_meanwhile.append((answer.status_code, time.monotonic() - began))
            statuses = Counter(await asyncio.gather(*flood))
        finally:
            for one in flood:
                one.cancel()
        after = resident_megabytes(served.pid)

    assert set(statuses) <= {(200, None), (503, "OVERLOADED")}, statuses
    assert statuses[200, None] > 0
    assert statuses[503, "OVERLOADED"] > 0, statuses
    assert {status for status, _ in served_meanwhile} == {200}
    assert max(seconds for _, seconds in served_meanwhile) < SLOWEST_SECONDS, served_meanwhile
    assert after - before < MOST_GROWTH, (before, after)


async def status_of(stranger: Visitor, number: int) -> tuple[int, str | None]:
    """Send one request of the flood on a connection of its own; half of them are calls, half of them other routes."""
    url = httpx2.URL(stranger.client.base_url)
    path = f"/api/v1/workspaces/{stranger.workspace_id}"
    body = json.dumps({"tool": "read", "args": {"path": "/a.txt"}}).encode() if number % 2 else b""
    head = (
        f"{'POST' if number % 2 else 'GET'} {path}/{'tools' if number % 2 else 'sessions'} HTTP/1.1\r\n"
        f"Host: localhost\r\nAuthorization: {stranger.client.headers['authorization']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    # From several addresses: one address may have a quarter of all connections that wait.
    reader, writer = await asyncio.open_connection(url.host, url.port, local_addr=(f"127.0.0.{number % 8 + 1}", 0))
    try:
        writer.write(head.encode() + body)
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()
    headers, _, content = answer.partition(b"\r\n\r\n")
    status = int(headers.split()[1])
    if status == 503:
        assert b"retry-after: 1" in headers.lower(), headers
    return status, None if status == 200 else json.loads(content)["code"]


def resident_megabytes(pid: int) -> float:
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")
    )
    return int(fields["VmRSS"].split()[0]) / 1_000
