"""Threads for disk work, so that a slow disk does not block the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# Accessing a few files costs less than a thread switch.
FEW_FILES = 8

_pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="disk")


async def in_thread(work: Callable[..., T], *arguments: object) -> T:
    """Run ``work`` in a thread for disk work."""
    return await asyncio.get_running_loop().run_in_executor(_pool, work, *arguments)
