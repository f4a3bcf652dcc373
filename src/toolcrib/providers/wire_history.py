"""Makes a conversation fit to be sent: every call has its result, right behind it. Knows no wire."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256

from toolcrib.core.messages import (
    AssistantMessage,
    Message,
    ModelToolCall,
    SystemMessage,
    ToolCallId,
    ToolResultMessage,
    UserMessage,
)
from toolcrib.providers.provider import ToolSpec

NO_RESULT = "No result: the call was interrupted. Whether it took effect is not known; look before you repeat it."
NO_OUTPUT = "(no output)"


def pair_tool_results(messages: Sequence[Message]) -> list[Message]:
    """The conversation as providers take it.

    A call without a result gets one that says so; results stand right behind their calls, in their order; a result
    without a call, and what says nothing at all, is left out; an id that was used before is made a new one.
    """
    results = _ToolResults(messages)
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


def without_tool_calls(messages: Iterable[Message]) -> Iterator[Message]:
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


class _ToolResults:
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

    def of(self, call: ModelToolCall, position: int) -> ToolResultMessage:
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


# Names and ids as providers' APIs take them. Nobody outside the providers sees these forms.

# What OpenAI takes; Anthropic takes twice the length, and models were trained on such names.
_LONGEST_NAME = 64
_LONGEST_ID = 40
_BAD = re.compile(r"[^a-zA-Z0-9_-]")
_GOOD_ID = re.compile(rf"[a-zA-Z0-9_-]{{1,{_LONGEST_ID}}}")


class ToolNameEncoder:
    """The tool names of one request, there and back. A name that is good as it is stays so; no two become one."""

    def __init__(self, names: Iterable[str]) -> None:
        self._wire: dict[str, str] = {}
        self._names: dict[str, str] = {}
        # The good ones first: another's encoding must not take their form.
        for name in sorted(set(names), key=lambda name: (_plain(name) != name, name)):
            wire = _plain(name)
            if wire in self._names:
                wire = f"{wire[: _LONGEST_NAME - 9]}_{_digest(name)[:8]}"
            self._wire[name] = wire
            self._names[wire] = name

    @classmethod
    def of(cls, tools: Iterable[ToolSpec], messages: Iterable[Message]) -> "ToolNameEncoder":
        """For the tools that are offered, and those that the conversation speaks of."""
        spoken = (
            call.name for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls
        )
        return cls([*(tool.name for tool in tools), *spoken])

    def encode(self, name: str) -> str:
        return self._wire[name]

    def decode(self, wire: str) -> str:
        """The tool's name; one that nobody offered is given as it came, for the caller to be told so."""
        return self._names.get(wire, wire)


def wire_id(call_id: ToolCallId) -> str:
    """The id of a call in a form that every provider takes, whichever it came from."""
    return call_id if _GOOD_ID.fullmatch(call_id) else f"call_{_digest(call_id)[:32]}"


def _plain(name: str) -> str:
    wire = _BAD.sub("_", name) or "_"
    return wire if len(wire) <= _LONGEST_NAME else f"{wire[: _LONGEST_NAME - 9]}_{_digest(name)[:8]}"


def _digest(text: str) -> str:
    # Names may come from a model, and so hold what UTF-8 does not know.
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
