"""Names and ids as providers' APIs take them. Nobody outside the providers sees these forms."""

import re
from collections.abc import Iterable
from hashlib import sha256

from toolcrib.domain.messages import AssistantMessage, Message, ToolCallId
from toolcrib.providers.provider import OfferedTool

# What OpenAI takes; Anthropic takes twice the length, and models were trained on such names.
_LONGEST_NAME = 64
_LONGEST_ID = 40
_BAD = re.compile(r"[^a-zA-Z0-9_-]")
_GOOD_ID = re.compile(rf"[a-zA-Z0-9_-]{{1,{_LONGEST_ID}}}")


class WireNames:
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
    def of(cls, tools: Iterable[OfferedTool], messages: Iterable[Message]) -> "WireNames":
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
