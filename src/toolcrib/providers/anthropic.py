"""Anthropic, over its Messages API. The SDK makes the request; this module parses the stream."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, cast

import anthropic
import httpx2

from toolcrib.core.errors import ProviderErrorKind
from toolcrib.core.model_stream import StreamEvent
from toolcrib.providers.anthropic_messages import AnthropicEventReader, request_body
from toolcrib.providers.http_pool import TIMEOUT
from toolcrib.providers.provider import ModelInfo, ModelRequest, ProviderCredentials, validate_endpoint
from toolcrib.providers.provider_errors import response_error, stream_error
from toolcrib.providers.stream_reader import SseSplitter, count_of, encoded, interrupted, read_answer
from toolcrib.providers.wire_history import ToolNameEncoder

_MOST_MODELS = 1000


class Anthropic:
    """Anthropic's provider."""

    name: ClassVar[str] = "anthropic"
    address: ClassVar[str] = "https://api.anthropic.com"

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self._platform: Any = None

    def stream(self, request: ModelRequest, credentials: ProviderCredentials) -> AsyncGenerator[StreamEvent, None]:
        names = ToolNameEncoder.of(request.tools, request.messages)
        body = encoded(request_body(request, names, provider=self.name))

        def opening() -> AbstractAsyncContextManager[httpx2.Response]:
            return self._answer(body, credentials)

        return read_answer(opening, SseSplitter(), AnthropicEventReader(request, names, provider=self.name))

    async def list_models(self, credentials: ProviderCredentials) -> list[ModelInfo]:
        async with _our_errors(credentials):
            response = await self._client(credentials).get(
                "/v1/models", cast_to=httpx2.Response, options={"params": {"limit": _MOST_MODELS}}
            )
        return _models(response)

    async def validate_credentials(self, credentials: ProviderCredentials) -> None:
        await self.list_models(credentials)

    @asynccontextmanager
    async def _answer(self, body: bytes, credentials: ProviderCredentials) -> AsyncIterator[httpx2.Response]:
        async with _our_errors(credentials):
            client = self._client(credentials)
            sent = await client.post(
                "/v1/messages",
                cast_to=httpx2.Response,
                content=body,
                # Otherwise the SDK's headers say that there is no timeout.
                options={"timeout": TIMEOUT},
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
        self._platform = client._platform
        # With a raw response requested, the SDK returns this type, whatever its signature says.
        response = cast(httpx2.Response, sent)
        try:
            yield response
        finally:
            await response.aclose()

    def _client(self, credentials: ProviderCredentials) -> anthropic.AsyncAnthropic:
        client = anthropic.AsyncAnthropic(
            # Never empty: the SDK would look for a key in the server's environment.
            api_key=credentials.secret or "none",
            base_url=validate_endpoint(credentials, self.address),
            http_client=self._http,
            max_retries=0,
        )
        # The SDK adds settings of the server's environment, which must not affect where a user's requests go. The
        # platform is cached, because each new client would detect it again in a thread.
        client._platform = client._platform or self._platform
        client._custom_headers = dict(credentials.headers)
        return client


@asynccontextmanager
async def _our_errors(credentials: ProviderCredentials) -> AsyncIterator[None]:
    try:
        yield
    except anthropic.APIStatusError as error:
        text = error.response.text
        raise response_error(error.status_code, text, error.response.headers, secret=credentials.secret) from error
    except anthropic.APIConnectionError as error:
        cause = error.__cause__
        raise (
            interrupted(cause)
            if isinstance(cause, httpx2.TransportError)
            else stream_error(f"Cannot connect to the provider: {error}.", kind=ProviderErrorKind.UNAVAILABLE)
        ) from error
    except (anthropic.AnthropicError, httpx2.HTTPError) as error:
        raise stream_error(f"The provider's response is invalid: {error}.") from error


def _models(response: httpx2.Response) -> list[ModelInfo]:
    try:
        found = response.json()["data"]
        return [_model(entry) for entry in found if entry.get("lifecycle") != "retired"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise stream_error("The provider's model list is invalid.", kind=ProviderErrorKind.REQUEST) from None


def _model(entry: Mapping[str, Any]) -> ModelInfo:
    return ModelInfo(
        str(entry["id"]),
        str(entry.get("display_name") or entry["id"]),
        count_of(entry.get("max_input_tokens")) or None,
        # All models that it lists support tools.
        supports_tools=True,
        max_output_tokens=count_of(entry.get("max_tokens")) or None,
    )
