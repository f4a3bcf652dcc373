"""What a tool call would touch, declared before it runs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any

from toolcrib.core.errors import BadArguments, ToolcribError
from toolcrib.core.ids import CallId, ChangeSetId
from toolcrib.core.paths import WorkspacePath


class ToolCategory(StrEnum):
    """What kind of thing a tool does."""

    FILE = "file"
    EXEC = "exec"
    SEARCH = "search"
    MCP = "mcp"
    PLAN = "plan"
    HUMAN = "human"


class Danger(StrEnum):
    """Whether a guided agent needs a person's yes for a call."""

    SAFE = "safe"
    DANGEROUS = "dangerous"


@dataclass(frozen=True, slots=True)
class Effects:
    """What a call reads, writes, runs and contacts.

    ``reads_each`` are judged one by one: a batch whose third file is protected still gives the others.
    ``needs`` must stand there beforehand. Nobody is refused for it; a call that makes it goes first.
    """

    reads: tuple[WorkspacePath, ...] = ()
    reads_batch: tuple[WorkspacePath, ...] = ()
    writes: tuple[WorkspacePath, ...] = ()
    requires: tuple[WorkspacePath, ...] = ()
    command: str | None = None
    hosts: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[WorkspacePath, ...]:
        return (*self.reads, *self.reads_batch, *self.writes)

    @property
    def has_side_effects(self) -> bool:
        """Asking elsewhere is reading, unless the tool is dangerous."""
        return bool(self.writes or self.command)


# A call's arguments, spelled so that equal ones are equal texts. What a person approves is bound to this spelling.


def canonical_json(arguments: Mapping[str, Any]) -> str:
    """ASCII JSON with sorted keys: it holds every string there is, and reads back alike."""
    try:
        return json.dumps(arguments, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError, TypeError):
        raise BadArguments({"args": "These cannot be written as JSON."}) from None


def parse_canonical_json(text: str) -> dict[str, Any]:
    arguments = json.loads(text)
    assert isinstance(arguments, dict)
    return arguments


UNSTORABLE_TEXT = "Holds a NUL character or half of a surrogate pair, which are no text."


def is_storable_text(text: str) -> bool:
    """Whether PostgreSQL can hold the text as it is."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def arguments_sha256(text: str) -> bytes:
    return sha256(text.encode("ascii")).digest()


# How a tool call ended.


@dataclass(frozen=True, slots=True)
class TextResult:
    """A result in the form of the toolsets whose tools return text: the text, what else is known, whether it failed."""

    text: str
    metadata: Mapping[str, Any]
    is_error: bool


def text_result(result: Any) -> TextResult | None:
    """The result as text, if its tool returns text; none for structured results."""
    if not isinstance(result, Mapping):
        return None
    if "output" in result and result.keys() <= _TEXT_KEYS:
        return TextResult(str(result["output"]), result.get("metadata") or {}, bool(result.get("is_error")))
    if "text" in result and result.keys() <= _MCP_TEXT_KEYS:
        rest = f"\n[{result['cut']}]" if "cut" in result else ""
        return TextResult(f"{result['text']}{rest}", {}, is_error=False)
    return None


_TEXT_KEYS = frozenset({"output", "metadata", "is_error"})
# An MCP server's answer that is nothing but text; ``cut`` says what was not kept of it.
_MCP_TEXT_KEYS = frozenset({"text", "cut"})


class OutcomeState(StrEnum):
    """``waiting``: a person must decide. ``unknown``: begun, and nobody can tell whether it ended."""

    DONE = "done"
    REFUSED = "refused"
    WAITING = "waiting"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call. ``error`` is set when it was refused, and when it ran and failed as tools may."""

    call_id: CallId
    state: OutcomeState
    result: Any = None
    error: ToolcribError | None = None
    change_set_id: ChangeSetId | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_refused(self) -> bool:
        return self.state is OutcomeState.REFUSED

    @property
    def is_waiting(self) -> bool:
        return self.state is OutcomeState.WAITING

    @property
    def succeeded(self) -> bool:
        return self.state is OutcomeState.DONE and self.error is None


# What is asked for: a tool's name and its arguments as they came.


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: Mapping[str, Any]
