"""OpenAI and servers with its Chat Completions API: OpenAI itself, GitHub Copilot, and compatible servers."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import Any, ClassVar, cast

import httpx2
import openai

from toolcrib.core.errors import ProviderErrorKind
from toolcrib.core.messages import UserMessage
from toolcrib.core.model_stream import StreamEvent
from toolcrib.providers.chat_completions import ChatCompletionReader, request_body
from toolcrib.providers.provider import ModelInfo, ModelRequest, ProviderCredentials, validate_endpoint
from toolcrib.providers.provider_errors import response_error, stream_error
from toolcrib.providers.stream_reader import SseSplitter, encoded, interrupted, read_answer
from toolcrib.providers.wire_history import ToolNameEncoder


class OpenAIChat:
    """Base of providers with OpenAI's Chat Completions; subclasses have the differences between servers.

    The SDK makes the request; this class parses the stream, because the SDK's typed events cost several times as much.
    """

    name: ClassVar[str]
    address: ClassVar[str]
    max_tokens_field: ClassVar[str] = "max_tokens"

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self._platform: Any = None

    def stream(self, request: ModelRequest, credentials: ProviderCredentials) -> AsyncGenerator[StreamEvent, None]:
        names = ToolNameEncoder.of(request.tools, request.messages)
        body = request_body(request, names, provider=self.name, max_tokens_field=self.max_tokens_field)
        content = encoded(body)

        def opening() -> AbstractAsyncContextManager[httpx2.Response]:
            return self._answer("/chat/completions", content, credentials, self.headers(request))

        return read_answer(opening, SseSplitter(), ChatCompletionReader(request, names, provider=self.name))

    async def list_models(self, credentials: ProviderCredentials) -> list[ModelInfo]:
        async with _our_errors(credentials):
            client = self._client(credentials, {})
            response = await client.get("/models", cast_to=httpx2.Response)
            found = _json(response).get("data")
        models = [self.model_info(entry) for entry in _entries(found)]
        return sorted((model for model in models if model), key=lambda model: model.id)

    async def validate_credentials(self, credentials: ProviderCredentials) -> None:
        await self.list_models(credentials)

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        """Return the headers that this server needs besides the key."""
        return {}

    def model_info(self, entry: Mapping[str, Any]) -> ModelInfo | None:
        """Parse an entry of the server's model list; None if it is not a chat model."""
        raise NotImplementedError

    @asynccontextmanager
    async def _answer(
        self, path: str, content: bytes, credentials: ProviderCredentials, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx2.Response]:
        async with _our_errors(credentials):
            client = self._client(credentials, headers)
            sent = await client.post(
                path, cast_to=httpx2.Response, content=content, stream=True, stream_cls=openai.AsyncStream[object]
            )
        self._platform = client._platform
        # With a raw response requested, the SDK returns this type, whatever its signature says.
        response = cast(httpx2.Response, sent)
        try:
            yield response
        finally:
            await response.aclose()

    def _client(self, credentials: ProviderCredentials, headers: Mapping[str, str]) -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(
            # Never empty: the SDK would look for a key in the server's environment.
            api_key=credentials.secret or "none",
            base_url=validate_endpoint(credentials, self.address),
            http_client=self._http,
            max_retries=0,
        )
        # The SDK adds settings of the server's environment, which must not affect where a user's requests go.
        client.organization = client.project = None
        # Each new client would detect the platform again, in a thread.
        client._platform = client._platform or self._platform
        client._custom_headers = {**headers, **credentials.headers}
        return client


@asynccontextmanager
async def _our_errors(credentials: ProviderCredentials) -> AsyncIterator[None]:
    try:
        yield
    except openai.APIStatusError as error:
        text = error.response.text
        raise response_error(error.status_code, text, error.response.headers, secret=credentials.secret) from error
    except openai.APIConnectionError as error:
        cause = error.__cause__
        raise (
            interrupted(cause)
            if isinstance(cause, httpx2.TransportError)
            else stream_error(f"Cannot connect to the provider: {error}.", kind=ProviderErrorKind.UNAVAILABLE)
        ) from error
    except (openai.OpenAIError, httpx2.HTTPError) as error:
        raise stream_error(f"The provider's response is invalid: {error}.") from error


def _json(response: httpx2.Response) -> Mapping[str, Any]:
    try:
        found = response.json()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise stream_error("The provider's model list is not a JSON object.", kind=ProviderErrorKind.REQUEST)
    return found


def _entries(found: object) -> Iterable[Mapping[str, Any]]:
    entries = found if isinstance(found, list) else []
    return (entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str))


# OpenAI lists names only. The facts by the longest matching prefix; None: not for chat, or not with this API.
_FAMILIES: Mapping[str, tuple[int, bool] | None] = {
    "gpt-3.5": (16_385, True),
    "gpt-3.5-turbo-instruct": None,
    "gpt-4": (8_192, True),
    "gpt-4-turbo": (128_000, True),
    "gpt-4.1": (1_047_576, True),
    "gpt-4o": (128_000, True),
    "gpt-4o-audio": None,
    "gpt-4o-realtime": None,
    "gpt-4o-transcribe": None,
    "gpt-4o-mini-audio": None,
    "gpt-4o-mini-realtime": None,
    "gpt-4o-mini-transcribe": None,
    "gpt-4o-mini-tts": None,
    "gpt-5": (400_000, True),
    "gpt-5-chat": (128_000, False),
    "gpt-audio": None,
    "gpt-image": None,
    "gpt-realtime": None,
    "chatgpt-4o": (128_000, False),
    "o1": (200_000, True),
    "o1-mini": (128_000, False),
    "o1-preview": (128_000, False),
    "o1-pro": None,
    "o3": (200_000, True),
    "o3-pro": None,
    "o4": (200_000, True),
}


class OpenAI(OpenAIChat):
    """OpenAI itself."""

    name: ClassVar[str] = "openai"
    address: ClassVar[str] = "https://api.openai.com/v1"
    # Reasoning models reject `max_tokens`.
    max_tokens_field: ClassVar[str] = "max_completion_tokens"

    def model_info(self, entry: Mapping[str, Any]) -> ModelInfo | None:
        model = str(entry["id"])
        family = max((start for start in _FAMILIES if base(model).startswith(start)), key=len, default=None)
        if family is not None:
            known = _FAMILIES[family]
            return ModelInfo(model, model, *known) if known else None
        if base(model).startswith("gpt-") or (base(model)[:1] == "o" and base(model)[1:2].isdigit()):
            return ModelInfo(model, model, None, supports_tools=True)
        return None


def base(model: str) -> str:
    """Return the base model of a fine-tuned one: `ft:gpt-4o-mini:who::id`."""
    return model.split(":")[1] if model.startswith("ft:") and ":" in model[3:] else model


_VERSION = version("toolcrib")


class Copilot(OpenAIChat):
    """GitHub Copilot. The credentials are a GitHub token with access to Copilot."""

    name: ClassVar[str] = "copilot"
    address: ClassVar[str] = "https://api.githubcopilot.com"

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


class OpenAICompatible(OpenAIChat):
    """Any server that imitates OpenAI's Chat Completions at a user's URL: vLLM, llama.cpp, OpenRouter …"""

    name: ClassVar[str] = "openai-compatible"
    address: ClassVar[str] = ""

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
