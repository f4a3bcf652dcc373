"""The watchdog logs a blocked event loop with its stack, and ignores a loop that only waits."""

import asyncio
import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.wait_until import PATIENCE
from toolcrib.runtime.loop_watchdog import LIMIT_SECONDS, LoopWatchdog


def compute(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def block(seconds: float) -> None:
    threading.Event().wait(seconds)


async def look(seconds: float = 0.05) -> None:
    """Keeps the event loop idle."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


async def told_after(file: Path, hold: Any, seconds: float) -> tuple[LoopWatchdog, dict[str, Any]]:
    watchdog = LoopWatchdog(file=file)
    with watchdog.watching():
        async with asyncio.timeout(PATIENCE):
            while not file.exists():
                hold(seconds)
                await look()
    return watchdog, json.loads(file.read_text().splitlines()[0])


async def test_a_loop_that_computes_too_long_is_logged_with_its_stack(tmp_path: Path) -> None:
    watchdog, stall = await told_after(tmp_path / "stalls", compute, 3 * LIMIT_SECONDS)

    assert stall["cpu_seconds"] > LIMIT_SECONDS
    assert "in compute" in "".join(stall["stack"])
    assert watchdog.count >= 1
    assert watchdog.worst_cpu_seconds > LIMIT_SECONDS


async def test_a_loop_that_sleeps_in_a_call_is_logged_but_not_counted(tmp_path: Path) -> None:
    watchdog, stall = await told_after(tmp_path / "stalls", block, 3 * LIMIT_SECONDS)

    assert stall["seconds"] > LIMIT_SECONDS
    assert stall["cpu_seconds"] < LIMIT_SECONDS
    assert "in block" in "".join(stall["stack"])
    assert watchdog.count == 0


async def test_a_loop_that_awaits_is_not_logged(tmp_path: Path) -> None:
    file = tmp_path / "stalls"

    with LoopWatchdog(file=file).watching():
        await look(2 * LIMIT_SECONDS)

    # A busy machine may delay the loop. Such a stall is logged with little processor time.
    result = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    assert all(stall["cpu_seconds"] < LIMIT_SECONDS for stall in result)
