"""The providers by name. Each is loaded when it is first asked for: the vendors' SDKs take a second to import."""

import asyncio
import importlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx2

from toolcrib.core.errors import NotFound, ProviderError, ProviderErrorKind
from toolcrib.core.model_stream import StreamEvent, StreamFailed, StreamStart, TokenUsage
from toolcrib.providers.http_pool import new_client
from toolcrib.providers.provider import ModelInfo, ModelRequest, Provider, ProviderCredentials
from toolcrib.providers.provider_errors import PASSING, stream_error
from toolcrib.runtime.process_setup import freeze_gc
from toolcrib.runtime.reusable_timeout import ReusableTimeout

# Tries a turn again when it failed for a passing reason and nothing of it was shown. Knows no provider.

Stream = AsyncGenerator[StreamEvent, None]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often is tried, and how long is waited between. A provider that asks for more is not waited for."""

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
    """The events of the first attempt that shows anything, or of the last. The start of a vain one is not shown."""
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
    """The events, as long as they end in time; if not, the connection is closed and the last event says so."""
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
    yield StreamFailed(
        stream_error(f"The model had not finished after {seconds:g} s.", fault=ProviderErrorKind.TIMEOUT)
    )


def _wait(error: ProviderError, attempt: int, patience: RetryPolicy) -> float | None:
    """Seconds to wait before the next attempt; None if there is to be none."""
    if error.fault not in PASSING or attempt >= patience.attempts:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= patience.longest_asked else None
    most = min(patience.longest_pause, patience.first_pause * 2 ** (attempt - 1))
    # Spread out, so that those whom one failure hit do not come back all at once.
    return random.uniform(most / 2, most)  # noqa: S311


_CLASSES: Final[Mapping[str, tuple[str, str]]] = {
    "anthropic": ("anthropic", "Anthropic"),
    "openai": ("openai", "OpenAI"),
    "openai-compatible": ("openai", "OpenAICompatible"),
    "copilot": ("openai", "Copilot"),
    "ollama": ("ollama", "Ollama"),
}
NAMES: Final = tuple(_CLASSES)
TURN_SECONDS: Final = 120.0
# For a list of models or a look at credentials, for which a person waits.
_QUESTION_SECONDS: Final = 20.0


class ProviderRegistry:
    """Gives providers that share one pool of connections."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self._loaded: dict[str, Provider] = {}

    async def get(self, name: str) -> Provider:
        """The provider of this name; NotFound lists those there are."""
        if name not in self._loaded:
            if name not in _CLASSES:
                raise NotFound(f"There is no provider {name!r}. There are: {', '.join(NAMES)}.")
            # In a thread, since other sessions' streams must go on.
            self._loaded[name] = await asyncio.to_thread(_load, name, self._http)
        return self._loaded[name]

    async def stream_turn(
        self,
        name: str,
        request: ModelRequest,
        credentials: ProviderCredentials,
        *,
        seconds: float = TURN_SECONDS,
        patience: RetryPolicy = DEFAULT_RETRY,
    ) -> AsyncGenerator[StreamEvent, None]:
        """One turn of a model: tried again where nothing was shown yet, and ended after so many seconds in all.

        Use it within ``contextlib.aclosing``; leaving it, or being cancelled, closes the connection at once.
        """
        provider = await self.get(name)

        def begin() -> Stream:
            return provider.stream(request, credentials)

        async with aclosing(within(seconds, retrying(begin, patience=patience))) as events:
            async for event in events:
                yield event

    async def models(self, name: str, credentials: ProviderCredentials) -> list[ModelInfo]:
        """The models that these credentials may use; raises ProviderError."""
        provider = await self.get(name)
        async with _in_time():
            return await provider.list_models(credentials)

    async def validate(self, name: str, credentials: ProviderCredentials) -> None:
        """Raises ProviderError unless the provider accepts the credentials."""
        provider = await self.get(name)
        async with _in_time():
            await provider.validate_credentials(credentials)


@asynccontextmanager
async def open_providers(
    *, private_hosts: Collection[str] = (), proxy: str | None = None
) -> AsyncIterator[ProviderRegistry]:
    """Providers for as long as the context lasts.

    ``private_hosts``: what users may reach within the server's own network, as ``host:port``, or ``*`` for all of it.
    ``proxy``: an address through which all are reached instead.
    """
    async with new_client(private_hosts=private_hosts, proxy=proxy) as http:
        yield ProviderRegistry(http)


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_QUESTION_SECONDS):
            yield
    except TimeoutError:
        said = f"The provider had not answered after {_QUESTION_SECONDS:g} s."
        raise stream_error(said, fault=ProviderErrorKind.TIMEOUT) from None


def load_class(name: str) -> Callable[[httpx2.AsyncClient], Provider]:
    """Import a provider's module, with its vendor's SDK, and return its class."""
    module, class_name = _CLASSES[name]
    loaded: Callable[[httpx2.AsyncClient], Provider] = getattr(
        importlib.import_module(f"toolcrib.providers.{module}"), class_name
    )
    return loaded


def _load(name: str, http: httpx2.AsyncClient) -> Provider:
    provider = load_class(name)(http)
    freeze_gc()
    return provider
