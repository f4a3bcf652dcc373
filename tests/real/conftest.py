"""One real model for all tests of this folder, served in two ways."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.faults.conftest import urls
from tests.real.llama import KEY, llama
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.providers.provider import Provider
from toolcrib.providers.provider_registry import open_providers

__all__ = ["urls"]

# The wire formats of llama.cpp's server, and their base paths.
WIRES = {"openai-compatible": "/v1", "anthropic": ""}


@dataclass(frozen=True)
class Access:
    """A provider, and its connection to the model."""

    provider: Provider
    credentials: ProviderCredentials


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
        yield Access(await providers.get(wire), ProviderCredentials(KEY, base_url=url + WIRES[wire]))
