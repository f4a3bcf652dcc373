"""Makes a conversation fit to be sent: every call has its result, right behind it. Knows no wire."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from toolcrib.domain.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolCallId,
    ToolResultMessage,
    UserMessage,
)

NO_RESULT = "No result: the call was interrupted. Whether it took effect is not known; look before you repeat it."
NO_OUTPUT = "(no output)"


def sendable(messages: Sequence[Message]) -> list[Message]:
    """The conversation as providers take it.

    A call without a result gets one that says so; results stand right behind their calls, in their order; a result
    without a call, and what says nothing at all, is left out; an id that was used before is made a new one.
    """
    results = _Results(messages)
    used: set[ToolCallId] = set()
    sent: list[Message] = []
    for position, message in enumerate(messages):
        match message:
            case AssistantMessage() if message.tool_calls:
                ids = [_unused(call.id, used) for call in message.tool_calls]
                answers = [results.of(call, position) for call in message.tool_calls]
                calls = tuple(replace(call, id=new) for call, new in zip(message.tool_calls, ids, strict=True))
                sent.append(replace(message, tool_calls=calls, text=message.text if message.text.strip() else ""))
                sent.extend(replace(answer, call_id=new) for answer, new in zip(answers, ids, strict=True))
            case ToolResultMessage():
                continue
            case SystemMessage(text) | UserMessage(text) | AssistantMessage(text):
                if text.strip():
                    sent.append(message)
    return sent


def retold(messages: Iterable[Message]) -> Iterator[Message]:
    """The conversation without calls, for a model that knows no tools: what was called and came of it, as text."""
    names: dict[ToolCallId, str] = {}
    for message in messages:
        match message:
            case AssistantMessage(text, _, calls) if calls:
                names |= {call.id: call.name for call in calls}
                told = [f"[Called {call.name} with {call.arguments}]" for call in calls]
                yield AssistantMessage("\n".join([text, *told] if text else told))
            case ToolResultMessage(call_id, text, is_error):
                yield UserMessage(f"[{'Error' if is_error else 'Result'} of {names.get(call_id, 'a call')}]\n{text}")
            case _:
                yield message


class _Results:
    """The results of a conversation, by call id and position; each is given once."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._results: dict[ToolCallId, list[tuple[int, ToolResultMessage]]] = {}
        self._calls: dict[ToolCallId, list[int]] = {}
        for position, message in enumerate(messages):
            if isinstance(message, ToolResultMessage):
                self._results.setdefault(message.call_id, []).append((position, message))
            elif isinstance(message, AssistantMessage):
                for call in message.tool_calls:
                    self._calls.setdefault(call.id, []).append(position)

    def of(self, call: ToolCall, position: int) -> ToolResultMessage:
        """The first result behind the call and before another call of the same id."""
        until = next((later for later in self._calls[call.id] if later > position), None)
        found = self._results.get(call.id, [])
        for number, (where, result) in enumerate(found):
            if where > position and (until is None or where < until):
                del found[number]
                return result if result.text.strip() else replace(result, text=NO_OUTPUT)
        return ToolResultMessage(call.id, NO_RESULT, is_error=True)


def _unused(call_id: ToolCallId, used: set[ToolCallId]) -> ToolCallId:
    new, number = call_id, 1
    while new in used or not new:
        number += 1
        new = ToolCallId(f"{call_id or 'call'}_{number}")
    used.add(new)
    return new
