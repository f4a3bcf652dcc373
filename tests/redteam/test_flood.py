"""Two thousand requests at once: the excess is rejected at once, others are served, and the server stays small."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from tests.faults.server import Server
from tests.redteam.visitors import Visitor, visitor
from tests.wait_until import PATIENCE

pytestmark = [pytest.mark.req("SY-5", part="overload"), pytest.mark.redteam]

REQUESTS = 2_000
# What one account's flood may add to the memory of the server, in megabytes: 100 kB for each request.
MOST_GROWTH = 200


async def test_2000_requests_of_one_account_delay_no_other_and_fail_in_no_other_way(served: Server) -> None:
    async with visitor(served) as stranger, visitor(served) as person:
        for one in (stranger, person):
            await one.result("write", path="/a.txt", content="a\n")
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
    assert after - before < MOST_GROWTH, (before, after)


async def status_of(stranger: Visitor, number: int) -> tuple[int, str | None]:
    """Send one request of the flood on a connection of its own; half of them are calls, half of them other routes."""
    limits = httpx2.Limits(max_connections=1)
    base, headers = str(stranger.client.base_url), dict(stranger.client.headers)
    async with httpx2.AsyncClient(
        base_url=base, headers=headers, timeout=PATIENCE, trust_env=False, limits=limits
    ) as http:
        if number % 2:
            answer = await http.post(
                f"/workspaces/{stranger.workspace_id}/tools", json={"tool": "read", "args": {"path": "/a.txt"}}
            )
        else:
            answer = await http.get(f"/workspaces/{stranger.workspace_id}/sessions")
    if answer.status_code == 503:
        assert int(answer.headers["retry-after"]) >= 1
    return answer.status_code, answer.json().get("code") if answer.is_error else None


def resident_megabytes(pid: int) -> float:
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")
    )
    return int(fields["VmRSS"].split()[0]) / 1_000
