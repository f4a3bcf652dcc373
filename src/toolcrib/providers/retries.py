"""Retries of a model's turn, and its time limit."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from toolcrib.core.errors import ProviderError, ProviderErrorKind
from toolcrib.core.model_stream import StreamEvent, StreamFailed, StreamStart, TokenUsage
from toolcrib.providers.provider_errors import PASSING, stream_error
from toolcrib.runtime.reusable_timeout import ReusableTimeout

Stream = AsyncGenerator[StreamEvent, None]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to try, and how long to wait in between. If a provider asks for a longer wait, there is no retry."""

    attempts: int = 4
    first_pause: float = 0.5
    longest_pause: float = 8.0
    longest_asked: float = 60.0


DEFAULT_RETRY: Final = RetryPolicy()


async def retrying(
    begin: Callable[[], Stream],
    *,
    patience: RetryPolicy = DEFAULT_RETRY,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Stream:
    """Yield the events of the first attempt that shows anything, otherwise of the last attempt.

    A turn is retried after a transient failure, as long as nothing of it was shown. The start of a failed attempt is
    dropped.
    """
    for attempt in range(1, patience.attempts + 1):
        held: list[StreamEvent] = []
        shown = False
        wait: float | None = None
        async with aclosing(begin()) as events:
            async for event in events:
                if not shown and isinstance(event, StreamStart | TokenUsage):
                    held.append(event)
                    continue
                if not shown and isinstance(event, StreamFailed):
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
    """Yield the events until a time limit; then close the connection and yield a failure as the last event."""
    alarm, deadline = ReusableTimeout(), asyncio.get_running_loop().time() + seconds
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
    yield StreamFailed(stream_error(f"The model had not finished after {seconds:g} s.", kind=ProviderErrorKind.TIMEOUT))


def _wait(error: ProviderError, attempt: int, patience: RetryPolicy) -> float | None:
    """Return the seconds until the next attempt; None if there is none."""
    if error.kind not in PASSING or attempt >= patience.attempts:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= patience.longest_asked else None
    most = min(patience.longest_pause, patience.first_pause * 2 ** (attempt - 1))
    # Randomized, so that clients hit by the same failure do not all come back at once.
    return random.uniform(most / 2, most)  # noqa: S311
