"""Requests of OpenAI clients: validates the conversation and rejects what an agent cannot do."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, Final, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from toolcrib.core.attachments import (
    LONGEST_NAME,
    MAX_ATTACHMENTS,
    Unattachable,
    attachment,
    decode_data_url,
    default_name,
)
from toolcrib.core.errors import BadArguments
from toolcrib.core.messages import Attachment

MOST_MESSAGES: Final = 1_000
MOST_CHARACTERS: Final = 2_000_000
LONGEST_PROMPT: Final = 200_000

# PostgreSQL cannot store NUL.
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]


class _LenientModel(BaseModel):
    """Ignores unknown fields: OpenAI's clients send many, and more with every release."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ImageUrl(_LenientModel):
    url: str


class FilePart(_LenientModel):
    filename: Text | None = None
    file_data: str | None = None
    file_id: str | None = None


class ContentPart(_LenientModel):
    type: str
    text: Text | None = None
    image_url: ImageUrl | None = None
    file: FilePart | None = None


class CompletionMessage(_LenientModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Text | list[ContentPart] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text or "" for part in self.content if part.type == "text")
        return self.content or ""

    def attachments(self, place: str) -> list[Attachment]:
        """Return the images and PDFs of the message.

        Raises:
            BadArguments: A part is of another kind, or its file cannot be shown to a model.
        """
        found: list[Attachment] = []
        for number, part in enumerate(self.content if isinstance(self.content, list) else ()):
            try:
                if (one := _attached(part, len(found) + 1)) is not None:
                    found.append(one)
            except Unattachable as flaw:
                raise BadArguments({f"{place}.content.{number}": str(flaw)}) from None
        return found


def _attached(part: ContentPart, number: int) -> Attachment | None:
    name: str | None = None
    match part:
        case ContentPart(type="text"):
            return None
        case ContentPart(type="image_url", image_url=ImageUrl(url=url)):
            body = decode_data_url("the image", url)
        case ContentPart(type="file", file=FilePart(filename=name, file_data=str(data))):
            body = decode_data_url("the file", data)
        case ContentPart(type="file"):
            raise Unattachable("Files are not stored here: send `file_data` with the content, not a `file_id`.")
        case _:
            raise Unattachable(f"Parts of type {part.type!r} cannot be sent to an agent: only text, images and PDFs.")
    plain = "".join(sign for sign in (name or "") if sign.isprintable() and sign != "/")[:LONGEST_NAME]
    return attachment(plain or default_name(body, number), body)


class StreamOptions(_LenientModel):
    include_usage: bool = False


class CompletionRequest(_LenientModel):
    """A chat completion request. Sampling parameters are ignored, because the agent's definition sets them."""

    model: Annotated[str, StringConstraints(min_length=1, max_length=1_000)]
    messages: list[CompletionMessage] = Field(min_length=1, max_length=MOST_MESSAGES)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = 1
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    tool_choice: Any = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    modalities: list[str] | None = None

    @model_validator(mode="after")
    def _what_an_agent_cannot(self) -> Self:
        if (self.tools or self.functions) and self.tool_choice != "none":
            raise ValueError("not supported: an agent has its own tools. Send the request without `tools`")
        if self.n not in (None, 1):
            raise ValueError("not supported: an agent gives one answer. Leave `n` out")
        if (self.response_format or {}).get("type", "text") != "text":
            raise ValueError("not supported: an agent answers in text. Leave `response_format` out")
        if self.logprobs:
            raise ValueError("not supported: a run has no `logprobs`. Leave them out")
        if "audio" in (self.modalities or ()):
            raise ValueError("not supported: an agent answers in text only. Leave `modalities` out")
        return self

    @property
    def wants_usage(self) -> bool:
        """Whether the client wants usage in the last chunk."""
        return self.stream_options is not None and self.stream_options.include_usage


@dataclass(frozen=True, slots=True)
class ClientConversation:
    """The messages as turns with the roles ``system``, ``user`` and ``assistant``. The last is the user's."""

    turns: tuple["ClientTurn", ...]

    @classmethod
    def of(cls, messages: Sequence[CompletionMessage]) -> Self:
        """Create it from the request.

        Raises:
            BadArguments: The last message is not the user's, or a message has content that an agent cannot read.
        """
        turns = [
            ClientTurn(_ROLES[message.role], message.text, tuple(message.attachments(f"messages.{number}")))
            for number, message in enumerate(messages)
            # Messages of the client's own tools are dropped: the other model has reported them in its own words.
            if message.role in _ROLES
        ]
        if messages[-1].role != "user" or turns[-1].is_empty:
            raise BadArguments({"messages": "The last message must be the user's, with a text or a file"})
        groups = groupby((turn for turn in turns if not turn.is_empty), lambda turn: turn.role)
        joined = tuple(ClientTurn.joined(role, list(those)) for role, those in groups)
        if sum(len(turn.text) for turn in joined) > MOST_CHARACTERS:
            raise BadArguments({"messages": f"Expected at most {MOST_CHARACTERS:,} characters in total"})
        if len(joined[-1].text) > LONGEST_PROMPT:
            raise BadArguments({"messages": f"Expected at most {LONGEST_PROMPT:,} characters in the last message"})
        if len(joined[-1].attachments) > MAX_ATTACHMENTS:
            raise BadArguments({"messages": f"Expected at most {MAX_ATTACHMENTS} images and PDFs in the last message"})
        return cls(joined)

    @property
    def prompt(self) -> str:
        """The user's new message."""
        return self.turns[-1].text

    @property
    def history(self) -> list[tuple[str, str]]:
        """The earlier messages as a session stores them. System messages become text of the user."""
        return [
            ("user", f"Instructions for this conversation:\n{turn.text}")
            if turn.role == "system"
            else (turn.role, turn.text or "(a file)")
            for turn in self.turns[:-1]
        ]

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The newest images and PDFs of the whole conversation, for a session that has none of them."""
        return tuple(one for turn in self.turns for one in turn.attachments)[-MAX_ATTACHMENTS:]

    @property
    def since_the_answer(self) -> "ClientTurn":
        """All that was said since the last answer, which the agent has not received yet."""
        return ClientTurn.joined("user", self.turns[self._answered :])

    def digest(self, user_id: UUID, agent_id: UUID, *, answer: str | None = None) -> bytes | None:
        """Return a hash of the user, the agent and the conversation up to the last answer; None without an answer.

        ``answer`` is appended as the last answer. Whitespace is ignored, because clients trim it.
        """
        turns = [*self.turns, ClientTurn("assistant", answer)] if answer else self.turns[: self._answered]
        if not turns:
            return None
        words = [turn.words for turn in turns]
        return hashlib.sha256(json.dumps([str(user_id), str(agent_id), words]).encode()).digest()

    @property
    def _answered(self) -> int:
        """The number of messages up to the last answer."""
        return max((number for number, turn in enumerate(self.turns, 1) if turn.role == "assistant"), default=0)


@dataclass(frozen=True, slots=True)
class ClientTurn:
    """What one side said, in one or more messages."""

    role: str
    text: str
    attachments: tuple[Attachment, ...] = ()

    @classmethod
    def joined(cls, role: str, turns: Sequence[Self]) -> Self:
        """Return several turns as one."""
        text = "\n\n".join(turn.text for turn in turns if turn.text.strip())
        return cls(role, text, tuple(one for turn in turns for one in turn.attachments))

    @property
    def is_empty(self) -> bool:
        return not self.text.strip() and not self.attachments

    @property
    def words(self) -> list[str]:
        """What identifies the turn. The same question about another image is another one."""
        files = [hashlib.sha256(one.data).hexdigest() for one in self.attachments]
        return [self.role, " ".join(self.text.split()), *files]


_ROLES: Final = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
