"""The tool calls of one message while it is streamed, each with its own state. Independent of the wire format."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.core.ids import new_id
from toolcrib.core.messages import AssistantMessage, Message, ProviderMetadata, ToolCallId
from toolcrib.core.model_stream import FinishReason, StreamEvent, StreamStart, ToolCallDelta, ToolCallEnd, ToolCallStart
from toolcrib.providers.provider import ModelRequest, stream_error
from toolcrib.providers.stream_reader import TextJoiner, text_of
from toolcrib.providers.wire_history import ToolNameEncoder

MAX_CALLS = 256


@dataclass(slots=True)
class PartialToolCall:
    """A call that has started.

    It is emitted once its name is known, together with the arguments received until then.
    """

    id: ToolCallId
    wire_id: str
    # Numbered in the order in which they are emitted.
    index: int = -1
    name: str = ""
    # Data that the provider wants back with the call.
    extra: Any = None
    joined: TextJoiner = field(default_factory=TextJoiner)
    parts: list[str] = field(default_factory=list)
    ended: bool = False

    @property
    def arguments(self) -> str:
        """The arguments received so far."""
        return "".join(self.parts)


class PartialToolCalls:
    """All calls of a message. Its methods yield the resulting events."""

    def __init__(self, names: ToolNameEncoder, messages: tuple[Message, ...]) -> None:
        self._names = names
        self._calls: list[PartialToolCall] = []
        self._count = 0
        self._used = {
            call.id for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls
        }

    def begin(self, wire_id: str) -> PartialToolCall:
        """Start a call."""
        if len(self._calls) >= MAX_CALLS:
            raise stream_error(f"The response requests more than {MAX_CALLS} tool calls.")
        # Some servers give no id, or repeat ids in every message; a conversation needs unique ones.
        fresh = not wire_id or wire_id in self._used
        call_id = ToolCallId(f"call_{new_id().hex}" if fresh else wire_id)
        self._used.add(call_id)
        call = PartialToolCall(call_id, wire_id)
        self._calls.append(call)
        return call

    def last(self) -> PartialToolCall | None:
        """Return the newest call."""
        return self._calls[-1] if self._calls else None

    def name(self, call: PartialToolCall, wire_name: str) -> Iterator[StreamEvent]:
        """Emit the start of the call. A repeated name changes nothing."""
        if call.name or not wire_name:
            return
        call.name = self._names.decode(wire_name)
        call.index = self._count
        self._count += 1
        yield ToolCallStart(call.index, call.id, call.name)
        if call.parts:
            yield ToolCallDelta(call.index, call.arguments)

    def add(self, call: PartialToolCall, piece: object) -> Iterator[StreamEvent]:
        """Append arguments."""
        arguments = call.joined.take(piece)
        if not arguments:
            return
        if call.ended:
            raise stream_error("The response continues a tool call that had ended.")
        call.parts.append(arguments)
        if call.name:
            yield ToolCallDelta(call.index, arguments)

    def end_if_complete(self, call: PartialToolCall) -> Iterator[StreamEvent]:
        """End a call that the provider says is complete.

        Truncated arguments wait: only the finish reason explains them.
        """
        if not call.ended and call.name and _is_complete(call.arguments):
            call.ended = True
            yield ToolCallEnd(call.index)

    def end_all(self, reason: FinishReason) -> Iterator[StreamEvent]:
        """End the open calls at the end of the message. A call that the token limit cut off gets no end."""
        for call in self._calls:
            if not call.name:
                raise stream_error("The response requests a tool call without a tool name.")
            if call.ended or (reason is FinishReason.LENGTH and not _is_complete(call.arguments)):
                continue
            call.ended = True
            yield ToolCallEnd(call.index)

    def ended(self) -> list[PartialToolCall]:
        """Return the complete calls, in the order of the message."""
        return sorted((call for call in self._calls if call.ended), key=lambda call: call.index)

    def reason(self, finish_reason: FinishReason) -> FinishReason:
        """Return why the message ended: some servers say `stop` after calls, and some `tool_calls` without any."""
        if finish_reason not in (FinishReason.STOP, FinishReason.TOOL_CALLS):
            return finish_reason
        return FinishReason.TOOL_CALLS if self._calls else FinishReason.STOP


class AnswerReader:
    """Base of the readers of answers: what all wire formats have in common.

    ``done``: the provider has said that the message is complete.
    """

    def __init__(self, request: ModelRequest, names: ToolNameEncoder, *, provider: str) -> None:
        self.done = False
        self._provider = provider
        self._model = request.model
        self._calls = PartialToolCalls(names, request.messages)
        self._text = TextJoiner()
        self._thinking = TextJoiner()
        self._started = False
        self._finish_reason: FinishReason | None = None

    def _start(self, message_id: object, model: object) -> Iterator[StreamEvent]:
        """Emit the start once. Some servers omit the id or the model."""
        if not self._started:
            self._started = True
            yield StreamStart(text_of(message_id) or f"msg_{new_id().hex}", text_of(model) or self._model)

    def _metadata(self, data: Mapping[str, Any]) -> ProviderMetadata | None:
        """Return what the provider wants back with the message, if there is anything."""
        return ProviderMetadata(self._provider, self._model, data) if data else None


def _is_complete(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True
