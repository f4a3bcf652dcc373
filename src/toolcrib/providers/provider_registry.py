"""The providers by name, loaded on first use because the vendors' SDKs take a second to import."""

import asyncio
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Final

import httpx2

from toolcrib.core.errors import NotFound, ProviderErrorKind
from toolcrib.core.model_stream import StreamEvent
from toolcrib.providers.http_pool import new_client
from toolcrib.providers.provider import ModelInfo, ModelRequest, Provider, ProviderCredentials
from toolcrib.providers.provider_errors import stream_error
from toolcrib.providers.retries import DEFAULT_RETRY, RetryPolicy, Stream, retrying, within
from toolcrib.runtime.process_setup import freeze_gc

_CLASSES: Final[Mapping[str, tuple[str, str]]] = {
    "anthropic": ("anthropic", "Anthropic"),
    "openai": ("openai", "OpenAI"),
    "openai-compatible": ("openai", "OpenAICompatible"),
    "copilot": ("openai", "Copilot"),
    "ollama": ("ollama", "Ollama"),
}
NAMES: Final = tuple(_CLASSES)
TURN_SECONDS: Final = 120.0
# For listing models and checking credentials, while a person waits.
_QUESTION_SECONDS: Final = 20.0


class ProviderRegistry:
    """Provides the providers, which share one connection pool."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self._loaded: dict[str, Provider] = {}

    async def get(self, name: str) -> Provider:
        """Return the provider of this name.

        Raises:
            NotFound: There is none; the message lists the names.
        """
        if name not in self._loaded:
            if name not in _CLASSES:
                raise NotFound(f"There is no provider {name!r}. Providers: {', '.join(NAMES)}.")
            # In a thread, so that other sessions' streams continue.
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
        """Stream one turn of a model: retried as long as nothing was shown, and limited to so many seconds in total.

        Use it within ``contextlib.aclosing``; leaving or cancelling it closes the connection at once.
        """
        provider = await self.get(name)

        def begin() -> Stream:
            return provider.stream(request, credentials)

        async with aclosing(within(seconds, retrying(begin, patience=patience))) as events:
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
    *, private_hosts: Collection[str] = (), proxy: str | None = None
) -> AsyncIterator[ProviderRegistry]:
    """Open the providers while the context lasts.

    Args:
        private_hosts: What users may reach in the server's own network, as ``host:port``, or ``*`` for everything.
        proxy: The URL of a proxy for all requests.
    """
    async with new_client(private_hosts=private_hosts, proxy=proxy) as http:
        yield ProviderRegistry(http)


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_QUESTION_SECONDS):
            yield
    except TimeoutError:
        message = f"The provider did not respond within {_QUESTION_SECONDS:g} s."
        raise stream_error(message, kind=ProviderErrorKind.TIMEOUT) from None


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
