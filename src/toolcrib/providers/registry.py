"""The providers by name. Each is loaded when it is first asked for: the vendors' SDKs take a second to import."""

import asyncio
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Final

import httpx2

from toolcrib.domain.errors import NotFound
from toolcrib.domain.streams import StreamEvent
from toolcrib.providers.provider import Credentials, ModelRequest, Provider
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

        return within(seconds, retrying(begin, patience=patience))


@asynccontextmanager
async def open_providers(*, private_hosts: Collection[str] = (), proxy: str | None = None) -> AsyncIterator[Providers]:
    """Providers for as long as the context lasts.

    ``private_hosts``: what users may reach within the server's own network, as ``host:port``, or ``*`` for all of it.
    ``proxy``: an address through which all are reached instead.
    """
    async with new_client(private_hosts=private_hosts, proxy=proxy) as http:
        yield Providers(http)


def _load(name: str, http: httpx2.AsyncClient) -> Provider:
    module, class_name = _CLASSES[name]
    provider: Provider = getattr(importlib.import_module(f"toolcrib.providers.{module}"), class_name)(http)
    return provider
