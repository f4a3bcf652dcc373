"""What clients say: the messages of the chat protocol and of the plain one, checked at the edge."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from toolcrib.domain.approvals import Scope
from toolcrib.domain.errors import BadArguments
from toolcrib.server.bodies import strict_json
from toolcrib.server.shapes import Name

ModelT = TypeVar("ModelT", bound=BaseModel)


class Said(BaseModel):
    """A payload: camelCase, and nothing in it that nobody asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Introduction(Said):
    """``auth``: who the client is, by an access token, an API key or a ticket."""

    token: str | None = Field(default=None, max_length=8_000)
    ticket: str | None = Field(default=None, max_length=200)

    @model_validator(mode="after")
    def _one_of_them(self) -> "Introduction":
        if (self.token is None) == (self.ticket is None):
            raise ValueError("Expected a token or a ticket")
        return self


class Resume(Said):
    """``chat:resume``: watch a session from the event after this number on."""

    conversation_id: UUID = Field(validation_alias="conversationId")
    after: int = Field(default=0, ge=0)


class Leave(Said):
    """``chat:leave``: watch it no more."""

    conversation_id: UUID = Field(validation_alias="conversationId")


class CallTool(Said):
    """``chat:tool-call``: the session's agent, or without one the person, calls a tool."""

    conversation_id: UUID = Field(validation_alias="conversationId")
    tool: str = Field(max_length=200)
    args: dict[str, Any]


class Rule(Said):
    tool: str = Field(max_length=200)
    paths: Annotated[tuple[Annotated[str, Field(max_length=1_000)], ...], Field(max_length=100)] | None = None
    commands: Annotated[tuple[Annotated[str, Field(max_length=10_000)], ...], Field(max_length=100)] | None = None


class Approve(Said):
    """``chat:tool-approve``: a person's decision on a call that waits."""

    tool_id: UUID = Field(validation_alias="toolId")
    approved: bool
    approval_id: UUID | None = Field(default=None, validation_alias="approvalId")
    scope: Scope = Scope.ONCE
    reason: str | None = Field(default=None, max_length=2_000)
    rule: Rule | None = None
    arguments_sha256: str | None = Field(default=None, max_length=64, validation_alias="argumentsSha256")


class Answer(Said):
    """``chat:answer``: a person's answer to a question that waits. ``byButton`` names what a button answered."""

    question_id: UUID = Field(validation_alias="questionId")
    answers: dict[str, Any]
    by_button: tuple[Name, ...] = Field(default=(), max_length=10, validation_alias="byButton")


class Cancel(Said):
    """``chat:cancel``: stop what runs in a session."""

    conversation_id: UUID = Field(validation_alias="conversationId")


class Earlier(BaseModel):
    """A message of a conversation that the client keeps itself."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Send(Said):
    """``chat:send``: a message for the session's model. Clients of older servers send more than we need."""

    model_config = ConfigDict(extra="ignore")

    conversation_id: UUID = Field(validation_alias="conversationId")
    content: str = Field(max_length=1_000_000)
    history: tuple[Earlier, ...] = ()


class Prompt(BaseModel):
    """The plain protocol's only message."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: Literal["prompt"]
    text: str = Field(max_length=1_000_000)
    session_id: UUID | None = Field(default=None, validation_alias="sessionId")


CHAT: Final[Mapping[str, type[Said]]] = {
    "auth": Introduction,
    "chat:resume": Resume,
    "chat:leave": Leave,
    "chat:tool-call": CallTool,
    "chat:tool-approve": Approve,
    "chat:answer": Answer,
    "chat:cancel": Cancel,
    "chat:send": Send,
}


class Envelope(BaseModel):
    """Around every chat message. ``id`` is the client's own: it comes back with the answer."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: str = Field(max_length=100)
    payload: dict[str, Any] = Field(default_factory=dict)
    id: str | int | None = None


def opened(frame: Mapping[str, Any]) -> Any:
    """A frame's JSON, whatever it says."""
    text = frame.get("text")
    if text is None:
        raise BadArguments({"frame": "Expected text, got binary"})
    return strict_json(text.encode())


def enveloped(value: Any) -> Envelope:
    return checked(Envelope, value)


def payload_of(envelope: Envelope) -> Said:
    model = CHAT.get(envelope.type)
    if model is None:
        raise BadArguments({"type": f"Expected one of {', '.join(CHAT)}"})
    return checked(model, envelope.payload)


def introduction(frame: Mapping[str, Any]) -> Introduction:
    """The first message, which must say who it is."""
    said = enveloped(opened(frame))
    if said.type != "auth":
        raise BadArguments({"type": "Expected auth: nobody knows yet who you are"})
    return checked(Introduction, said.payload)


def agreed(reply: str | int | None = None, **payload: Any) -> dict[str, Any]:
    """``chat:ok``: what was asked is done, or under way."""
    return {"type": "chat:ok", "payload": payload} | ({} if reply is None else {"id": reply})


def checked(model: type[ModelT], value: Any) -> ModelT:
    """The value as this model; BadArguments says per field what was expected, and never what was given."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        fields = {
            ".".join(str(step) for step in detail["loc"]) or "message": detail["msg"] for detail in error.errors()
        }
        raise BadArguments(fields) from None
