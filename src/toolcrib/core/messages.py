"""Messages to and from a model, independent of the provider."""

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NewType

# The provider's id of a call, which the result must repeat. Toolcrib's own id of a call is a ``CallId``.
ToolCallId = NewType("ToolCallId", str)


@dataclass(frozen=True, slots=True)
class SystemMessage:
    role: ClassVar = "system"
    text: str


IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
PDF_TYPE: Final = "application/pdf"


@dataclass(frozen=True, slots=True)
class Attachment:
    """An image or a PDF that a model reads with a message: one of ``IMAGE_TYPES``, or ``PDF_TYPE``."""

    name: str
    media_type: str
    data: bytes = field(repr=False)

    @property
    def is_image(self) -> bool:
        return self.media_type in IMAGE_TYPES

    @property
    def base64(self) -> str:
        """The content in base64."""
        return b64encode(self.data).decode()

    @property
    def data_url(self) -> str:
        """The content as a URL."""
        return f"data:{self.media_type};base64,{self.base64}"


@dataclass(frozen=True, slots=True)
class UserMessage:
    role: ClassVar = "user"
    text: str
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelToolCall:
    """A call that a model requests. ``arguments`` is the JSON text as the model wrote it, which may be invalid."""

    id: ToolCallId
    name: str
    arguments: str = "{}"

    def parsed(self) -> dict[str, Any] | None:
        """Return the arguments, or None if they are not a JSON object. Empty text means no arguments."""
        try:
            value = json.loads(self.arguments) if self.arguments.strip() else {}
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    """Data that a provider needs back with its model's message, unchanged, such as signatures of thinking.

    Only that provider and model use it; all others ignore it.
    """

    provider: str
    model: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    role: ClassVar = "assistant"
    text: str = ""
    thinking: str = ""
    tool_calls: tuple[ModelToolCall, ...] = ()
    note: ProviderMetadata | None = None


@dataclass(frozen=True, slots=True)
class ToolResultMessage:
    role: ClassVar = "tool"
    call_id: ToolCallId
    text: str
    is_error: bool = False
    attachments: tuple[Attachment, ...] = ()


Message = SystemMessage | UserMessage | AssistantMessage | ToolResultMessage


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as stored: a role, a text, and other data in ``metadata``."""

    role: str
    content: str
    metadata: dict[str, Any] | None = None


def to_stored(message: Message) -> StoredMessage:
    """Convert a message for storage; calls and results in OpenAI's format."""
    match message:
        case SystemMessage(text) | UserMessage(text):
            return StoredMessage(message.role, text)
        case AssistantMessage(text):
            return StoredMessage(message.role, text, _assistant_metadata(message) or None)
        case ToolResultMessage(call_id, text, is_error):
            metadata: dict[str, Any] = {"tool_call_id": call_id}
            return StoredMessage(message.role, text, metadata | ({"is_error": True} if is_error else {}))


def from_stored(record: StoredMessage) -> Message:
    """Convert a stored message back. Raises ``ValueError`` if its role is unknown."""
    metadata = record.metadata or {}
    match record.role:
        case SystemMessage.role:
            return SystemMessage(record.content)
        case UserMessage.role:
            return UserMessage(record.content)
        case AssistantMessage.role:
            calls = tuple(_call(found) for found in metadata.get("tool_calls", ()))
            note = ProviderMetadata(**metadata["note"]) if "note" in metadata else None
            return AssistantMessage(record.content, metadata.get("thinking", ""), calls, note)
        case ToolResultMessage.role:
            call_id = ToolCallId(metadata["tool_call_id"])
            return ToolResultMessage(call_id, record.content, is_error=metadata.get("is_error", False))
    raise ValueError(f"Unknown message role {record.role!r}.")


def _assistant_metadata(message: AssistantMessage) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    if message.tool_calls:
        metadata["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.thinking:
        metadata["thinking"] = message.thinking
    if message.note:
        note = message.note
        metadata["note"] = {"provider": note.provider, "model": note.model, "data": dict(note.data)}
    return metadata


def _call(found: Mapping[str, Any]) -> ModelToolCall:
    return ModelToolCall(ToolCallId(found["id"]), found["function"]["name"], found["function"]["arguments"])


_TITLE_CHARACTERS: Final = 60


def session_title(prompt: str) -> str | None:
    """Return the beginning of a session's first message as its title, cut between words."""
    printable = "".join(sign for sign in " ".join(prompt.split()) if sign.isprintable()).strip()
    if len(printable) <= _TITLE_CHARACTERS:
        return printable or None
    cut = printable[:_TITLE_CHARACTERS]
    words = cut.rpartition(" ")[0]
    return f"{(words if len(words) > _TITLE_CHARACTERS // 2 else cut).rstrip()}…"
