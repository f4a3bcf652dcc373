"""Events of a run for Python programs, its result, and the reader that creates them from stream messages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from toolcrib.client import RunOut, StreamMessage
from toolcrib.core.errors import ToolcribError
from toolcrib.sdk.session_client import end_reason, is_end


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Text of the agent, as it arrives."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A tool call starts. Long ``arguments`` are shortened."""

    call_id: UUID
    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Output of a running call, such as a command's."""

    call_id: UUID
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallFinished:
    """A tool call has ended. ``result`` is the text that the model receives."""

    call_id: UUID
    tool: str
    ok: bool
    result: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that has ended. ``text`` is the agent's last message; ``ending`` is ``done`` or the reason."""

    text: str
    ending: str
    run_id: UUID
    session_id: UUID
    error: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether the run was completed."""
        return self.ending == "done"


Event = TextChunk | ToolCallStarted | ToolOutput | ToolCallFinished | RunResult


class RunUnfinished(ToolcribError):
    """A run ended before it was done; ``result`` has what it achieved."""

    code = "UNFINISHED"

    def __init__(self, result: RunResult) -> None:
        reason = (result.error or {}).get("message") or _REASONS.get(result.ending, f"It ended with {result.ending}.")
        super().__init__(f"The run did not finish. {reason}")
        self.result = result


_REASONS = {
    "turn-limit": "The turn limit was reached (max_turns).",
    "budget": "The context limit was reached.",
    "deadline": "The time limit was reached (run_timeout).",
    "cancelled": "It was cancelled.",
    "violation": "The agent violated the sandbox.",
    "held": "Somebody stopped the session before the message was sent; it is held.",
}


class TextAssembler:
    """Assembles streamed text of messages. Text that arrives twice is returned once."""

    def __init__(self) -> None:
        self._received: dict[str, tuple[int, int]] = {}

    def is_new_attempt(self, payload: Mapping[str, Any]) -> bool:
        """Return whether the message starts again, so that its earlier text is void."""
        before, _ = self._received.get(payload["messageId"], (payload["attempt"], 0))
        return bool(payload["attempt"] > before)

    def fresh(self, payload: Mapping[str, Any]) -> str:
        """Return the part of a ``chat:text-delta`` that was not received yet."""
        source, attempt, offset, text = (payload[name] for name in ("messageId", "attempt", "offset", "content"))
        before, length = self._received.get(source, (attempt, 0))
        if attempt < before:
            return ""
        if attempt > before:
            length = 0
        # A late subscriber receives text again that it has already, in whole or in part.
        self._received[source] = (attempt, max(length, offset + len(text)))
        return str(text[max(0, length - offset) :])

    def rest(self, payload: Mapping[str, Any]) -> str:
        """Return the part of a ``chat:stream-end`` that did not arrive as deltas."""
        content = payload.get("content") or ""
        _, length = self._received.pop(payload["messageId"], (0, 0))
        return str(content[length:])


class RunEventReader:
    """Converts the stream messages of a session into the events of one run."""

    def __init__(self, run: RunOut) -> None:
        self._run = run
        self._words = TextAssembler()
        self._last_message = ""

    def handle(self, message: StreamMessage) -> Iterator[Event]:
        """Yield the events for a message; none for many of them."""
        payload = message.payload
        match message.type:
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
            case "chat:run-state" if is_end(message, self._run):
                yield self._result(message)
            case _:
                pass

    def _result(self, message: StreamMessage) -> RunResult:
        return RunResult(
            text=self._last_message,
            ending=end_reason(message),
            run_id=self._run.id,
            session_id=self._run.session_id,
            error=message.payload.get("error"),
        )


def _text(words: str) -> Iterator[TextChunk]:
    if words:
        yield TextChunk(words)
