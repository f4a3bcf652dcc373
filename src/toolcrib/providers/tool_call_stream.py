"""The calls of one message while it streams in, each with a state of its own. Knows no wire."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from toolcrib.core.ids import new_id
from toolcrib.core.messages import AssistantMessage, Message, ToolCallId
from toolcrib.core.model_stream import FinishReason, StreamEvent, ToolCallDelta, ToolCallEnd, ToolCallStart
from toolcrib.providers.provider_errors import stream_error
from toolcrib.providers.stream_reader import TextJoiner
from toolcrib.providers.wire_history import ToolNameEncoder

MAX_CALLS = 256


@dataclass(slots=True)
class PartialToolCall:
    """A call that has begun. It is told once its name is known, and what came of its arguments before then."""

    id: ToolCallId
    wire_id: str
    # Numbered in the order in which they are told.
    index: int = -1
    name: str = ""
    # What the provider wants to get back with the call.
    extra: Any = None
    joined: TextJoiner = field(default_factory=TextJoiner)
    parts: list[str] = field(default_factory=list)
    ended: bool = False

    @property
    def arguments(self) -> str:
        return "".join(self.parts)


class PartialToolCalls:
    """All calls of a message. Its methods give the events that tell what happened."""

    def __init__(self, names: ToolNameEncoder, messages: tuple[Message, ...]) -> None:
        self._names = names
        self._calls: list[PartialToolCall] = []
        self._told = 0
        self._used = {
            call.id for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls
        }

    def begin(self, wire_id: str) -> PartialToolCall:
        if len(self._calls) >= MAX_CALLS:
            raise stream_error(f"The answer asks for more than {MAX_CALLS} calls at once.")
        # Some servers give no id, or count anew in every message; a conversation needs them unlike.
        fresh = not wire_id or wire_id in self._used
        call_id = ToolCallId(f"call_{new_id().hex}" if fresh else wire_id)
        self._used.add(call_id)
        call = PartialToolCall(call_id, wire_id)
        self._calls.append(call)
        return call

    def last(self) -> PartialToolCall | None:
        return self._calls[-1] if self._calls else None

    def name(self, call: PartialToolCall, wire_name: str) -> Iterator[StreamEvent]:
        """Tells the call's beginning; a name that is repeated later changes nothing."""
        if call.name or not wire_name:
            return
        call.name = self._names.decode(wire_name)
        call.index = self._told
        self._told += 1
        yield ToolCallStart(call.index, call.id, call.name)
        if call.parts:
            yield ToolCallDelta(call.index, call.arguments)

    def add(self, call: PartialToolCall, piece: object) -> Iterator[StreamEvent]:
        arguments = call.joined.take(piece)
        if not arguments:
            return
        if call.ended:
            raise stream_error("The answer goes on with a call that had ended.")
        call.parts.append(arguments)
        if call.name:
            yield ToolCallDelta(call.index, arguments)

    def end_if_whole(self, call: PartialToolCall) -> Iterator[StreamEvent]:
        """Ends a call of which the provider says that it is over. Cut arguments wait: only the finish tells why."""
        if not call.ended and call.name and _is_whole(call.arguments):
            call.ended = True
            yield ToolCallEnd(call.index)

    def end_all(self, reason: FinishReason) -> Iterator[StreamEvent]:
        """Ends what is open when the message is over; what the limit cut off stays without an end."""
        for call in self._calls:
            if not call.name:
                raise stream_error("The answer asks for a call and does not name the tool.")
            if call.ended or (reason is FinishReason.LENGTH and not _is_whole(call.arguments)):
                continue
            call.ended = True
            yield ToolCallEnd(call.index)

    def ended(self) -> list[PartialToolCall]:
        """The calls that will stand in the message, in their order there."""
        return sorted((call for call in self._calls if call.ended), key=lambda call: call.index)

    def reason(self, said: FinishReason) -> FinishReason:
        """Why the message ended: some say `stop` after calls, and some `tool_calls` after none."""
        if said not in (FinishReason.STOP, FinishReason.TOOL_CALLS):
            return said
        return FinishReason.TOOL_CALLS if self._calls else FinishReason.STOP


def _is_whole(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True
