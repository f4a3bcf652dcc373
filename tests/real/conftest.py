"""One real model for all tests of this folder, served in two ways."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.faults.conftest import urls
from tests.real.llama import KEY, llama
from toolcrib.core.model_options import Wire
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.providers.provider import Provider
from toolcrib.providers.provider_registry import open_providers

__all__ = ["urls"]

# The wire formats of llama.cpp's server: the provider, its base path, and which of its APIs.
WIRES = {
    "chat completions": ("openai-compatible", "/v1", Wire.CHAT_COMPLETIONS),
    "responses": ("openai-compatible", "/v1", Wire.RESPONSES),
    "anthropic": ("anthropic", "", None),
}


@dataclass(frozen=True)
class Access:
    """A provider, and its connection to the model."""

    provider: Provider
    credentials: ProviderCredentials
    wire: Wire | None


@pytest.fixture(scope="session")
def talking_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with llama(tmp_path_factory.mktemp("talking") / "log", calls=False) as url:
        yield url


@pytest.fixture(scope="session")
def calling_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with llama(tmp_path_factory.mktemp("calling") / "log", calls=True) as url:
        yield url


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def access(wire: str, talking_url: str) -> AsyncIterator[Access]:
    """A connection to a model that writes text."""
    async with accessed(wire, talking_url) as access:
        yield access


@pytest.fixture
async def calling(wire: str, calling_url: str) -> AsyncIterator[Access]:
    """A connection to a model that calls tools."""
    async with accessed(wire, calling_url) as access:
        yield access


@asynccontextmanager
async def accessed(wire: str, url: str) -> AsyncIterator[Access]:
    async with open_providers(private_hosts=["*"]) as providers:
        name, path, api = WIRES[wire]
        yield Access(await providers.get(name), ProviderCredentials(KEY, base_url=url + path), api)
