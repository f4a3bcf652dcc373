"""The providers by name. Each is loaded when it is first asked for: the vendors' SDKs take a second to import."""

import asyncio
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Final

import httpx2

from toolcrib.domain.errors import NotFound, ProviderFault
from toolcrib.domain.memory import spare_what_is_loaded
from toolcrib.domain.streams import StreamEvent
from toolcrib.providers.faults import broken
from toolcrib.providers.provider import Credentials, ModelInfo, ModelRequest, Provider
from toolcrib.providers.retry import PATIENT, Patience, Stream, retrying, within
from toolcrib.providers.transport import new_client

_CLASSES: Final[Mapping[str, tuple[str, str]]] = {
    "anthropic": ("anthropic", "Anthropic"),
    "openai": ("openai", "OpenAI"),
    "openai-compatible": ("openai_compatible", "OpenAICompatible"),
    "copilot": ("copilot", "Copilot"),
    "ollama": ("ollama", "Ollama"),
}
NAMES: Final = tuple(_CLASSES)
TURN_SECONDS: Final = 120.0
# For a list of models or a look at credentials, for which a person waits.
_QUESTION_SECONDS: Final = 20.0


class Providers:
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

    async def turn(
        self,
        name: str,
        request: ModelRequest,
        credentials: Credentials,
        *,
        seconds: float = TURN_SECONDS,
        patience: Patience = PATIENT,
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

    async def models(self, name: str, credentials: Credentials) -> list[ModelInfo]:
        """The models that these credentials may use; raises ProviderError."""
        provider = await self.get(name)
        async with _in_time():
            return await provider.list_models(credentials)

    async def validate(self, name: str, credentials: Credentials) -> None:
        """Raises ProviderError unless the provider accepts the credentials."""
        provider = await self.get(name)
        async with _in_time():
            await provider.validate_credentials(credentials)


@asynccontextmanager
async def open_providers(*, private_hosts: Collection[str] = (), proxy: str | None = None) -> AsyncIterator[Providers]:
    """Providers for as long as the context lasts.

    ``private_hosts``: what users may reach within the server's own network, as ``host:port``, or ``*`` for all of it.
    ``proxy``: an address through which all are reached instead.
    """
    async with new_client(private_hosts=private_hosts, proxy=proxy) as http:
        yield Providers(http)


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_QUESTION_SECONDS):
            yield
    except TimeoutError:
        said = f"The provider had not answered after {_QUESTION_SECONDS:g} s."
        raise broken(said, fault=ProviderFault.TIMEOUT) from None


def _load(name: str, http: httpx2.AsyncClient) -> Provider:
    module, class_name = _CLASSES[name]
    provider: Provider = getattr(importlib.import_module(f"toolcrib.providers.{module}"), class_name)(http)
    spare_what_is_loaded()
    return provider
