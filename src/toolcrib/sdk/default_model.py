"""Chooses a model: from the environment, from stored credentials, or a good default of the provider."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolcrib.client import Client, ModelData
from toolcrib.core.errors import Misconfigured, ToolcribError

NO_MODEL = (
    "No model is configured. Do one of these:\n"
    "  export ANTHROPIC_API_KEY=…   (or OPENAI_API_KEY=…, or OLLAMA_HOST=127.0.0.1:11434)\n"
    "  toolcrib models login anthropic   stores a key, encrypted, for all directories"
)


@dataclass(frozen=True, slots=True, repr=False)
class EnvironmentProvider:
    """A provider that the environment configures."""

    provider: str
    secret: str
    base_url: str | None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A provider's model."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


def parse_choice(text: str) -> ModelChoice:
    """Parse ``provider/model``. A model's name may contain slashes.

    Raises:
        Misconfigured: The text has another format.
    """
    provider, slash, model = text.partition("/")
    if not slash or not provider or not model:
        raise Misconfigured(f"{text!r} is not PROVIDER/MODEL, such as ollama/qwen3. `toolcrib models` lists yours.")
    return ModelChoice(provider, model)


def named_by_environment() -> Iterator[EnvironmentProvider]:
    """Yield the providers that the environment configures, preferred ones first."""
    text = os.environ.get
    if key := text("ANTHROPIC_API_KEY"):
        yield EnvironmentProvider("anthropic", key, text("ANTHROPIC_BASE_URL"))
    if key := text("OPENAI_API_KEY"):
        address = text("OPENAI_BASE_URL")
        yield EnvironmentProvider("openai-compatible" if address else "openai", key, address)
    if host := text("OLLAMA_HOST"):
        yield EnvironmentProvider("ollama", "", _ollama_address(host))


def store_environment_keys(client: Client) -> list[str]:
    """Store the keys of the environment on the server and return their providers."""
    stored = []
    for named in named_by_environment():
        client.store_access(named.provider, secret=named.secret, base_url=named.base_url, check=False)
        stored.append(named.provider)
    return stored


def usable(client: Client) -> list[str]:
    """Return the providers with credentials, those of the environment first."""
    return list(dict.fromkeys([*(named.provider for named in named_by_environment()), *_stored(client)]))


def first_choice(client: Client) -> ModelChoice:
    """Return the model of ``TOOLCRIB_MODEL``, otherwise a good model of the first provider that answers.

    Raises:
        Misconfigured: No provider answers.
    """
    if text := os.environ.get("TOOLCRIB_MODEL"):
        return parse_choice(text)
    failures = []
    for provider in usable(client):
        try:
            models = client.models(provider)
        except ToolcribError as error:
            failures.append(f"{provider}: {error.message}")
            continue
        if model := preferred(models):
            return ModelChoice(provider, model.id)
        failures.append(f"{provider}: no model supports tools.")
    if failures:
        raise Misconfigured("No model is available.\n  " + "\n  ".join(failures))
    raise Misconfigured(NO_MODEL)


def preferred(models: Sequence[ModelData]) -> ModelData | None:
    """Return the newest mid-range model, judged by its name: good with tools, and not the most expensive."""
    with_tools = [model for model in models if model.supports_tools]
    if not with_tools:
        return None
    for pattern in (r"sonnet", r"^gpt-\d+(\.\d+)?$", r"^gpt-\d", r"coder", r"^(qwen|llama|mistral|devstral)"):
        fitting = [model for model in with_tools if re.search(pattern, model.id)]
        if fitting:
            return max(fitting, key=_version)
    return with_tools[0]


def _version(model: ModelData) -> tuple[tuple[int, ...], str]:
    # A long number is a date, not a version.
    numbers = tuple(int(number) for number in re.findall(r"\d+", model.id) if len(number) < 5)
    return numbers, model.id


def _stored(client: Client) -> list[str]:
    return [one.provider for one in client.provider_credentials()]


def _ollama_address(host: str) -> str:
    """Return the URL as Ollama reads it: scheme and port are optional, and 0.0.0.0 means this machine."""
    address = host if "://" in host else f"http://{host}"
    address = address.rstrip("/").replace("//0.0.0.0", "//127.0.0.1")
    return address if re.search(r":\d+$", address) else f"{address}:11434"
