"""OpenAI and servers with its APIs, Responses and Chat Completions: OpenAI, GitHub Copilot, compatible servers."""

import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any, ClassVar

from toolcrib.core.messages import UserMessage
from toolcrib.core.model_options import Wire
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.providers import chat_completions, openai_responses
from toolcrib.providers.model_catalog import context_window, model_facts
from toolcrib.providers.provider import ModelInfo, ModelRequest
from toolcrib.providers.stream_reader import StreamEventReader
from toolcrib.providers.wire_history import ToolNameEncoder
from toolcrib.providers.wire_provider import WireProvider


class OpenAIServer(WireProvider):
    """Base of providers with OpenAI's APIs; subclasses have the differences between servers."""

    path: ClassVar[str] = "/chat/completions"
    responses_path: ClassVar[str] = "/responses"
    models_path: ClassVar[str] = "/models"
    max_tokens_field: ClassVar[str] = "max_tokens"

    def wire(self, model: str) -> Wire:
        """Return the API for a model, if the agent does not name one."""
        return Wire.CHAT_COMPLETIONS

    def reasons(self, model: str) -> bool:
        """Return whether it is a reasoning model, as far as that is known."""
        return True

    def accepts_temperature(self, model: str) -> bool:
        """Return whether the model accepts a temperature."""
        return True

    def path_for(self, request: ModelRequest) -> str:
        return self.responses_path if self._uses_responses(request) else self.path

    def request_body(self, request: ModelRequest, names: ToolNameEncoder) -> dict[str, Any]:
        if not self.accepts_temperature(request.model):
            request = replace(request, temperature=None)
        if self._uses_responses(request):
            reasons = self.reasons(request.model)
            return openai_responses.request_body(request, names, provider=self.name, reasons=reasons)
        return chat_completions.request_body(request, names, provider=self.name, max_tokens_field=self.max_tokens_field)

    def reader(self, request: ModelRequest, names: ToolNameEncoder) -> StreamEventReader:
        if self._uses_responses(request):
            return openai_responses.ResponsesEventReader(request, names, provider=self.name)
        return chat_completions.ChatCompletionReader(request, names, provider=self.name)

    def _uses_responses(self, request: ModelRequest) -> bool:
        return (request.wire or self.wire(request.model)) is Wire.RESPONSES

    async def list_models(self, credentials: ProviderCredentials) -> list[ModelInfo]:
        return sorted(await super().list_models(credentials), key=lambda model: model.id)


# OpenAI lists names only, of models for everything.
_NOT_FOR_CHAT = (
    "gpt-3.5-turbo-instruct",
    "gpt-4o-audio",
    "gpt-4o-mini-audio",
    "gpt-4o-mini-realtime",
    "gpt-4o-mini-transcribe",
    "gpt-4o-mini-tts",
    "gpt-4o-realtime",
    "gpt-4o-transcribe",
    "gpt-5-image",
    "gpt-5.4-image",
    "gpt-audio",
    "gpt-image",
    "gpt-live",
    "gpt-realtime",
    "gpt-transcribe",
)
_WITHOUT_TOOLS = ("chatgpt-4o", "gpt-5-chat", "o1-mini", "o1-preview")
_FOR_CHAT = re.compile(r"gpt-|chatgpt-|o\d")
# They do not reason, so they reject every field about reasoning.
_WITHOUT_REASONING = ("gpt-3.5", "gpt-4", "gpt-5-chat", "chatgpt-4o")


class OpenAI(OpenAIServer):
    """OpenAI itself: Responses for all models, because the newer ones call tools only there."""

    name: ClassVar[str] = "openai"
    address: ClassVar[str] = "https://api.openai.com/v1"
    variable: ClassVar[str] = "OPENAI_API_KEY"
    # Reasoning models reject `max_tokens`.
    max_tokens_field: ClassVar[str] = "max_completion_tokens"

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> ProviderCredentials | None:
        # With another URL it is a compatible server.
        return None if variables.get(OpenAICompatible.base_url_variable) else super().from_environment(variables)

    def wire(self, model: str) -> Wire:
        return Wire.RESPONSES

    def reasons(self, model: str) -> bool:
        return not base(model).startswith(_WITHOUT_REASONING)

    def accepts_temperature(self, model: str) -> bool:
        return not self.reasons(model)

    def model_info(self, entry: Mapping[str, Any]) -> ModelInfo | None:
        model = str(entry["id"])
        name = base(model)
        if not _FOR_CHAT.match(name) or name.startswith(_NOT_FOR_CHAT):
            return None
        return ModelInfo(
            model,
            model,
            context_window(self.name, name),
            supports_tools=not name.startswith(_WITHOUT_TOOLS),
            max_output_tokens=model_facts(self.name, name).max_output_tokens,
        )


def base(model: str) -> str:
    """Return the base model of a fine-tuned one: `ft:gpt-4o-mini:who::id`."""
    return model.split(":")[1] if model.startswith("ft:") and ":" in model[3:] else model


_VERSION = version("toolcrib")
_GPT = re.compile(r"gpt-(\d+)")


class Copilot(OpenAIServer):
    """GitHub Copilot: Responses for GPT-5 and later, Chat Completions for the models of others.

    The credentials are a GitHub token with access to Copilot.
    """

    name: ClassVar[str] = "copilot"
    address: ClassVar[str] = "https://api.githubcopilot.com"

    def wire(self, model: str) -> Wire:
        found = _GPT.match(model)
        # Copilot offers the mini of the first generation with Chat Completions only.
        is_new = found is not None and int(found[1]) >= 5 and not model.startswith("gpt-5-mini")
        return Wire.RESPONSES if is_new else Wire.CHAT_COMPLETIONS

    def accepts_temperature(self, model: str) -> bool:
        return self.wire(model) is Wire.CHAT_COMPLETIONS

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        last = request.messages[-1] if request.messages else None
        return {
            "User-Agent": f"toolcrib/{_VERSION}",
            "Openai-Intent": "conversation-edits",
            # A person's request counts against their plan; the agent loop's own requests do not.
            "X-Initiator": "user" if isinstance(last, UserMessage) else "agent",
        }

    def model_info(self, entry: Mapping[str, Any]) -> ModelInfo | None:
        capabilities = _mapping(entry.get("capabilities"))
        if capabilities.get("type", "chat") != "chat":
            return None
        limits, supports = _mapping(capabilities.get("limits")), _mapping(capabilities.get("supports"))
        window, output = limits.get("max_context_window_tokens"), limits.get("max_output_tokens")
        name = entry.get("name")
        return ModelInfo(
            entry["id"],
            name if isinstance(name, str) and name else entry["id"],
            window if isinstance(window, int) else None,
            supports_tools=bool(supports.get("tool_calls", not supports)),
            max_output_tokens=output if isinstance(output, int) else None,
        )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


# Where servers that report the context size put it.
_WINDOW_FIELDS = ("context_length", "max_model_len", "context_window", "max_context_length")


class OpenAICompatible(OpenAIServer):
    """Any server that imitates OpenAI at a user's URL: vLLM, llama.cpp, OpenRouter …

    Chat Completions, which all of them have, unless the agent says ``wire: responses``.
    """

    name: ClassVar[str] = "openai-compatible"
    address: ClassVar[str] = ""
    variable: ClassVar[str] = OpenAI.variable
    base_url_variable: ClassVar[str] = "OPENAI_BASE_URL"

    def model_info(self, entry: Mapping[str, Any]) -> ModelInfo | None:
        windows = [entry.get(field) for field in _WINDOW_FIELDS]
        meta = entry.get("meta")
        if isinstance(meta, dict):
            # llama.cpp: the size that it was started with, otherwise the model's own.
            windows += [meta.get("n_ctx"), meta.get("n_ctx_train")]
        window = next((found for found in windows if isinstance(found, int) and found > 0), None)
        supported = entry.get("supported_parameters")
        name = entry.get("name")
        return ModelInfo(
            entry["id"],
            name if isinstance(name, str) and name else entry["id"],
            window,
            # Most servers do not say. If it is wrong, the server's error says so.
            supports_tools="tools" in supported if isinstance(supported, list) else True,
        )
