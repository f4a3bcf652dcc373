"""Base of the providers that answer a POST of JSON with server-sent events. A subclass has the wire format."""

import json
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping
from typing import Any, ClassVar

from toolcrib.core.errors import ProviderErrorKind
from toolcrib.core.model_stream import StreamEvent
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.network.network_policy import OutboundError
from toolcrib.providers.provider import ModelInfo, ModelRequest, Provider, stream_error
from toolcrib.providers.stream_reader import SseSplitter, StreamEventReader, encoded, interrupted, read_answer
from toolcrib.providers.wire_history import ToolNameEncoder


class WireProvider(Provider):
    """``path`` and ``models_path`` are below its ``address``."""

    path: ClassVar[str]
    models_path: ClassVar[str]
    # Where the answer has the list of models, and an entry its id.
    models_field: ClassVar[str] = "data"
    id_field: ClassVar[str] = "id"

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
        """Return the path for this request, where it depends on the model."""
        return self.path

    def headers(self, request: ModelRequest) -> Mapping[str, str]:
        """Return the headers that this request needs besides the key."""
        return {}

    def stream(self, request: ModelRequest, credentials: ProviderCredentials) -> AsyncGenerator[StreamEvent, None]:
        names = ToolNameEncoder.of(request.tools, request.messages)
        content = encoded(self.request_body(request, names))
        path, headers = self.path_for(request), {"Accept": "text/event-stream", **self.headers(request)}
        return read_answer(
            lambda: self._reply("POST", path, credentials, body=content, headers=headers),
            SseSplitter(),
            self.reader(request, names),
        )

    async def list_models(self, credentials: ProviderCredentials) -> list[ModelInfo]:
        try:
            async with self._reply("GET", self.models_path, credentials) as reply:
                content = await reply.read()
        except OutboundError as error:
            raise interrupted(error) from error
        models = [self.model_info(entry) for entry in self._entries(content)]
        return [model for model in models if model is not None]

    def _entries(self, content: bytes) -> list[Mapping[str, Any]]:
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise stream_error("The provider's model list is not a JSON object.", kind=ProviderErrorKind.REQUEST)
        models = found.get(self.models_field)
        entries = models if isinstance(models, list) else []
        return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get(self.id_field), str)]
