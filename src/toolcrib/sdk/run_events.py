"""What a program hears of a run while it goes on, and what is left when it has ended."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from toolcrib.client import RunData, StreamMessage
from toolcrib.core.errors import ToolcribError
from toolcrib.sdk.session_client import is_end


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Words of the agent, as they come."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A tool call begins. ``arguments`` are shortened where they are long."""

    call_id: UUID
    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a running call says meanwhile, such as a command's output."""

    call_id: UUID
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallFinished:
    """A tool call has ended. ``result`` is what the model is told, as text."""

    call_id: UUID
    tool: str
    ok: bool
    result: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that has ended. ``text`` is the agent's last message, ``ending`` how it ended: ``done``, or why not."""

    text: str
    ending: str
    run_id: UUID
    session_id: UUID
    error: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        return self.ending == "done"


Event = TextChunk | ToolCallStarted | ToolOutput | ToolCallFinished | RunResult


class RunUnfinished(ToolcribError):
    """A run ended before it was done; ``result`` says how far it came."""

    code = "UNFINISHED"

    def __init__(self, result: RunResult) -> None:
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


# Puts the pieces of a streamed text together: a piece that comes again is not said again.


class TextAssembler:
    """What of each message was heard so far."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[int, int]] = {}

    def is_new_attempt(self, payload: Mapping[str, Any]) -> bool:
        """Whether the message is begun again: what was heard of it does not count."""
        before, _ = self._heard.get(payload["messageId"], (payload["attempt"], 0))
        return bool(payload["attempt"] > before)

    def fresh(self, payload: Mapping[str, Any]) -> str:
        """What a ``chat:text-delta`` says that was not heard yet."""
        source, attempt, offset, text = (payload[name] for name in ("messageId", "attempt", "offset", "content"))
        before, length = self._heard.get(source, (attempt, 0))
        if attempt < before:
            return ""
        if attempt > before:
            length = 0
        # A piece that was heard already, whole or in part, comes again to who joins in the middle.
        self._heard[source] = (attempt, max(length, offset + len(text)))
        return str(text[max(0, length - offset) :])

    def rest(self, payload: Mapping[str, Any]) -> str:
        """What a ``chat:stream-end`` has that was not heard while it was said."""
        content = payload.get("content") or ""
        _, length = self._heard.pop(payload["messageId"], (0, 0))
        return str(content[length:])


# Turns what a session's watchers are told into the events of one run.


class RunEventReader:
    """Listens to one run."""

    def __init__(self, run: RunData) -> None:
        self._run = run
        self._words = TextAssembler()
        self._last_message = ""

    def hear(self, told: StreamMessage) -> Iterator[Event]:
        """What it means for the run; nothing, for much of what is told."""
        payload = told.payload
        match told.type:
            case "chat:text-delta":
                yield from _text(self._words.fresh(payload))
            case "chat:stream-end":
                self._last_message = payload.get("content") or self._last_message
                yield from _text(self._words.rest(payload))
            case "chat:tool-start":
                given = payload.get("input")
                arguments = given if isinstance(given, Mapping) else {}
                yield ToolCallStarted(UUID(payload["toolId"]), payload["toolName"], arguments)
            case "chat:tool-delta":
                yield ToolOutput(UUID(payload["toolId"]), payload["chunk"])
            case "chat:tool-result":
                yield ToolCallFinished(
                    UUID(payload["toolId"]),
                    payload["toolName"],
                    ok=payload.get("status") == "success",
                    result=str(payload.get("result") or ""),
                )
            case "chat:run-state" if is_end(told, self._run):
                yield self._result(payload)
            case _:
                pass

    def _result(self, payload: Mapping[str, Any]) -> RunResult:
        return RunResult(
            text=self._last_message,
            ending=str(payload.get("ending")),
            run_id=self._run.id,
            session_id=self._run.session_id,
            error=payload.get("error"),
        )


def _text(words: str) -> Iterator[TextChunk]:
    if words:
        yield TextChunk(words)
