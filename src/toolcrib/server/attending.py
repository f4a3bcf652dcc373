"""Works for someone at the other end of a connection, for as long as they are there and may be."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.types import Receive

from toolcrib.domain.errors import Unauthenticated
from toolcrib.server.authority import Authority

T = TypeVar("T")


async def attended(
    work: Coroutine[Any, Any, T], receive: Receive, *, authority: Authority, check_seconds: float
) -> T | None:
    """What the work comes to; None if they hung up, or their token or key ended first, which cancels it."""
    working = asyncio.create_task(work)
    watching = {asyncio.create_task(_gone(receive)), asyncio.create_task(_outlived(authority, check_seconds))}
    try:
        await asyncio.wait({working, *watching}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, *watching):
            task.cancel()
        await asyncio.gather(working, *watching, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _outlived(authority: Authority, check_seconds: float) -> None:
    with suppress(Unauthenticated):
        while True:
            await asyncio.sleep(max(0.0, min(check_seconds, authority.seconds_left)))
            await authority.check()
