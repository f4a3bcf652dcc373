"""Threads of tools: how many there may be."""

import asyncio
import threading

import pytest

from toolcrib.core.errors import Overloaded
from toolcrib.runtime.tool_threads import AT_ONCE, OF_ONE, in_tool_thread


async def test_threads_that_cannot_be_started_take_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", fail)
        for _ in range(AT_ONCE + 1):
            with pytest.raises(RuntimeError, match="new thread"):
                await in_tool_thread(lambda: 1, owner="a")

    assert await in_tool_thread(lambda: 1, owner="a") == 1


async def test_functions_of_one_workspace_leave_threads_for_the_others() -> None:
    end = threading.Event()
    hung = [asyncio.create_task(in_tool_thread(end.wait, owner="greedy")) for _ in range(2 * AT_ONCE)]
    try:
        _, running = await asyncio.wait(hung, return_when=asyncio.FIRST_COMPLETED)
        assert await in_tool_thread(lambda: 1, owner="modest") == 1
        with pytest.raises(Overloaded, match=f"{OF_ONE} calls of Python tools of this workspace"):
            await in_tool_thread(lambda: 1, owner="greedy")
    finally:
        end.set()
        outcomes = await asyncio.gather(*hung, return_exceptions=True)

    assert len(running) == OF_ONE
    assert outcomes.count(True) == OF_ONE
    assert await in_tool_thread(lambda: 1, owner="greedy") == 1
