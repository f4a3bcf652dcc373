"""Tool calls: name and arguments, declared effects, canonical arguments, results and outcomes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any

from toolcrib.core.errors import BadArguments, ToolcribError
from toolcrib.core.ids import CallId, ChangeSetId
from toolcrib.core.paths import PathLike, WorkspacePath, parse_path


class ToolCategory(StrEnum):
    """The kind of a tool."""

    FILE = "file"
    EXEC = "exec"
    SEARCH = "search"
    MCP = "mcp"
    PLAN = "plan"
    HUMAN = "human"


class Danger(StrEnum):
    """Whether a guided agent needs an approval for a call. ``review`` asks only if it cannot be undone as well."""

    SAFE = "safe"
    DANGEROUS = "dangerous"


@dataclass(frozen=True, slots=True, init=False)
class Effects:
    """What a call reads, writes, runs and contacts, declared before it runs.

    - ``reads_batch``: Checked one by one: a protected file in a batch does not deny the others.
    - ``requires``: Must exist beforehand. Denies nothing; a call that creates it runs first.
    - ``arguments``: Those of a call that acts outside the workspace. A grant may limit them.
    - ``access``: Which MCP server it is (``server:HASH``), and what its owner gave it: ``secret:NAME``,
      ``workspace:read``, ``workspace:write``.
    """

    reads: tuple[WorkspacePath, ...]
    reads_batch: tuple[WorkspacePath, ...]
    writes: tuple[WorkspacePath, ...]
    requires: tuple[WorkspacePath, ...]
    command: str | None
    hosts: tuple[str, ...]
    arguments: Mapping[str, Any] | None
    access: tuple[str, ...]

    def __init__(
        self,
        reads: tuple[PathLike, ...] = (),
        reads_batch: tuple[PathLike, ...] = (),
        writes: tuple[PathLike, ...] = (),
        requires: tuple[PathLike, ...] = (),
        command: str | None = None,
        hosts: tuple[str, ...] = (),
        arguments: Mapping[str, Any] | None = None,
        access: tuple[str, ...] = (),
    ) -> None:
        assign = object.__setattr__
        assign(self, "reads", tuple(map(parse_path, reads)))
        assign(self, "reads_batch", tuple(map(parse_path, reads_batch)))
        assign(self, "writes", tuple(map(parse_path, writes)))
        assign(self, "requires", tuple(map(parse_path, requires)))
        assign(self, "command", command)
        assign(self, "hosts", hosts)
        assign(self, "arguments", arguments)
        assign(self, "access", access)

    @property
    def paths(self) -> tuple[WorkspacePath, ...]:
        return (*self.reads, *self.reads_batch, *self.writes)

    @property
    def has_side_effects(self) -> bool:
        """Whether the call writes or runs a command.

        Contacting hosts counts as reading, unless the tool is dangerous.
        """
        return bool(self.writes or self.command)


def canonical_json(arguments: Mapping[str, Any]) -> str:
    """Encode arguments as ASCII JSON with sorted keys, so that equal arguments give equal text.

    An approval is bound to this text. It represents every string and parses back to the same value.
    """
    try:
        return json.dumps(arguments, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError, TypeError):
        raise BadArguments({"args": "The arguments cannot be encoded as JSON."}) from None


def parse_canonical_json(text: str) -> dict[str, Any]:
    """Parse the output of ``canonical_json``."""
    arguments = json.loads(text)
    assert isinstance(arguments, dict)
    return arguments


UNSTORABLE_TEXT = "Contains a NUL character or a lone surrogate. Remove it."


def is_storable_text(text: str) -> bool:
    """Whether PostgreSQL can store the text unchanged."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def arguments_sha256(text: str) -> bytes:
    """Hash the output of ``canonical_json``."""
    return sha256(text.encode("ascii")).digest()


@dataclass(frozen=True, slots=True)
class TextResult:
    """A text result with its metadata, for toolsets whose tools return text."""

    text: str
    metadata: Mapping[str, Any]
    is_error: bool


def text_result(result: Any) -> TextResult | None:
    """Return the result as text if its tool returns text; ``None`` for structured results."""
    if not isinstance(result, Mapping):
        return None
    if "output" in result and result.keys() <= _TEXT_KEYS:
        return TextResult(str(result["output"]), result.get("metadata") or {}, bool(result.get("is_error")))
    if "text" in result and result.keys() <= _MCP_TEXT_KEYS:
        rest = f"\n[{result['omitted']}]" if "omitted" in result else ""
        return TextResult(f"{result['text']}{rest}", {}, is_error=False)
    return None


_TEXT_KEYS = frozenset({"output", "metadata", "is_error"})
# An MCP server's response with text only; ``omitted`` says what was left out.
_MCP_TEXT_KEYS = frozenset({"text", "omitted"})


class OutcomeState(StrEnum):
    """The state of a call. ``paused``: a person must decide. ``unknown``: started, but its end is unknown."""

    DONE = "done"
    DENIED = "denied"
    PAUSED = "paused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call. ``error`` is set if the call was denied, or if it ran and failed."""

    call_id: CallId
    state: OutcomeState
    result: Any = None
    error: ToolcribError | None = None
    change_set_id: ChangeSetId | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_refused(self) -> bool:
        return self.state is OutcomeState.DENIED

    @property
    def is_waiting(self) -> bool:
        return self.state is OutcomeState.PAUSED

    @property
    def succeeded(self) -> bool:
        return self.state is OutcomeState.DONE and self.error is None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A requested call: a tool's name, and its arguments as received."""

    name: str
    arguments: Mapping[str, Any]
