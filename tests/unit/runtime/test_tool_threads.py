"""Threads of tools: how many there may be."""

import threading

import pytest

from toolcrib.runtime.tool_threads import AT_ONCE, in_tool_thread


async def test_threads_that_cannot_be_started_take_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", fail)
        for _ in range(AT_ONCE + 1):
            with pytest.raises(RuntimeError, match="new thread"):
                await in_tool_thread(lambda: 1)

    assert await in_tool_thread(lambda: 1) == 1
