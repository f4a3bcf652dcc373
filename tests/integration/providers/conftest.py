"""Every provider, each against the strict fake and against aimock."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from tests.fakes.aimock import aimock
from tests.fakes.model_server import KEY, ModelServer, model_server
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.providers.provider import Provider
from toolcrib.providers.provider_registry import ProviderRegistry, open_providers, provider_classes

# The base path and the model of each provider's fake. By default it imitates OpenAI.
PATHS = {"anthropic": "", "copilot": "", "gemini": "/v1beta", "ollama": ""}
MODELS = {
    "anthropic": "claude-fake",
    "gemini": "gemini-fake",
    "ollama": "llama-fake",
    "copilot responses": "gpt-5-fake",
}
# The other API of a provider that has two.
NAMES = [*provider_classes(), "copilot responses"]
# The wire format of each; by default Chat Completions.
FORMATS = {
    "anthropic": "anthropic",
    "gemini": "gemini",
    "ollama": "ollama",
    "openai": "responses",
    "copilot responses": "responses",
}


@dataclass(frozen=True)
class Access:
    """A provider and the connection to its fake server."""

    provider: Provider
    credentials: ProviderCredentials
    model: str
    wire: str


@pytest.fixture(scope="session")
async def providers() -> AsyncIterator[ProviderRegistry]:
    async with open_providers(private_hosts=["*"]) as opened:
        yield opened


@pytest.fixture
async def fake() -> AsyncIterator[ModelServer]:
    async with model_server() as server:
        yield server


@pytest.fixture(scope="session")
def aimock_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with aimock(tmp_path_factory.mktemp("aimock")) as url:
        yield url


@pytest.fixture(params=NAMES)
def provider_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def access(provider_name: str, providers: ProviderRegistry, fake: ModelServer) -> Access:
    """A connection to the strict fake."""
    return await reach(provider_name, providers, fake.url)


@pytest.fixture(params=["strict", "aimock"])
async def peer(
    request: pytest.FixtureRequest, provider_name: str, providers: ProviderRegistry, fake: ModelServer
) -> Access:
    """Connections to the strict fake and to aimock."""
    url = fake.url if request.param == "strict" else request.getfixturevalue("aimock_url")
    return await reach(provider_name, providers, url)


async def reach(name: str, providers: ProviderRegistry, url: str) -> Access:
    provider = name.split()[0]
    # aimock has the Responses API below `/v1` only.
    path = "/v1" if name == "copilot responses" else PATHS.get(provider, "/v1")
    credentials = ProviderCredentials(KEY, base_url=url + path)
    return Access(await providers.get(provider), credentials, MODELS.get(name, "gpt-fake"), FORMATS.get(name, "openai"))
