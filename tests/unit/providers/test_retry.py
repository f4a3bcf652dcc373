"""A turn is retried only if none of it was shown."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from tests.fakes.grammar import failure, taken
from toolcrib.core.errors import ProviderError, ProviderErrorKind
from toolcrib.core.messages import ToolCallId
from toolcrib.core.model_stream import (
    FinishReason,
    StreamEvent,
    StreamFailed,
    StreamFinish,
    StreamStart,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolCallStart,
)
from toolcrib.providers.provider_registry import RetryPolicy, Stream, retrying, within

START, TEXT, FINISH = StreamStart("1", "m"), TextDelta("Hi"), StreamFinish(FinishReason.STOP)
WHOLE = (START, TEXT, FINISH)


def failed(kind: ProviderErrorKind = ProviderErrorKind.OVERLOADED, retry_after: float | None = None) -> StreamFailed:
    return StreamFailed(ProviderError(529, "Overloaded", kind=kind, retry_after=retry_after))


class Attempts:
    """A provider with scripted responses that records starts and pauses."""

    def __init__(self, *answers: Sequence[StreamEvent]) -> None:
        self.answers = list(answers)
        self.begun = 0
        self.pauses: list[float] = []

    def begin(self) -> Stream:
        self.begun += 1
        answer = self.answers[min(self.begun, len(self.answers)) - 1]

        async def events() -> AsyncIterator[StreamEvent]:
            for event in answer:
                yield event

        return events()  # type: ignore[return-value]

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def run(self, patience: RetryPolicy = RetryPolicy()) -> list[StreamEvent]:  # noqa: B008
        return await taken(retrying(self.begin, patience=patience, pause=self.pause))


@pytest.mark.parametrize(
    "kind",
    [
        ProviderErrorKind.RATE_LIMIT,
        ProviderErrorKind.OVERLOADED,
        ProviderErrorKind.UNAVAILABLE,
        ProviderErrorKind.BROKEN_STREAM,
    ],
)
async def test_a_transient_failure_is_retried(kind: ProviderErrorKind) -> None:
    attempts = Attempts([failed(kind)], [START, TokenUsage(1), failed(kind)], WHOLE)

    assert await attempts.run() == list(WHOLE)
    assert attempts.begun == 3
    assert 0.25 <= attempts.pauses[0] <= 0.5 <= attempts.pauses[1] <= 1


@pytest.mark.parametrize(
    "shown", [TEXT, ThinkingDelta("Hm"), ToolCallStart(0, ToolCallId("1"), "read")], ids=lambda event: event.type
)
async def test_a_partly_shown_turn_is_never_retried(shown: StreamEvent) -> None:
    attempts = Attempts([START, shown, failed()], WHOLE)

    assert [event.type for event in await attempts.run()] == ["start", shown.type, "error"]
    assert attempts.begun == 1


@pytest.mark.parametrize(
    "kind", sorted(set(ProviderErrorKind) - {"rate_limit", "overloaded", "unavailable", "broken_stream"})
)
async def test_a_permanent_failure_is_returned_at_once(kind: ProviderErrorKind) -> None:
    attempts = Attempts([failed(kind)], WHOLE)

    assert failure(await attempts.run()).error.kind is kind
    assert attempts.begun == 1


async def test_the_providers_retry_after_is_used() -> None:
    attempts = Attempts([failed(retry_after=7.5)], WHOLE)

    await attempts.run()

    assert attempts.pauses == [7.5]


async def test_a_retry_after_of_an_hour_is_not_waited_for() -> None:
    attempts = Attempts([failed(retry_after=3600)], WHOLE)

    assert failure(await attempts.run()).error.retry_after == 3600
    assert not attempts.pauses


async def test_after_the_last_attempt_the_failure_is_returned() -> None:
    attempts = Attempts([failed()])

    failure(await attempts.run(RetryPolicy(attempts=3)))
    assert attempts.begun == 3


async def test_a_turn_that_takes_too_long_ends_with_an_error_and_is_closed() -> None:
    closed = asyncio.Event()

    async def hanging() -> AsyncIterator[StreamEvent]:
        try:
            yield START
            yield TEXT
            await asyncio.Event().wait()
        finally:
            closed.set()

    events = await taken(within(0.01, hanging()))  # type: ignore[arg-type]

    assert [event.type for event in events] == ["start", "text", "error"]
    assert failure(events).error.kind is ProviderErrorKind.TIMEOUT
    assert closed.is_set()


async def test_a_turn_that_ends_in_time_does_not_time_out() -> None:
    begin: Callable[[], Stream] = Attempts(WHOLE).begin
    assert await taken(within(60, begin())) == list(WHOLE)
