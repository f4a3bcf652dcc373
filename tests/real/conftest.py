"""One real model for all tests of this folder."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from tests.real.llama import KEY, llama
from toolcrib.providers.provider import Credentials, Provider
from toolcrib.providers.registry import open_providers

# Whose wires llama.cpp's server speaks, and where they begin.
WIRES = {"openai-compatible": "/v1", "anthropic": ""}


@dataclass(frozen=True)
class Access:
    """A provider, and the way to the model."""

    provider: Provider
    credentials: Credentials


@pytest.fixture(scope="session")
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with llama(tmp_path_factory.mktemp("llama") / "log") as url:
        yield url


@pytest.fixture(params=WIRES)
async def access(request: pytest.FixtureRequest, model_url: str) -> AsyncIterator[Access]:
    async with open_providers(private_hosts=["*"]) as providers:
        provider = await providers.get(request.param)
        yield Access(provider, Credentials(KEY, base_url=model_url + WIRES[request.param]))
