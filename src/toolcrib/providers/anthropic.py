"""Anthropic, over its Messages API."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.providers.anthropic_messages import AnthropicEventReader, request_body
from toolcrib.providers.model_catalog import context_window, model_facts
from toolcrib.providers.provider import ModelInfo, ModelRequest
from toolcrib.providers.stream_reader import StreamEventReader, count_of
from toolcrib.providers.wire_history import ToolNameEncoder
from toolcrib.providers.wire_provider import WireProvider

# The version of the API whose form the requests have; the vendor's SDK sends the same.
_VERSION: Final = "2026-10-21"


class Anthropic(WireProvider):
    """Anthropic's provider."""

    name: ClassVar[str] = "anthropic"
    address: ClassVar[str] = "https://api.anthropic.com"
    variable: ClassVar[str] = "ANTHROPIC_API_KEY"
    base_url_variable: ClassVar[str] = "ANTHROPIC_BASE_URL"
    path: ClassVar[str] = "/v1/messages"
    # All of them on one page.
    models_path: ClassVar[str] = "/v1/models?limit=1000"

    def auth_headers(self, credentials: ProviderCredentials) -> Mapping[str, str]:
        return {"anthropic-version": _VERSION, **super().auth_headers(credentials)}

    def request_body(self, request: ModelRequest, names: ToolNameEncoder) -> dict[str, Any]:
        return request_body(request, names, provider=self.name)

    def reader(self, request: ModelRequest, names: ToolNameEncoder) -> StreamEventReader:
        return AnthropicEventReader(request, names, provider=self.name)

    def model_info(self, entry: Mapping[str, Any]) -> ModelInfo | None:
        if entry.get("lifecycle") == "retired":
            return None
        return ModelInfo(
            entry["id"],
            str(entry.get("display_name") or entry["id"]),
            count_of(entry.get("max_input_tokens")) or context_window(self.name, entry["id"]),
            # All models that it lists support tools.
            supports_tools=True,
            max_output_tokens=count_of(entry.get("max_tokens"))
            or model_facts(self.name, entry["id"]).max_output_tokens,
        )
