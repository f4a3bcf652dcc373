"""Threads for disk work, so that a slow disk does not stop the server."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="disk")


async def in_thread(work: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(_pool, work, *arguments)


# A look at a file or two costs less than handing it to a thread.
_FEW = 8


async def in_thread_if_many(count: int, work: Callable[..., T], *arguments: object) -> T:
    """Does ``count`` quick looks right here if they are few."""
    return work(*arguments) if count <= _FEW else await in_thread(work, *arguments)
