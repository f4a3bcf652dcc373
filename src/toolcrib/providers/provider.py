"""The interface of a model provider, and the validation of its credentials. Independent of any wire format."""

import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol
from urllib.parse import urlsplit

from toolcrib.core.errors import ProviderErrorKind
from toolcrib.core.messages import Message
from toolcrib.core.model_stream import StreamEvent
from toolcrib.providers.provider_errors import stream_error


class ToolSpec(Protocol):
    """A tool as it is described to a model."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> Mapping[str, Any]: ...


class ToolChoice(StrEnum):
    """``none``: the tools stay declared, because the conversation mentions them, but the model may not call them."""

    AUTO = "auto"
    REQUIRED = "required"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One turn of a model. Without ``tools`` it is plain chat: calls in the messages become text.

    ``thinking_tokens``: how much the model may think first, where that can be set; 0 leaves it to the model.
    ``context_window``: the context size to request, where the provider lets the client choose (Ollama).
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolChoice.AUTO
    max_output_tokens: int | None = None
    temperature: float | None = None
    thinking_tokens: int = 0
    context_window: int | None = None


@dataclass(frozen=True, slots=True)
class ProviderCredentials:
    """A user's credentials for a provider. The representation shows neither secret nor headers."""

    secret: str = field(default="", repr=False)
    base_url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known about a model; ``context_window`` in tokens, None if the provider does not say."""

    id: str
    name: str
    context_window: int | None
    supports_tools: bool
    max_output_tokens: int | None = None


class Provider(Protocol):
    """One model provider. All its failures are ProviderErrors."""

    name: str

    def stream(self, request: ModelRequest, credentials: ProviderCredentials) -> AsyncGenerator[StreamEvent, None]:
        """Stream one answer of the model. A failure is the last event; closing the generator closes the connection."""
        ...

    async def list_models(self, credentials: ProviderCredentials) -> list[ModelInfo]:
        """Return the models that these credentials may use.

        Raises:
            ProviderError: The request failed.
        """
        ...

    async def validate_credentials(self, credentials: ProviderCredentials) -> None:
        """Check the credentials.

        Raises:
            ProviderError: The provider does not accept them.
        """
        ...


# Valid header values.
_VALUE = re.compile(r"[\x20-\x7e]*")
_NAME = re.compile(r"[a-zA-Z0-9!#$%&'*+.^_`|~-]+")
# They control how the body is sent and to whom, so a user may not set them.
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-type", "accept-encoding"})


def validate_endpoint(credentials: ProviderCredentials, default: str) -> str:
    """Return the URL of the provider, without looking up its host.

    Raises:
        ProviderError: The URL is invalid, or the key or the headers cannot be sent.
    """
    if not _VALUE.fullmatch(credentials.secret):
        raise stream_error(
            "The key contains an invalid character, such as a line end. Copy it again.",
            kind=ProviderErrorKind.CREDENTIALS,
        )
    for name, value in credentials.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name.lower() in _OURS:
            raise stream_error(
                f"The header {name!r} cannot be sent with requests to a model.", kind=ProviderErrorKind.REQUEST
            )
    address = credentials.base_url or default
    if not _is_address(address):
        # Not repeated in the message: it may contain a password.
        raise stream_error(
            "Not the URL of a model server. Use one such as http://127.0.0.1:8000/v1, without a password.",
            kind=ProviderErrorKind.REQUEST,
        )
    return address.rstrip("/")


def _is_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return (
        sound and parts.username is None and not parts.query and not parts.fragment and bool(_VALUE.fullmatch(address))
    )
