"""One account that requests everything: calls of others do not wait for it, and its excess is rejected."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from tests.faults.server import Server
from tests.redteam.visitors import visitor
from tests.wait_until import PATIENCE

# Longer than any test waits.
SLEEP = f"sleep {PATIENCE:.0f}"


@asynccontextmanager
async def at_work(calls: list[Awaitable[Any]]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_sixteen_sleeps_of_a_stranger_delay_no_other_account(served: Server) -> None:
    async with visitor(served) as stranger, visitor(served) as person:
        workspaces = [stranger, *[await stranger.another_workspace() for _ in range(7)]]
        async with at_work([one.call("bash", command=SLEEP) for one in workspaces for _ in range(2)]) as sleeping:
            answers = [await person.result("bash", command="true") for _ in range(3)]

            assert not any(task.done() for task in sleeping)
    assert [answer["metadata"]["exitCode"] for answer in answers] == [0, 0, 0]


async def test_excess_commands_are_rejected_with_retry_after(served: Server) -> None:
    async with (
        visitor(served) as stranger,
        visitor(served) as person,
        at_work([stranger.call("bash", command=SLEEP) for _ in range(60)]) as sleeping,
    ):
        refused = await next(asyncio.as_completed(sleeping))
        assert (await person.result("bash", command="true"))["metadata"]["exitCode"] == 0

    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    assert refused.json()["code"] == "OVERLOADED"
    assert "Too many commands are queued" in refused.json()["error"]
