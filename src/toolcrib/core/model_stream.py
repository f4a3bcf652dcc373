"""The events of a model's response: one union for all providers.

    stream = failed | start, (text | thinking | usage | call)*, (finish | failed)
    call   = tool_call_start, tool_call_delta*, tool_call_end      calls of one message may interleave; see ``index``

``finish`` is sent only when the provider reported that the message is complete. A call counts once its end was sent: a
call that started and did not end when the stream finished or failed was cut off, and must not run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, assert_never

from toolcrib.core.errors import ProviderError
from toolcrib.core.messages import AssistantMessage, ModelToolCall, ProviderMetadata, ToolCallId


class FinishReason(StrEnum):
    """Why a model stopped. ``length``: its output or the context was full; ``refusal``: it or a filter declined."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSAL = "refusal"


@dataclass(frozen=True, slots=True)
class StreamStart:
    type: ClassVar = "start"
    id: str
    model: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    type: ClassVar = "text"
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    type: ClassVar = "thinking"
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    type: ClassVar = "tool_call_start"
    index: int
    id: ToolCallId
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    type: ClassVar = "tool_call_delta"
    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    type: ClassVar = "tool_call_end"
    index: int


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of the whole request so far; a later one replaces an earlier.

    Input includes what was read from the provider's cache and what was written to it.
    """

    type: ClassVar = "usage"
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class StreamFinish:
    type: ClassVar = "finish"
    reason: FinishReason
    note: ProviderMetadata | None = None


@dataclass(frozen=True, slots=True)
class StreamFailed:
    """The stream ended early. What was received before remains, but is not the whole message."""

    type: ClassVar = "error"
    error: ProviderError


StreamEvent = (
    StreamStart
    | TextDelta
    | ThinkingDelta
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
    | TokenUsage
    | StreamFinish
    | StreamFailed
)


@dataclass(slots=True)
class MessageBuilder:
    """Builds a message from the events of one stream, and shows what was received so far."""

    usage: TokenUsage = field(default_factory=TokenUsage)
    finish: StreamFinish | None = None
    error: ProviderError | None = None
    _text: list[str] = field(default_factory=list)
    _thinking: list[str] = field(default_factory=list)
    _begun: dict[int, tuple[ToolCallStart, list[str]]] = field(default_factory=dict)
    _ended: dict[int, ModelToolCall] = field(default_factory=dict)

    def add(self, event: StreamEvent) -> None:
        """Add the next event of the stream."""
        match event:
            case StreamStart():
                pass
            case TextDelta(text):
                self._text.append(text)
            case ThinkingDelta(text):
                self._thinking.append(text)
            case ToolCallStart(index):
                self._begun[index] = (event, [])
            case ToolCallDelta(index, arguments):
                self._begun[index][1].append(arguments)
            case ToolCallEnd(index):
                start, parts = self._begun.pop(index)
                self._ended[index] = ModelToolCall(start.id, start.name, "".join(parts) or "{}")
            case TokenUsage():
                self.usage = event
            case StreamFinish():
                self.finish = event
            case StreamFailed(error):
                self.error = error
            case _:
                assert_never(event)

    @property
    def incomplete_calls(self) -> Sequence[str]:
        """The names of calls that started and did not end."""
        return [start.name for start, _ in self._begun.values()]

    def message(self) -> AssistantMessage:
        """Return what was received.

        Includes calls only if the stream finished: a message that was cut off requests nothing.
        """
        note = self.finish.note if self.finish else None
        calls = tuple(call for _, call in sorted(self._ended.items())) if self.finish else ()
        return AssistantMessage("".join(self._text), "".join(self._thinking), calls, note)
