"""Base of the providers whose vendor's SDK makes the requests. The SDKs are generated alike, so they are used alike.

The streams are parsed here, because the SDKs' typed events cost several times as much.
"""

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, NamedTuple

import httpx2

from toolcrib.core.errors import ProviderErrorKind
from toolcrib.core.model_stream import StreamEvent
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.providers.http_pool import TIMEOUT
from toolcrib.providers.provider import (
    ModelInfo,
    ModelRequest,
    Provider,
    response_error,
    stream_error,
    validate_endpoint,
)
from toolcrib.providers.stream_reader import SseSplitter, StreamEventReader, encoded, interrupted, read_answer
from toolcrib.providers.wire_history import ToolNameEncoder


class VendorSdk(NamedTuple):
    """A vendor's SDK: its module, the class of its client, and the base of its errors."""

    module: Any
    client: Any
    error: type[Exception]


class SdkProvider(Provider):
    """A subclass has the wire format; ``path`` and ``models_path`` are below its ``address``."""

    path: ClassVar[str]
    models_path: ClassVar[str]

    def __init__(self, http: httpx2.AsyncClient) -> None:
        super().__init__(http)
        self._sdk: VendorSdk = self.load_sdk()
        self._platform: Any = None

    @abstractmethod
    def request_body(self, request: ModelRequest, names: ToolNameEncoder) -> dict[str, Any]:
        """Return the request in the server's format."""

    @abstractmethod
    def reader(self, request: ModelRequest, names: ToolNameEncoder) -> StreamEventReader:
        """Return the parser of the answer's events."""

    @abstractmethod
    def model_info(self, entry: Mapping[str, Any]) -> ModelInfo | None:
        """Parse an entry of the server's model list; None if it cannot be used here."""

    def path_for(self, request: ModelRequest) -> str:
        """Return the path of this request."""
        return self.path

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        """Return the headers that this server needs besides the key."""
        return {}

    def stream(self, request: ModelRequest, credentials: ProviderCredentials) -> AsyncGenerator[StreamEvent, None]:
        names = ToolNameEncoder.of(request.tools, request.messages)
        content, headers = encoded(self.request_body(request, names)), self.headers(request)
        path = self.path_for(request)
        return read_answer(
            lambda: self._answer(path, content, credentials, headers), SseSplitter(), self.reader(request, names)
        )

    async def list_models(self, credentials: ProviderCredentials) -> list[ModelInfo]:
        async with self._our_errors(credentials):
            response = await self._client(credentials, {}).get(self.models_path, cast_to=httpx2.Response)
        models = [self.model_info(entry) for entry in _entries(response)]
        return [model for model in models if model is not None]

    @asynccontextmanager
    async def _answer(
        self, path: str, content: bytes, credentials: ProviderCredentials, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx2.Response]:
        async with self._our_errors(credentials):
            client = self._client(credentials, headers)
            # With a raw response requested, the SDK returns it, whatever its signature says.
            response: httpx2.Response = await client.post(
                path,
                cast_to=httpx2.Response,
                content=content,
                # Otherwise some SDK's headers say that there is no timeout.
                options={"timeout": TIMEOUT},
                stream=True,
                stream_cls=self._sdk.module.AsyncStream[object],
            )
        self._platform = client._platform
        try:
            yield response
        finally:
            await response.aclose()

    def _client(self, credentials: ProviderCredentials, headers: Mapping[str, str]) -> Any:
        client = self._sdk.client(
            # Never empty: the SDK would look for a key in the server's environment.
            api_key=credentials.secret or "none",
            base_url=validate_endpoint(credentials, self.address),
            http_client=self._http,
            max_retries=0,
        )
        # The SDK adds settings of the server's environment, which must not affect where a user's requests go.
        client.organization = client.project = None
        client._custom_headers = {**headers, **credentials.headers}
        # Each new client would detect the platform again, in a thread.
        client._platform = client._platform or self._platform
        return client

    @asynccontextmanager
    async def _our_errors(self, credentials: ProviderCredentials) -> AsyncIterator[None]:
        module = self._sdk.module
        try:
            yield
        except module.APIStatusError as error:
            text, headers = error.response.text, error.response.headers
            raise response_error(error.status_code, text, headers, secret=credentials.secret) from error
        except module.APIConnectionError as error:
            if isinstance(error.__cause__, httpx2.TransportError):
                raise interrupted(error.__cause__) from error
            message = f"Cannot connect to the provider: {error}."
            raise stream_error(message, kind=ProviderErrorKind.UNAVAILABLE) from error
        except (self._sdk.error, httpx2.HTTPError) as error:
            raise stream_error(f"The provider's response is invalid: {error}.") from error


def _entries(response: httpx2.Response) -> list[Mapping[str, Any]]:
    try:
        found = response.json()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise stream_error("The provider's model list is not a JSON object.", kind=ProviderErrorKind.REQUEST)
    data = found.get("data")
    entries = data if isinstance(data, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
