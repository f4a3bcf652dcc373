"""What a program hears of a run while it goes on, and what is left when it has ended."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from toolcrib.domain.errors import ToolcribError


@dataclass(frozen=True, slots=True)
class Text:
    """Words of the agent, as they come."""

    text: str


@dataclass(frozen=True, slots=True)
class Calling:
    """A tool call begins. ``arguments`` are shortened where they are long."""

    call_id: UUID
    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Output:
    """What a running call says meanwhile, such as a command's output."""

    call_id: UUID
    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call has ended. ``result`` is what the model is told, as text."""

    call_id: UUID
    tool: str
    ok: bool
    result: str


@dataclass(frozen=True, slots=True)
class Result:
    """A run that has ended. ``text`` is the agent's last message, ``ending`` how it ended: ``done``, or why not."""

    text: str
    ending: str
    run_id: UUID
    session_id: UUID
    error: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        return self.ending == "done"


Event = Text | Calling | Output | Called | Result


class Unfinished(ToolcribError):
    """A run ended before it was done; ``result`` says how far it came."""

    code = "UNFINISHED"

    def __init__(self, result: Result) -> None:
        reason = (result.error or {}).get("message") or _REASONS.get(result.ending, f"It ended with {result.ending}.")
        super().__init__(f"The run is not done. {reason}")
        self.result = result


_REASONS = {
    "turn-limit": "It took as many turns as it may (max_turns).",
    "budget": "The model's context is full.",
    "deadline": "Its time was over (run_seconds).",
    "cancelled": "It was stopped.",
    "violation": "The agent touched what is out of bounds.",
}
