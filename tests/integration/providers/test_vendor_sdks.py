"""Our requests carry what the vendors' own SDKs send."""

import anthropic
import httpx2
import openai

from tests.fakes.grammar import taken
from tests.fakes.model_server import KEY, ModelServer, Received
from tests.integration.providers.conftest import reach
from toolcrib.core.messages import UserMessage
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.provider_registry import ProviderRegistry

# How a server knows who asks, for what, and in which version of its API.
HEADERS = ("authorization", "x-api-key", "anthropic-version", "content-type", "openai-organization", "openai-project")


def told(request: Received) -> tuple[str, str, dict[str, str | None]]:
    return request.method, request.path, {name: request.headers.get(name) for name in HEADERS}


async def ours(name: str, providers: ProviderRegistry, fake: ModelServer) -> list[Received]:
    access = await reach(name, providers, fake.url)
    await taken(access.provider.stream(ModelRequest(access.model, (UserMessage("Say hello."),)), access.credentials))
    await access.provider.list_models(access.credentials)
    return fake.received[-2:]


async def test_openai(providers: ProviderRegistry, fake: ModelServer) -> None:
    http = httpx2.AsyncClient(trust_env=False)
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{fake.url}/v1", max_retries=0, http_client=http) as sdk:
        stream = await sdk.chat.completions.create(
            model="gpt-fake", messages=[{"role": "user", "content": "Say hello."}], stream=True
        )
        assert [chunk async for chunk in stream]
        assert (await sdk.models.list()).data
    theirs = list(fake.received)

    assert list(map(told, await ours("openai-compatible", providers, fake))) == list(map(told, theirs))


async def test_anthropic(providers: ProviderRegistry, fake: ModelServer) -> None:
    http = httpx2.AsyncClient(trust_env=False)
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=fake.url, max_retries=0, http_client=http) as sdk:
        stream = await sdk.messages.create(
            model="claude-fake",
            messages=[{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}],
            max_tokens=1000,
            stream=True,
        )
        assert [event async for event in stream]
        assert (await sdk.models.list(limit=1000)).data
    theirs = list(fake.received)

    assert list(map(told, await ours("anthropic", providers, fake))) == list(map(told, theirs))
