"""The messages that clients send in the chat protocol and the plain protocol, validated."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from toolcrib.api.request_guard import read_json
from toolcrib.core.attachments import MAX_ATTACHMENTS
from toolcrib.core.errors import BadArguments
from toolcrib.core.paused_calls import GrantScope
from toolcrib.core.runs import DEFAULT_PRIORITY, LAST_PRIORITY
from toolcrib.schemas.schema_base import Name
from toolcrib.schemas.sessions import AttachedFile

ModelT = TypeVar("ModelT", bound=BaseModel)


class ChatPayload(BaseModel):
    """A payload in camelCase. Unknown fields are errors."""

    # Messages are only parsed, never constructed by field name.
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)  # type: ignore[pydantic-alias]


class ConversationPayload(ChatPayload):
    """A payload about one session."""

    conversation_id: UUID


class AuthMessage(ChatPayload):
    """``auth``: identifies the client by an access token, an API key or a ticket."""

    token: str | None = Field(default=None, max_length=8_000)
    ticket: str | None = Field(default=None, max_length=200)

    @model_validator(mode="after")
    def _one_of_them(self) -> "AuthMessage":
        if (self.token is None) == (self.ticket is None):
            raise ValueError("Expected a token or a ticket")
        return self


class ResumeMessage(ConversationPayload):
    """``chat:resume``: subscribes to a session, starting after this event number."""

    after: int = Field(default=0, ge=0)


class UnsubscribeMessage(ConversationPayload):
    """``chat:unsubscribe``: unsubscribes from a session."""


class WatchMessage(ChatPayload):
    """``chat:watch``: subscribes to what changes in the workspace, until the connection ends."""


class ToolCallMessage(ConversationPayload):
    """``chat:tool-call``: calls a tool as the session's agent or, without one, as the person."""

    tool: str = Field(max_length=200)
    args: dict[str, Any]


class GrantRuleMessage(ChatPayload):
    """The grant to store with an approval."""

    tools: Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(min_length=1, max_length=50)]
    paths: Annotated[tuple[Annotated[str, Field(max_length=1_000)], ...], Field(max_length=100)] | None = None
    commands: Annotated[tuple[Annotated[str, Field(max_length=10_000)], ...], Field(max_length=100)] | None = None
    hosts: Annotated[tuple[Annotated[str, Field(max_length=300)], ...], Field(max_length=100)] | None = None
    arguments: Annotated[dict[str, Annotated[str, Field(max_length=1_000)]], Field(max_length=100)] | None = None
    access: Annotated[tuple[Annotated[str, Field(max_length=300)], ...], Field(max_length=100)] | None = None


class ToolApproveMessage(ChatPayload):
    """``chat:tool-approve``: a person's decision on a pending call."""

    tool_id: UUID
    approved: bool
    pause_id: UUID | None = None
    scope: GrantScope = GrantScope.ONCE
    reason: str | None = Field(default=None, max_length=2_000)
    rule: GrantRuleMessage | None = None
    arguments_sha256: str | None = Field(default=None, max_length=64)


class AnswerMessage(ChatPayload):
    """``chat:answer``: a person's answers. ``answeredWithButton`` names the questions answered with a button."""

    pause_id: UUID
    answers: dict[str, Any]
    answered_with_button: tuple[Name, ...] = Field(default=(), max_length=10)


class CancelMessage(ConversationPayload):
    """``chat:cancel``: stops what runs in a session."""


class LenientPayload(ChatPayload):
    """A payload of which unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")


class EarlierCall(LenientPayload):
    """A tool call in the client's history."""

    name: str = Field(max_length=200)
    input: Any = None


class HistoryMessage(LenientPayload):
    """A message of a conversation that the client keeps itself."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[EarlierCall, ...] = ()
    tool_name: str | None = Field(default=None, max_length=200)


class SendMessage(LenientPayload):
    """``chat:send``: a message for the session's model. Clients of older servers send more fields."""

    conversation_id: UUID
    content: str = Field(max_length=1_000_000)
    history: tuple[HistoryMessage, ...] = ()
    attachments: tuple[Annotated[str, Field(max_length=4_096)] | AttachedFile, ...] = Field(
        default=(), max_length=MAX_ATTACHMENTS
    )
    priority: int = Field(default=DEFAULT_PRIORITY, ge=0, le=LAST_PRIORITY)


def earlier_turns(history: Sequence[HistoryMessage]) -> list[tuple[str, str]]:
    """Return the client's history as turns by role.

    Calls and results become text of the assistant: they did not happen here, so they are no tool calls of this session.
    System messages are dropped, because a client may not set the system prompt.
    """
    turns: list[tuple[str, str]] = []
    for one in history:
        calls = [f"[Called {call.name} with {json.dumps(call.input)}]" for call in one.tool_calls]
        words = "\n".join([*([one.content] if one.content else []), *calls])
        if one.role == "tool":
            words = f"[Result of {one.tool_name or 'a tool'}: {one.content}]"
        if one.role == "system" or not words:
            continue
        role = "user" if one.role == "user" else "assistant"
        if role == "assistant" and turns and turns[-1][0] == "assistant":
            turns[-1] = (role, f"{turns[-1][1]}\n{words}")
        else:
            turns.append((role, words))
    return turns


class PromptMessage(LenientPayload):
    """The only message of the plain protocol."""

    type: Literal["prompt"]
    text: str = Field(max_length=1_000_000)
    session_id: UUID | None = None


# The sender is not authenticated yet.
_LONGEST_INTRODUCTION: Final = 16_384

CHAT: Final[Mapping[str, type[ChatPayload]]] = {
    "auth": AuthMessage,
    "chat:resume": ResumeMessage,
    "chat:unsubscribe": UnsubscribeMessage,
    "chat:watch": WatchMessage,
    "chat:tool-call": ToolCallMessage,
    "chat:tool-approve": ToolApproveMessage,
    "chat:answer": AnswerMessage,
    "chat:cancel": CancelMessage,
    "chat:send": SendMessage,
}


class ChatEnvelope(LenientPayload):
    """The envelope of every chat message. ``id`` is set by the client and returned with the reply."""

    type: str = Field(max_length=100)
    payload: dict[str, Any] = Field(default_factory=dict)
    id: str | int | None = None


async def opened(frame: Mapping[str, Any]) -> Any:
    """Parse the JSON of a frame."""
    text = frame.get("text")
    if text is None:
        raise BadArguments({"frame": "Expected text, got binary"})
    return await read_json(text.encode())


def payload_of(envelope: ChatEnvelope) -> ChatPayload:
    """Validate the payload by the envelope's type."""
    model = CHAT.get(envelope.type)
    if model is None:
        raise BadArguments({"type": f"Expected one of {', '.join(CHAT)}"})
    return checked(model, envelope.payload)


async def introduction(frame: Mapping[str, Any]) -> AuthMessage:
    """Parse the first message, which must be ``auth``."""
    if len(frame.get("text") or "") > _LONGEST_INTRODUCTION:
        raise BadArguments({"frame": f"Expected at most {_LONGEST_INTRODUCTION:,} characters in the auth message"})
    message = checked(ChatEnvelope, await opened(frame))
    if message.type != "auth":
        raise BadArguments({"type": "Expected an auth message first"})
    return checked(AuthMessage, message.payload)


def agreed(reply: str | int | None = None, **payload: Any) -> dict[str, Any]:
    """Return ``chat:ok``: the request is done or in progress."""
    return {"type": "chat:ok", "payload": payload} | ({} if reply is None else {"id": reply})


def checked(model: type[ModelT], value: Any) -> ModelT:
    """Validate a value.

    Raises:
        BadArguments: Says per field what was expected, and never what was given.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        fields = {
            ".".join(str(step) for step in detail["loc"]) or "message": detail["msg"] for detail in error.errors()
        }
        raise BadArguments(fields) from None
