"""Prepares a conversation for sending: every call is followed by its result, and names and ids fit the providers."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from toolcrib.core.messages import (
    AssistantMessage,
    Message,
    ModelToolCall,
    SystemMessage,
    ToolCallId,
    ToolResultMessage,
    UserMessage,
)
from toolcrib.providers.provider import ModelRequest, ToolSpec

NO_RESULT = "No result: the call was interrupted. It is unknown whether it took effect; check before you repeat it."
NO_OUTPUT = "(no output)"


def pair_tool_results(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation as providers accept it.

    A call without a result gets one that says so. Results follow their calls directly, in the same order. Results
    without a call, and empty messages, are dropped. A repeated id becomes a new one.
    """
    results = _matched_results(messages)
    used: set[ToolCallId] = set()
    sent: list[Message] = []
    for position, message in enumerate(messages):
        match message:
            case AssistantMessage() if message.tool_calls:
                ids = [_unused(call.id, used) for call in message.tool_calls]
                answers = [
                    results.get((position, number)) or ToolResultMessage(call.id, NO_RESULT, is_error=True)
                    for number, call in enumerate(message.tool_calls)
                ]
                calls = tuple(replace(call, id=new) for call, new in zip(message.tool_calls, ids, strict=True))
                sent.append(replace(message, tool_calls=calls, text=message.text if message.text.strip() else ""))
                sent.extend(
                    replace(answer, call_id=new, text=answer.text if answer.text.strip() else NO_OUTPUT)
                    for answer, new in zip(answers, ids, strict=True)
                )
            case ToolResultMessage():
                continue
            case UserMessage(text, attachments):
                if text.strip() or attachments:
                    sent.append(message if text.strip() else replace(message, text=""))
            case SystemMessage(text) | AssistantMessage(text):
                if text.strip():
                    sent.append(message)
    return sent


def messages_to_send(request: ModelRequest) -> list[Message]:
    """Return the request's conversation as providers accept it. A model without tools gets calls as text."""
    messages = pair_tool_results(request.messages)
    return messages if request.tools else list(without_tool_calls(messages))


def without_tool_calls(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the conversation without calls, for a model without tools: calls and results become text."""
    names: dict[ToolCallId, str] = {}
    for message in messages:
        match message:
            case AssistantMessage(text, _, calls) if calls:
                names |= {call.id: call.name for call in calls}
                call_lines = [f"[Called {call.name} with {call.arguments}]" for call in calls]
                yield AssistantMessage("\n".join([text, *call_lines] if text else call_lines))
            case ToolResultMessage(call_id, text, is_error, attachments):
                kind, name = "Error" if is_error else "Result", names.get(call_id, "a call")
                yield UserMessage(f"[{kind} of {name}]\n{text}", attachments)
            case _:
                yield message


def _matched_results(messages: Sequence[Message]) -> dict[tuple[int, int], ToolResultMessage]:
    """Return the result of each call, by the position of its message and its number there.

    It is the first one after the call, and before a later message that calls with the same id.
    """
    found: dict[tuple[int, int], ToolResultMessage] = {}
    waiting: dict[ToolCallId, list[tuple[int, int]]] = {}
    for position, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            waiting |= {call.id: [] for call in message.tool_calls}
            for number, call in enumerate(message.tool_calls):
                waiting[call.id].append((position, number))
        elif isinstance(message, ToolResultMessage) and waiting.get(message.call_id):
            found[waiting[message.call_id].pop(0)] = message
    return found


def _unused(call_id: ToolCallId, used: set[ToolCallId]) -> ToolCallId:
    new, number = call_id, 1
    while new in used or not new:
        number += 1
        new = ToolCallId(f"{call_id or 'call'}_{number}")
    used.add(new)
    return new


# OpenAI's limit; Anthropic allows twice the length, but models were trained on such names.
_LONGEST_NAME = 64
_LONGEST_ID = 40
_BAD = re.compile(r"[^a-zA-Z0-9_-]")
_GOOD_ID = re.compile(rf"[a-zA-Z0-9_-]{{1,{_LONGEST_ID}}}")


class ToolNameEncoder:
    """Encodes and decodes the tool names of one request. A valid name stays as it is; no two names become equal."""

    def __init__(self, names: Iterable[str]) -> None:
        self._wire: dict[str, str] = {}
        self._names: dict[str, str] = {}
        # Valid names first: an encoded name must not take their form.
        for name in sorted(set(names), key=lambda name: (_plain(name) != name, name)):
            wire = _plain(name)
            if wire in self._names:
                wire = f"{wire[: _LONGEST_NAME - 9]}_{_digest(name)[:8]}"
            self._wire[name] = wire
            self._names[wire] = name

    @classmethod
    def of(cls, tools: Iterable[ToolSpec], messages: Iterable[Message]) -> "ToolNameEncoder":
        """Create it for the offered tools and those that the conversation mentions."""
        used_names = (
            call.name for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls
        )
        return cls([*(tool.name for tool in tools), *used_names])

    def functions(self, tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
        """Return the tools as functions, the format of OpenAI and Ollama."""
        return [
            {
                "type": "function",
                "function": {
                    "name": self.encode(tool.name),
                    "description": tool.description,
                    "parameters": dict(tool.input_schema),
                },
            }
            for tool in tools
        ]

    def encode(self, name: str) -> str:
        """Return the name on the wire."""
        return self._wire[name]

    def decode(self, wire: str) -> str:
        """Return the tool's name. An unknown name is returned as it is, for the error message."""
        return self._names.get(wire, wire)


def wire_id(call_id: ToolCallId) -> str:
    """Return the id of a call in a form that every provider accepts, whichever provider it came from."""
    return call_id if _GOOD_ID.fullmatch(call_id) else f"call_{_digest(call_id)[:32]}"


def arguments_object(call: ModelToolCall) -> dict[str, Any]:
    """Return the call's arguments. Text that is not a JSON object is wrapped, as Anthropic recommends."""
    arguments = call.parsed()
    return {"INVALID_JSON": call.arguments} if arguments is None else arguments


def object_text(call: ModelToolCall) -> str:
    """Return the call's arguments as the text of a JSON object, which servers require.

    Other values are wrapped, so nothing is lost.
    """
    if call.parsed() is not None:
        return call.arguments if call.arguments.strip() else "{}"
    return json.dumps({"INVALID_JSON": call.arguments})


# A dated version of a model: `-2026-04-23`, `-20251001`, `-latest`.
_VERSION = re.compile(r"-(\d{4}-?\d{2}-?\d{2}|latest)$")


def noted(message: Message, provider: str, model: str) -> Mapping[str, Any]:
    """Return what this provider stored with a message of the same model, in whichever dated version; else nothing."""
    note = message.note if isinstance(message, AssistantMessage) else None
    if note is None or note.provider != provider or _undated(note.model) != _undated(model):
        return {}
    return note.data


def _undated(model: str) -> str:
    return _VERSION.sub("", model)


def _plain(name: str) -> str:
    wire = _BAD.sub("_", name) or "_"
    return wire if len(wire) <= _LONGEST_NAME else f"{wire[: _LONGEST_NAME - 9]}_{_digest(name)[:8]}"


def _digest(text: str) -> str:
    # Names may come from a model, and so contain unpaired surrogates.
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
