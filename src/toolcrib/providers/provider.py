"""What a model provider is to the rest of the program. Knows no wire."""

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
    """A tool as a model is told of it."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> Mapping[str, Any]: ...


class ToolChoice(StrEnum):
    """``none``: the tools stay known, since the conversation speaks of them, and none may be called any more."""

    AUTO = "auto"
    REQUIRED = "required"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One turn of a model. Without ``tools`` it is plain chat: calls in the messages are then retold as text.

    ``thinking_tokens``: how much the model may think first, where that can be said; 0 leaves it to the model.
    ``context_window``: room to be made for the conversation, where the provider lets us choose (Ollama).
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
    """A user's own access to a provider. Never shown: neither secret nor headers appear in a representation."""

    secret: str = field(default="", repr=False)
    base_url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of a model; ``context_window`` in tokens, None where the provider does not tell."""

    id: str
    name: str
    context_window: int | None
    supports_tools: bool
    max_output_tokens: int | None = None


class Provider(Protocol):
    """One model provider. All its failures are ProviderErrors."""

    name: str

    def stream(self, request: ModelRequest, credentials: ProviderCredentials) -> AsyncGenerator[StreamEvent, None]:
        """One answer of the model. Failures come as the last event; closing the generator closes the connection."""
        ...

    async def list_models(self, credentials: ProviderCredentials) -> list[ModelInfo]:
        """The models that these credentials may use; raises ProviderError."""
        ...

    async def validate_credentials(self, credentials: ProviderCredentials) -> None:
        """Raises ProviderError unless the provider accepts them."""
        ...


# Whether credentials can be used at all: the address, the key and the headers. Does not look anything up.

# What may stand in the head of a request.
_VALUE = re.compile(r"[\x20-\x7e]*")
_NAME = re.compile(r"[a-zA-Z0-9!#$%&'*+.^_`|~-]+")
# They say how the body is carried, or for whom it is, and are not the user's to set.
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-type", "accept-encoding"})


def validate_endpoint(credentials: ProviderCredentials, default: str) -> str:
    """Where the provider is; raises ProviderError if that is no address, or key or headers cannot be sent."""
    if not _VALUE.fullmatch(credentials.secret):
        raise stream_error(
            "The key holds what no key can hold, such as a line end or an accent. Copy it again.",
            fault=ProviderErrorKind.CREDENTIALS,
        )
    for name, value in credentials.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name.lower() in _OURS:
            raise stream_error(
                f"The header {name!r} cannot be sent with requests to a model.", fault=ProviderErrorKind.REQUEST
            )
    address = credentials.base_url or default
    if not _is_address(address):
        # Not repeated: it may hold a password.
        raise stream_error(
            "This is no address of a model server. Give one such as http://127.0.0.1:8000/v1, with no password in it.",
            fault=ProviderErrorKind.REQUEST,
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
