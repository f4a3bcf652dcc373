"""Threads for disk work, so that a slow disk does not block the event loop."""

import asyncio
from collections.abc import Callable, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

# Accessing a few files costs less than a thread switch.
FEW_FILES = 8

_pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="disk")


# What is computed for so many things takes a few milliseconds at most.
_FEW: Final = 200


async def off_loop(things: Sized, work: Callable[..., T], *arguments: object) -> T:
    """Run ``work``, which computes something for each of the things: in a thread if they are many."""
    return await in_thread(work, *arguments) if len(things) > _FEW else work(*arguments)


async def in_thread(work: Callable[..., T], *arguments: object) -> T:
    """Run ``work`` in a thread for disk work."""
    return await asyncio.get_running_loop().run_in_executor(_pool, work, *arguments)
