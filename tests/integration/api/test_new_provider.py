"""A model provider is added by one file: nothing else has to know its name."""

import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import httpx2
import pytest

import toolcrib.providers
from tests.fakes.grammar import received
from tests.fakes.model_server import KEY, model_server
from tests.fakes.scripted_turns import SCENES
from tests.integration.api.accounts import Someone, code_of
from toolcrib.core.messages import UserMessage
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.provider_registry import ProviderRegistry, provider_classes
from toolcrib.sdk.default_agent import is_keyless, named_by_environment, no_model

PARROT = '''
"""A server that imitates OpenAI."""

from toolcrib.providers.openai import OpenAIServer
from toolcrib.providers.provider import ModelInfo


class Parrot(OpenAIServer):
    name = "parrot"
    address = "https://parrot.example/v1"
    variable = "PARROT_API_KEY"

    def model_info(self, entry):
        return ModelInfo(entry["id"], entry["id"], 4_096, supports_tools=True)
'''


@pytest.fixture
def parrot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The file of a provider, in a folder of the package."""
    (tmp_path / "parrot.py").write_text(PARROT)
    monkeypatch.setattr(toolcrib.providers, "__path__", [*toolcrib.providers.__path__, str(tmp_path)])
    provider_classes.cache_clear()
    yield
    provider_classes.cache_clear()
    sys.modules.pop("toolcrib.providers.parrot", None)


@pytest.mark.usefixtures("parrot")
async def test_new_file_is_a_provider_of_the_api(client: httpx2.AsyncClient, ada: Someone) -> None:
    async with model_server() as fake:
        listed = await client.get("/providers", headers=ada.headers)
        wrong = await client.put(
            "/credentials/parrot", json={"secret": "sk-wrong", "base_url": f"{fake.url}/v1"}, headers=ada.headers
        )
        stored = await client.put(
            "/credentials/parrot", json={"secret": KEY, "base_url": f"{fake.url}/v1"}, headers=ada.headers
        )
        models = await client.get("/providers/parrot/models", headers=ada.headers)

    assert "parrot" in listed.json()["items"]
    assert code_of(wrong)[1] == "PROVIDER_ERROR"
    assert stored.status_code == 204
    assert {"gpt-fake"} <= {model["id"] for model in models.json()["items"]}
    assert {model["context_window"] for model in models.json()["items"]} == {4_096}


@pytest.mark.usefixtures("parrot")
async def test_new_provider_streams_turns(providers: ProviderRegistry) -> None:
    request = ModelRequest("gpt-fake", (UserMessage(next(iter(SCENES))),))
    async with model_server() as fake:
        credentials = ProviderCredentials(KEY, f"{fake.url}/v1")
        async with aclosing(providers.stream_turn("parrot", request, credentials)) as events:
            reception = received([event async for event in events])

    assert reception.error is None
    assert reception.message().text


@pytest.mark.usefixtures("parrot")
def test_new_provider_is_found_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PARROT_API_KEY", KEY)

    assert named_by_environment() == {"parrot": ProviderCredentials(KEY)}
    assert "PARROT_API_KEY" in no_model()
    assert not is_keyless("parrot")


def test_without_the_file_there_is_no_such_provider() -> None:
    assert "parrot" not in provider_classes()
