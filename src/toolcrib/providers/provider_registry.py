"""The providers by name, and their turns.

A turn is retried as long as nothing of it was shown, and limited in time.
"""

import asyncio
import importlib
import pkgutil
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import toolcrib.providers
from toolcrib.core.errors import Misconfigured, NotFound, ProviderError, ProviderErrorKind
from toolcrib.core.model_stream import (
    StreamEvent,
    StreamFailed,
    StreamFinish,
    StreamStart,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolCallStart,
)
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.network.network_policy import NetworkPolicy
from toolcrib.providers.model_catalog import load_catalog
from toolcrib.providers.provider import PASSING, ModelInfo, ModelRequest, Provider, stream_error
from toolcrib.providers.request_check import readable, request_flaw
from toolcrib.runtime.process_setup import freeze_gc
from toolcrib.runtime.reusable_timeout import ReusableTimeout
from toolcrib.runtime.traces import is_tracing, record_span

if TYPE_CHECKING:
    from toolcrib.network.outbound import Outbound

TURN_SECONDS: Final = 120.0
# For listing models and checking credentials, while a person waits.
_QUESTION_SECONDS: Final = 20.0


Stream = AsyncGenerator[StreamEvent, None]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to try, and how long to wait in between. If a provider asks for a longer wait, there is no retry."""

    attempts: int = 4
    first_pause: float = 0.5
    longest_pause: float = 8.0
    longest_asked: float = 60.0


DEFAULT_RETRY: Final = RetryPolicy()


@cache
def provider_classes() -> Mapping[str, type[Provider]]:
    """Return every provider by name, local servers last: the classes with a ``name`` in the modules of this package."""
    found: dict[str, type[Provider]] = {}
    for module in pkgutil.iter_modules(toolcrib.providers.__path__, f"{toolcrib.providers.__name__}."):
        for bound in vars(importlib.import_module(module.name)).values():
            is_provider = isinstance(bound, type) and issubclass(bound, Provider) and "name" in vars(bound)
            if is_provider and found.setdefault(bound.name, bound) is not bound:
                raise Misconfigured(f"Two classes in {module.name} and elsewhere are the provider {bound.name!r}.")
    return dict(sorted(found.items(), key=lambda item: (not item[1].needs_credentials, item[0])))


def credentials_in(variables: Mapping[str, str]) -> dict[str, ProviderCredentials]:
    """Return the credentials that environment variables contain, by provider, preferred ones first."""
    found = ((name, provider.from_environment(variables)) for name, provider in provider_classes().items())
    return {name: credentials for name, credentials in found if credentials is not None}


def provider_class(name: str) -> type[Provider]:
    """Return the class of a provider.

    Raises:
        NotFound: There is none of this name; the message lists the names.
    """
    known = provider_classes()
    if name not in known:
        raise NotFound(f"There is no provider {name!r}. Providers: {', '.join(known)}.")
    return known[name]


@dataclass(slots=True)
class StreamedTurn:
    """What is known of a turn: its tokens so far, and whether it finished or failed. Otherwise it was cancelled."""

    provider: str
    model: str
    started: float
    usage: TokenUsage = field(default_factory=TokenUsage)
    first_token: float | None = None
    finished: bool = False
    error: ProviderError | None = None

    def note(self, event: StreamEvent) -> None:
        """Note an event of its stream."""
        match event:
            case TextDelta() | ThinkingDelta() | ToolCallStart() if self.first_token is None:
                self.first_token = time.monotonic()
            case TokenUsage():
                self.usage = event
            case StreamFinish():
                self.finished = True
            case StreamFailed(error):
                self.error = error


OnTurnEnded = Callable[[StreamedTurn], None]


class ProviderRegistry:
    """Provides the providers, which share one connection pool."""

    def __init__(self, http: "Outbound", *, on_ended: "OnTurnEnded | None" = None) -> None:
        """Create the registry.

        Args:
            on_ended: Called after each turn, however it ended.
        """
        self._http = http
        self._on_ended = on_ended
        self._loaded: dict[str, Provider] = {}

    async def get(self, name: str) -> Provider:
        """Return the provider of this name.

        Raises:
            NotFound: There is none; the message lists the names.
        """
        if name not in self._loaded:
            # In a thread, so that other sessions' streams continue.
            await asyncio.to_thread(load_catalog)
            self._loaded[name] = provider_class(name)(self._http)
            # What the first turn loaded stays for good.
            freeze_gc()
        return self._loaded[name]

    async def stream_turn(
        self,
        name: str,
        request: ModelRequest,
        credentials: ProviderCredentials,
        *,
        seconds: float = TURN_SECONDS,
        patience: RetryPolicy = DEFAULT_RETRY,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Stream one turn of a model: retried as long as nothing was shown, and limited to so many seconds in total.

        Use it within ``contextlib.aclosing``; leaving or cancelling it closes the connection at once.

        Args:
            pause: Waits before another attempt.
        """
        provider = await self.get(name)
        if flaw := request_flaw(name, request):
            yield StreamFailed(flaw)
            return
        fitted = readable(name, request)
        attempts = retrying(partial(provider.stream, fitted, credentials), patience=patience, pause=pause)
        events = within(seconds, attempts)
        if self._on_ended is not None or is_tracing():
            events = _reported(events, StreamedTurn(name, request.model, time.monotonic()), self._on_ended)
        async with aclosing(events):
            async for event in events:
                yield event

    async def models(self, name: str, credentials: ProviderCredentials) -> list[ModelInfo]:
        """Return the models that these credentials may use.

        Raises:
            ProviderError: The request failed.
        """
        provider = await self.get(name)
        async with _in_time():
            return await provider.list_models(credentials)

    async def validate(self, name: str, credentials: ProviderCredentials) -> None:
        """Check the credentials.

        Raises:
            ProviderError: The provider does not accept them.
        """
        provider = await self.get(name)
        async with _in_time():
            await provider.validate_credentials(credentials)


@asynccontextmanager
async def open_providers(
    *, private_hosts: Collection[str] = (), proxy: str | None = None, on_ended: OnTurnEnded | None = None
) -> AsyncIterator[ProviderRegistry]:
    """Open the providers while the context lasts.

    Args:
        private_hosts: What users may reach in the server's own network, as ``host:port``, or ``*`` for everything.
        proxy: The URL of a proxy for all requests.
        on_ended: Called after each turn, however it ended.
    """
    # Here, so that listing the providers does not import the client.
    from toolcrib.network.outbound import Outbound

    network = NetworkPolicy(private_hosts, setting="TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS")
    async with Outbound(network, proxy=proxy) as http:
        yield ProviderRegistry(http, on_ended=on_ended)


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_QUESTION_SECONDS):
            yield
    except TimeoutError:
        message = f"The provider did not respond within {_QUESTION_SECONDS:g} s."
        raise stream_error(message, kind=ProviderErrorKind.TIMEOUT) from None


async def _reported(events: Stream, turn: StreamedTurn, on_ended: OnTurnEnded | None) -> Stream:
    try:
        async with aclosing(events):
            async for event in events:
                turn.note(event)
                yield event
    finally:
        _record_span(turn)
        if on_ended is not None:
            on_ended(turn)


def _record_span(turn: StreamedTurn) -> None:
    attributes: dict[str, str | int | float | bool] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": turn.provider,
        "gen_ai.request.model": turn.model,
        "gen_ai.usage.input_tokens": turn.usage.input_tokens,
        "gen_ai.usage.output_tokens": turn.usage.output_tokens,
    }
    if turn.first_token is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = turn.first_token - turn.started
    error = turn.error.kind.value if turn.error else None if turn.finished else "cancelled"
    record_span(f"chat {turn.model}", time.monotonic() - turn.started, attributes, error=error)


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
