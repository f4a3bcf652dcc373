"""Requests of OpenAI clients: validates the conversation and rejects what an agent cannot do."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, Final, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from toolcrib.core.errors import BadArguments

MOST_MESSAGES: Final = 1_000
MOST_CHARACTERS: Final = 2_000_000
LONGEST_PROMPT: Final = 200_000

# PostgreSQL cannot store NUL.
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]


class _LenientModel(BaseModel):
    """Ignores unknown fields: OpenAI's clients send many, and more with every release."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ContentPart(_LenientModel):
    type: str
    text: Text | None = None


class CompletionMessage(_LenientModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Text | list[ContentPart] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text or "" for part in self.content)
        return self.content or ""


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
    """The messages as ``(role, text)`` with the roles ``system``, ``user`` and ``assistant``.

    The last is the user's.
    """

    turns: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, messages: Sequence[CompletionMessage]) -> Self:
        """Create it from the request.

        Raises:
            BadArguments: The last message is not the user's, or a message has other content than text.
        """
        for number, message in enumerate(messages):
            if isinstance(message.content, list) and any(part.type != "text" for part in message.content):
                raise BadArguments({f"messages.{number}.content": "Only text can be sent to an agent"})
        if messages[-1].role != "user" or not messages[-1].text.strip():
            raise BadArguments({"messages": "The last message must be the user's, with a text"})
        # Messages of the client's own tools are dropped: the other model has reported them in its own words.
        turns = [(_ROLES[one.role], one.text) for one in messages if one.role in _ROLES and one.text.strip()]
        joined = tuple((role, "\n\n".join(text for _, text in texts)) for role, texts in groupby(turns, _role))
        if sum(len(text) for _, text in joined) > MOST_CHARACTERS:
            raise BadArguments({"messages": f"Expected at most {MOST_CHARACTERS:,} characters in total"})
        if len(joined[-1][1]) > LONGEST_PROMPT:
            raise BadArguments({"messages": f"Expected at most {LONGEST_PROMPT:,} characters in the last message"})
        return cls(joined)

    @property
    def prompt(self) -> str:
        """The user's new message."""
        return self.turns[-1][1]

    @property
    def history(self) -> list[tuple[str, str]]:
        """The earlier messages as a session stores them. System messages become text of the user."""
        return [
            ("user", f"Instructions for this conversation:\n{text}") if role == "system" else (role, text)
            for role, text in self.turns[:-1]
        ]

    @property
    def since_the_answer(self) -> str:
        """All text since the last answer, which the agent has not received yet."""
        return "\n\n".join(text for _, text in self.turns[self._answered :])

    def digest(self, user_id: UUID, agent_id: UUID, *, answer: str | None = None) -> bytes | None:
        """Return a hash of the user, the agent and the conversation up to the last answer; None without an answer.

        ``answer`` is appended as the last answer. Whitespace is ignored, because clients trim it.
        """
        turns = [*self.turns, ("assistant", answer)] if answer else self.turns[: self._answered]
        if not turns:
            return None
        words = [[role, " ".join(text.split())] for role, text in turns]
        return hashlib.sha256(json.dumps([str(user_id), str(agent_id), words]).encode()).digest()

    @property
    def _answered(self) -> int:
        """The number of messages up to the last answer."""
        return max((number for number, (role, _) in enumerate(self.turns, 1) if role == "assistant"), default=0)


_ROLES: Final = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def _role(message: tuple[str, str]) -> str:
    return message[0]
