"""Tries a turn again when it failed for a passing reason and nothing of it was shown. Knows no provider."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from toolcrib.domain.alarm import Alarm
from toolcrib.domain.errors import ProviderError, ProviderFault
from toolcrib.domain.streams import Failed, Start, StreamEvent, Usage
from toolcrib.providers.faults import PASSING, broken

Stream = AsyncGenerator[StreamEvent, None]


@dataclass(frozen=True, slots=True)
class Patience:
    """How often is tried, and how long is waited between. A provider that asks for more is not waited for."""

    attempts: int = 4
    first_pause: float = 0.5
    longest_pause: float = 8.0
    longest_asked: float = 60.0


PATIENT: Final = Patience()


async def retrying(
    begin: Callable[[], Stream],
    *,
    patience: Patience = PATIENT,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Stream:
    """The events of the first attempt that shows anything, or of the last. The start of a vain one is not shown."""
    for attempt in range(1, patience.attempts + 1):
        held: list[StreamEvent] = []
        shown = False
        wait: float | None = None
        async with aclosing(begin()) as events:
            async for event in events:
                if not shown and isinstance(event, Start | Usage):
                    held.append(event)
                    continue
                if not shown and isinstance(event, Failed):
                    wait = _wait(event.error, attempt, patience)
                if wait is not None:
                    break
                for earlier in held:
                    yield earlier
                held.clear()
                shown = True
                yield event
        if wait is None:
            return
        await pause(wait)


async def within(seconds: float, events: Stream) -> Stream:
    """The events, as long as they end in time; if not, the connection is closed and the last event says so."""
    alarm, deadline = Alarm(), asyncio.get_running_loop().time() + seconds
    async with aclosing(events):
        while True:
            try:
                with alarm.at(deadline):
                    event = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                break
            yield event
    yield Failed(broken(f"The model had not finished after {seconds:g} s.", fault=ProviderFault.TIMEOUT))


def _wait(error: ProviderError, attempt: int, patience: Patience) -> float | None:
    """Seconds to wait before the next attempt; None if there is to be none."""
    if error.fault not in PASSING or attempt >= patience.attempts:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= patience.longest_asked else None
    most = min(patience.longest_pause, patience.first_pause * 2 ** (attempt - 1))
    # Spread out, so that those whom one failure hit do not come back all at once.
    return random.uniform(most / 2, most)  # noqa: S311
