"""Sessions on the wire: their runs, messages and events, and tickets for WebSockets."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, TypeVar
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from toolcrib.core.agents import PhaseName, TrustLevel
from toolcrib.core.attachments import MAX_ATTACHMENTS, MAX_BASE64, AttachmentName
from toolcrib.core.callers import SessionMode
from toolcrib.core.errors import BadArguments, PathOutsideMount
from toolcrib.core.paths import parse_relative
from toolcrib.core.runs import DEFAULT_PRIORITY, LAST_PRIORITY, RunEnding, RunState, RunWait, SessionActivity
from toolcrib.schemas.schema_base import ErrorInfo, InModel, Name, OutModel, Page

ProviderName = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[a-z-]+$")]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
PackageName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$"), Field(examples=["demo"])]
MAX_MESSAGE_CHARACTERS: Final = 200_000
# PostgreSQL cannot store NUL.
Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_MESSAGE_CHARACTERS, pattern=r"^[^\x00]*$")]

ChoiceT = TypeVar("ChoiceT", "SessionCreate", "SessionUpdate")

_PREVIEW_CHARACTERS = 300


def _preview(text: str) -> str:
    return text if len(text) <= _PREVIEW_CHARACTERS else f"{text[:_PREVIEW_CHARACTERS]}…"


def _both_or_none(given: ChoiceT) -> ChoiceT:
    if (given.provider is None) != (given.model is None):
        raise ValueError("Give both provider and model, or neither")
    return given


def _directory(text: str) -> str:
    try:
        return parse_relative(text).path[1:] if text else ""
    except (BadArguments, PathOutsideMount) as error:
        raise ValueError(error.message) from None


class SessionCreate(InModel):
    title: Name | None = None
    agent_id: UUID | None = Field(
        default=None,
        description="The session's agent, which makes the calls in it for you. Without it, they are your own.",
    )
    mode: SessionMode = SessionMode.BUILD
    trust: TrustLevel | None = Field(default=None, description="By default, the agent's trust.")
    provider: ProviderName | None = Field(default=None, description="The model provider. By default, the agent's.")
    model: ModelName | None = Field(default=None, description="The provider's name of the model.")
    phase: PhaseName | None = Field(default=None, description="One of the agent's phases. By default, the first one.")
    package: PackageName | None = Field(
        default=None, description="An installed package. The session runs its workflow."
    )
    directory: Annotated[str, AfterValidator(_directory)] = Field(
        default="",
        max_length=4_096,
        description="Where the agent's commands start, relative to the project. By default, its root.",
    )

    _needs_both = model_validator(mode="after")(_both_or_none)


class SessionUpdate(InModel):
    """Fields that are absent stay as they are."""

    title: Name | None = None
    trust: TrustLevel | None = Field(
        default=None, description="Null sets the agent's trust. Takes effect with the next message."
    )
    mode: SessionMode | None = Field(default=None, description="Plan or build. Also applies to the current run.")
    provider: ProviderName | None = Field(
        default=None, description="Requires `model`. Null sets the agent's provider and model."
    )
    model: ModelName | None = None
    phase: PhaseName | None = Field(
        default=None, description="One of the agent's phases; null sets the first one. Takes effect with the next turn."
    )

    _needs_both = model_validator(mode="after")(_both_or_none)


class SessionOut(OutModel):
    id: UUID
    title: str | None
    agent_id: UUID | None
    mode: SessionMode
    trust: TrustLevel | None
    provider: str | None = Field(description="The model provider; null for the agent's.")
    model: str | None
    phase: str | None = Field(description="The agent's phase, which sets its permissions; null for the first one.")
    package: str | None = Field(description="The package whose workflow the session runs.")
    directory: str = Field(default="", description="Where the agent's commands start, relative to the project.")
    parent_session_id: UUID | None = Field(
        default=None, description="For the session of a child run, the session whose agent started it."
    )
    forked_from_session_id: UUID | None = Field(
        default=None, description="The session that this one continues. It may be deleted."
    )
    forked_from_message_id: UUID | None = Field(
        default=None,
        description="The last message that it has in common with that session, or the one that it replaces.",
    )
    created_by: UUID
    created_at: datetime
    last_seq: int = Field(description="The number of the newest event.")


class ListedSessionOut(SessionOut):
    """A session with what a list shows of it."""

    owner_name: str | None = Field(
        default=None, description="The full name or the address of its creator; null after they have left."
    )
    activity: SessionActivity = Field(
        default=SessionActivity.IDLE,
        description="`working`, `waiting` for a person, or `queued`; without such a run, `failed` if the last one did, "
        "else `idle`.",
    )
    cost: Decimal | None = Field(
        default=None, description="What it and its child runs have cost, in US dollars as far as prices are known."
    )


class FoundSessionOut(OutModel):
    """A session that a search found."""

    session_id: UUID
    title: str | None
    message_id: UUID | None = Field(description="The message that matches; null if the title does.")
    role: Literal["user", "assistant"] | None
    excerpt: str | None = Field(description="The text around the first word.")
    found_at: datetime = Field(description="When the message was sent, or the session created.")


class ForkCreate(InModel):
    """Where a fork begins."""

    message_id: UUID = Field(description="The last message that the fork has in common with the session.")
    text: Text | None = Field(
        default=None,
        description="Sent instead of that message, which must be a person's, with the files that it brings. The fork "
        "then begins with the messages before it.",
    )


class AttachedFile(InModel):
    """A file that is sent with a message. It does not become a file of the workspace."""

    name: AttachmentName = Field(description="Its name, without folders.", examples=["screenshot.png"])
    data: str = Field(max_length=MAX_BASE64, description="Its content in base64.", examples=["iVBORw0KGgo="])


class MessageCreate(InModel):
    """A person's message to the session's agent."""

    text: Text = Field(examples=["Add a test for the parser."])
    attachments: list[Text | AttachedFile] = Field(
        default_factory=list,
        max_length=MAX_ATTACHMENTS,
        description="Images (PNG, JPEG, GIF, WebP; up to 5 MB) and PDFs (up to 10 MB) that the model sees: paths of "
        "the workspace, or files with their content.",
        examples=[["/plan.png"]],
    )
    priority: int = Field(
        default=DEFAULT_PRIORITY,
        ge=0,
        le=LAST_PRIORITY,
        description="Which of the workspace's runs start first while others wait: those with lower numbers. Below 100 "
        "for owners only. From 500 on it is background work, which starts after the runs of all other workspaces.",
    )


class CostOut(OutModel):
    """What models have used for one day, agent, model or session."""

    key: str = Field(
        description="The day (UTC), the id of the agent or the session, or `provider/model`.", examples=["2026-11-17"]
    )
    runs: int = Field(description="Runs, by the day on which they first used a model.")
    input_tokens: int
    output_tokens: int
    cost: Decimal | None = Field(
        default=None, validation_alias="known_cost", description="In US dollars; null if no price is known."
    )
    unpriced_turns: int = Field(description="Turns whose cost is unknown, and not part of `cost`.")


class RunOut(OutModel):
    """A run and its progress."""

    id: UUID
    session_id: UUID
    parent_run_id: UUID | None = Field(default=None, description="For a child run, the run whose call started it.")
    user_id: UUID
    agent_id: UUID | None
    prompt_preview: Annotated[str, BeforeValidator(_preview)] = Field(
        validation_alias="prompt",
        description="The beginning of the message that started the run.",
    )
    state: RunState
    held: bool = Field(default=False, description="Queued, but held since the session was stopped.")
    waits_for: RunWait | None = Field(
        default=None,
        description="What the run waits for: `release` (held), `queue` (an earlier run of the session, or room among "
        "the workspace's runs), `worker` (a free place in a server process, or the recovery of its workspace), "
        "`provider` (it limits requests), `credential` (its limits leave no room), `child` (a child run), "
        "`person`, or `nobody` (its server process is gone, and no other has taken it over). Null if it does not wait.",
    )
    not_before: datetime | None = Field(default=None, description="Until when the run is put aside.")
    priority: int = Field(default=DEFAULT_PRIORITY, description="Lower ones start first, among the workspace's.")
    end_reason: RunEnding | None = Field(description="Why the run ended; null if it has not ended.")
    error: ErrorInfo | None
    attempts: int = Field(default=0, description="Attempts at the calls of the current turn.")
    takeovers: int = Field(default=0, description="Takeovers from processes that died, since the last progress.")
    turns: int
    input_tokens: int
    output_tokens: int
    context_tokens: int
    cost: Decimal | None = Field(
        default=None,
        validation_alias="known_cost",
        description="What it and its child runs have cost, in US dollars at the prices of the time; null if no "
        "price is known.",
    )
    unpriced_turns: int = Field(
        default=0, validation_alias="total_unpriced", description="Turns whose cost is unknown, and not part of `cost`."
    )
    active_ms: int = Field(description="Active time in milliseconds, without the time spent waiting for a person.")
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class FunctionOut(OutModel):
    name: str
    arguments: str = Field(description="JSON text from the model.")


class MessageToolCallOut(OutModel):
    id: str = Field(description="The provider's id of the call.")
    type: Literal["function"]
    function: FunctionOut
    call_id: UUID


class MessageAttachmentOut(OutModel):
    """A file that a message brings, as it was when the message was sent."""

    path: str = Field(description="Its path in the workspace or, if it was sent with the message, its name.")
    call_id: UUID = Field(description="The call that read or stored it; its result has the content.")


class MessageMetadataOut(OutModel):
    """Everything besides the text; each field only where it applies."""

    tool_calls: list[MessageToolCallOut] | None = None
    thinking: str | None = None
    note: dict[str, Any] | None = Field(
        default=None, description="Provider data that is sent back to the provider with the message."
    )
    attachments: list[MessageAttachmentOut] | None = None
    concluded: bool | None = None
    cut: bool | None = Field(default=None, description="True if the message is incomplete.")
    tool_call_id: str | None = Field(
        default=None, description="The provider's id of the call whose result this is. Only in messages of tools."
    )
    call_id: UUID | None = None
    is_error: bool | None = None
    summarised_by: Literal["model", "rule"] | None = None
    messages: list[UUID] | None = Field(default=None, description="The messages that this summary replaces.")


class MessageOut(OutModel):
    """A message of a session. `tool_calls` in the metadata name calls; fetch their outcomes by `call_id`."""

    id: UUID
    position: int
    run_id: UUID | None
    role: Literal["user", "assistant", "summary", "tool"]
    content: str
    metadata: MessageMetadataOut | None
    created_at: datetime | None


class EventOut(OutModel):
    """An event of a session, with its number."""

    seq: int
    type: str = Field(examples=["tool-result"])
    payload: dict[str, Any] = Field(description="The same payload as on the WebSocket, in camelCase.")


class EventPage(Page[EventOut]):
    """Events in order. ``next`` is the number of the last one, if there may be more now."""


class StreamMessage(OutModel):
    """A message of a session's stream: an event with its number, or a delta."""

    type: str
    payload: dict[str, Any]
    seq: int | None = None


class TicketOut(OutModel):
    """A single-use ticket for the workspace's WebSocket."""

    ticket: str = Field(examples=["tct_…"])
    expires_in: int = Field(description="Lifetime in seconds.")
