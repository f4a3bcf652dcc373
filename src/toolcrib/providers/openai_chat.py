"""A provider over the vendor's SDK for OpenAI's chat completions; what differs between servers is in the subclasses."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, cast

import httpx2
import openai

from toolcrib.domain.errors import ProviderFault
from toolcrib.domain.streams import StreamEvent
from toolcrib.providers.addresses import checked_address
from toolcrib.providers.bodies import encoded
from toolcrib.providers.chat_completions import ChunkReader, request_body
from toolcrib.providers.faults import broken, refused
from toolcrib.providers.lines import ServerSentEvents
from toolcrib.providers.names import WireNames
from toolcrib.providers.provider import Credentials, ModelInfo, ModelRequest
from toolcrib.providers.reading import interrupted, read_answer


class OpenAIChat:
    """The SDK makes the request; we parse the stream, since the SDK's typed events cost several times as much."""

    name: ClassVar[str]
    address: ClassVar[str]
    max_tokens_field: ClassVar[str] = "max_tokens"

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self._platform: Any = None

    def stream(self, request: ModelRequest, credentials: Credentials) -> AsyncGenerator[StreamEvent, None]:
        names = WireNames.of(request.tools, request.messages)
        body = request_body(request, names, provider=self.name, max_tokens_field=self.max_tokens_field)
        content = encoded(body)

        def opening() -> AbstractAsyncContextManager[httpx2.Response]:
            return self._answer("/chat/completions", content, credentials, self.headers(request))

        return read_answer(opening, ServerSentEvents(), ChunkReader(request, names, provider=self.name))

    async def list_models(self, credentials: Credentials) -> list[ModelInfo]:
        async with _our_errors(credentials):
            client = self._client(credentials, {})
            response = await client.get("/models", cast_to=httpx2.Response)
            found = _json(response).get("data")
        models = [self.model_info(entry) for entry in _entries(found)]
        return sorted((model for model in models if model), key=lambda model: model.id)

    async def validate_credentials(self, credentials: Credentials) -> None:
        await self.list_models(credentials)

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        """What this server wants to be told besides the key."""
        return {}

    def model_info(self, entry: Mapping[str, Any]) -> ModelInfo | None:
        """A line of the server's list; None if it is no model for chat."""
        raise NotImplementedError

    @asynccontextmanager
    async def _answer(
        self, path: str, content: bytes, credentials: Credentials, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx2.Response]:
        async with _our_errors(credentials):
            client = self._client(credentials, headers)
            sent = await client.post(
                path, cast_to=httpx2.Response, content=content, stream=True, stream_cls=openai.AsyncStream[object]
            )
        self._platform = client._platform
        # Asked for a bare response, the SDK gives it, whatever its signature says.
        response = cast(httpx2.Response, sent)
        try:
            yield response
        finally:
            await response.aclose()

    def _client(self, credentials: Credentials, headers: Mapping[str, str]) -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(
            # Never empty: the SDK would look for one in the server's own environment.
            api_key=credentials.secret or "none",
            base_url=checked_address(credentials, self.address),
            http_client=self._http,
            max_retries=0,
        )
        # The SDK adds what the server's own environment says; that is no business of where a user's requests go.
        client.organization = client.project = None
        # Every client would find out anew, in a thread, what system this is.
        client._platform = client._platform or self._platform
        client._custom_headers = {**headers, **credentials.headers}
        return client


@asynccontextmanager
async def _our_errors(credentials: Credentials) -> AsyncIterator[None]:
    try:
        yield
    except openai.APIStatusError as error:
        text = error.response.text
        raise refused(error.status_code, text, error.response.headers, secret=credentials.secret) from error
    except openai.APIConnectionError as error:
        cause = error.__cause__
        raise (
            interrupted(cause)
            if isinstance(cause, httpx2.TransportError)
            else broken(f"No connection to the provider: {error}.", fault=ProviderFault.UNAVAILABLE)
        ) from error
    except (openai.OpenAIError, httpx2.HTTPError) as error:
        raise broken(f"The provider's answer cannot be read: {error}.") from error


def _json(response: httpx2.Response) -> Mapping[str, Any]:
    try:
        found = response.json()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise broken("The provider's list of models is no JSON object.", fault=ProviderFault.REQUEST)
    return found


def _entries(found: object) -> Iterable[Mapping[str, Any]]:
    entries = found if isinstance(found, list) else []
    return (entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str))
