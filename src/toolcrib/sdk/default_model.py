"""Which model to use: what the environment names, what was stored, and which of a provider's models is a good start."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolcrib.client import Client, ModelData
from toolcrib.core.errors import Misconfigured, ToolcribError

NO_MODEL = (
    "No model is configured. One of these mends it:\n"
    "  export ANTHROPIC_API_KEY=…   (or OPENAI_API_KEY=…, or OLLAMA_HOST=127.0.0.1:11434)\n"
    "  toolcrib models login anthropic   keeps a key, encrypted, for all your directories"
)


@dataclass(frozen=True, slots=True, repr=False)
class EnvironmentProvider:
    """A provider that the environment names."""

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


def parse_choice(said: str) -> ModelChoice:
    """``provider/model``; a model's name may hold slashes of its own."""
    provider, slash, model = said.partition("/")
    if not slash or not provider or not model:
        raise Misconfigured(f"{said!r} is not PROVIDER/MODEL, such as ollama/qwen3. `toolcrib models` lists yours.")
    return ModelChoice(provider, model)


def named_by_environment() -> Iterator[EnvironmentProvider]:
    """In the order in which they are preferred."""
    said = os.environ.get
    if key := said("ANTHROPIC_API_KEY"):
        yield EnvironmentProvider("anthropic", key, said("ANTHROPIC_BASE_URL"))
    if key := said("OPENAI_API_KEY"):
        address = said("OPENAI_BASE_URL")
        yield EnvironmentProvider("openai-compatible" if address else "openai", key, address)
    if host := said("OLLAMA_HOST"):
        yield EnvironmentProvider("ollama", "", _ollama_address(host))


def store_environment_keys(client: Client) -> list[str]:
    """Stores what the environment names, so that it counts; the providers it was."""
    stored = []
    for named in named_by_environment():
        client.store_access(named.provider, secret=named.secret, base_url=named.base_url, check=False)
        stored.append(named.provider)
    return stored


def usable(client: Client) -> list[str]:
    """The providers that there is access to, those of the environment first."""
    return list(dict.fromkeys([*(named.provider for named in named_by_environment()), *_stored(client)]))


def first_choice(client: Client) -> ModelChoice:
    """What ``TOOLCRIB_MODEL`` says, or a good model of the first provider that answers; Misconfigured if none does."""
    if said := os.environ.get("TOOLCRIB_MODEL"):
        return parse_choice(said)
    failures = []
    for provider in usable(client):
        try:
            models = client.models(provider)
        except ToolcribError as error:
            failures.append(f"{provider}: {error.message}")
            continue
        if model := preferred(models):
            return ModelChoice(provider, model.id)
        failures.append(f"{provider}: it has no model that can use tools.")
    if failures:
        raise Misconfigured("No model can be reached.\n  " + "\n  ".join(failures))
    raise Misconfigured(NO_MODEL)


def preferred(models: Sequence[ModelData]) -> ModelData | None:
    """The newest of the middle kind, by their names: good with tools, and not the dearest."""
    with_tools = [model for model in models if model.supports_tools]
    if not with_tools:
        return None
    for pattern in (r"sonnet", r"^gpt-\d+(\.\d+)?$", r"^gpt-\d", r"coder", r"^(qwen|llama|mistral|devstral)"):
        fitting = [model for model in with_tools if re.search(pattern, model.id)]
        if fitting:
            return max(fitting, key=_version)
    return with_tools[0]


def _version(model: ModelData) -> tuple[tuple[int, ...], str]:
    # Dates are not versions: a long number says when a model was made.
    numbers = tuple(int(number) for number in re.findall(r"\d+", model.id) if len(number) < 5)
    return numbers, model.id


def _stored(client: Client) -> list[str]:
    return [one.provider for one in client.provider_credentials()]


def _ollama_address(host: str) -> str:
    """As Ollama itself reads it: scheme and port may be missing, and to listen everywhere is to answer here."""
    address = host if "://" in host else f"http://{host}"
    address = address.rstrip("/").replace("//0.0.0.0", "//127.0.0.1")
    return address if re.search(r":\d+$", address) else f"{address}:11434"
