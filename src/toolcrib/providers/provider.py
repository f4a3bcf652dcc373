"""What a model provider is to the rest of the program. Knows no wire."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from toolcrib.domain.messages import Message
from toolcrib.domain.streams import StreamEvent


class OfferedTool(Protocol):
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
    tools: tuple[OfferedTool, ...] = ()
    tool_choice: ToolChoice = ToolChoice.AUTO
    max_output_tokens: int | None = None
    temperature: float | None = None
    thinking_tokens: int = 0
    context_window: int | None = None


@dataclass(frozen=True, slots=True)
class Credentials:
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

    def stream(self, request: ModelRequest, credentials: Credentials) -> AsyncGenerator[StreamEvent, None]:
        """One answer of the model. Failures come as the last event; closing the generator closes the connection."""
        ...

    async def list_models(self, credentials: Credentials) -> list[ModelInfo]:
        """The models that these credentials may use; raises ProviderError."""
        ...

    async def validate_credentials(self, credentials: Credentials) -> None:
        """Raises ProviderError unless the provider accepts them."""
        ...
