"""Threads of tools: how many there may be."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from toolcrib.core.errors import Overloaded
from toolcrib.runtime.tool_threads import AT_ONCE, FOR_EACH_FREE, in_tool_thread


async def test_threads_that_cannot_be_started_take_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", fail)
        for _ in range(AT_ONCE + 1):
            with pytest.raises(RuntimeError, match="new thread"):
                await in_tool_thread(lambda: 1, owner="a")

    assert await in_tool_thread(lambda: 1, owner="a") == 1


async def test_one_workspace_gets_most_threads_and_leaves_some_for_the_others() -> None:
    async with hung("greedy") as greedy:
        assert await in_tool_thread(lambda: 1, owner="modest") == 1
        with pytest.raises(Overloaded, match=f"{greedy} of them of this workspace"):
            await in_tool_thread(lambda: 1, owner="greedy")

    assert greedy == AT_ONCE * FOR_EACH_FREE // (FOR_EACH_FREE + 1)
    assert await in_tool_thread(lambda: 1, owner="greedy") == 1


async def test_threads_that_are_left_are_shared_again() -> None:
    async with hung("first") as first, hung("second") as second, hung("third") as third:
        assert first > second > third > 0
        assert first + second + third < AT_ONCE
        assert await in_tool_thread(lambda: 1, owner="fourth") == 1
        with pytest.raises(Overloaded, match="free threads are for other workspaces"):
            await in_tool_thread(lambda: 1, owner="third")


async def test_workspace_that_was_idle_gets_its_share_when_calls_end() -> None:
    async with hung("second") as second, hung("first") as first:
        assert first < second, "it came later"
    async with hung("first") as first, hung("second") as later:
        assert first > later, "the order decides, not the name"


@asynccontextmanager
async def hung(owner: str) -> AsyncIterator[int]:
    """Calls of one workspace that do not end, as many as it may have. Yields their number."""
    end = threading.Event()
    calls = [asyncio.create_task(in_tool_thread(end.wait, owner=owner)) for _ in range(2 * AT_ONCE)]
    try:
        # Those that are rejected end at once.
        _, running = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        yield len(running)
    finally:
        end.set()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert outcomes.count(True) == len(running)
        assert all(isinstance(one, Overloaded) for one in outcomes if one is not True)
