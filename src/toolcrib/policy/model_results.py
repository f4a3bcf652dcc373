"""The text that a model reads of a call's result: plain text or JSON, with a size limit.

The text is the same whether the result comes from its tool or from its row, so that offsets remain valid: objects are
written in the order of the database. A result that is cut says that, and names the offset to continue from.
"""

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from uuid import UUID

from toolcrib.core.ids import CallId
from toolcrib.core.json_text import json_text
from toolcrib.core.runs import RequestedCallState
from toolcrib.core.tool_calls import text_result
from toolcrib.policy.permissions import READ_RESULT
from toolcrib.policy.truncation import MODEL_RESULT_BYTES, head, truncate

# Reserved for the note in a cut result.
_NOTE_BYTES: Final = 512

# Deeper than this, the order does not matter: a model never gets such a value as a whole.
_DEEPEST: Final = 100
_MCP_KEYS: Final = frozenset({"text", "structured", "media", "omitted", "changed", "skipped"})


@dataclass(frozen=True, slots=True)
class ModelResult:
    """What a model gets of a result. ``truncation`` is empty if it is complete."""

    value: Any
    truncation: Mapping[str, Any]


@dataclass(frozen=True)
class CallProgress:
    """A call as its run sees it: its state, its outcome, and the text that the model receives.

    ``begun``: a person approved the call, and it had started when its process died. ``result`` is the full result if it
    comes from the call's row; if it comes from the gate, ``was_truncated`` says whether the gate shortened it.
    ``has_child``: it has started a child run.
    """

    id: CallId
    tool: str
    state: RequestedCallState
    result: Any = None
    error: Mapping[str, Any] | None = None
    idempotent: bool = True
    begun: bool = False
    was_truncated: bool | None = None
    has_child: bool = False

    @cached_property
    def result_text(self) -> tuple[str, bool]:
        """The text of the outcome that the model receives, and whether it is an error. The same in every request."""
        return bounded_text(self.result, self.error, self.id)

    @cached_property
    def is_cut(self) -> bool:
        """Whether the model received a shortened result."""
        return bool(model_result(self.result, self.id).truncation) if self.was_truncated is None else self.was_truncated


def is_mcp_result(result: Any) -> bool:
    """Return whether a result has the form of those of MCP servers: text, structured content and media."""
    return isinstance(result, Mapping) and result.keys() <= _MCP_KEYS


def model_result(result: Any, call_id: UUID, *, limit_bytes: int = MODEL_RESULT_BYTES) -> ModelResult:
    """Return the result unchanged if its text fits into ``limit_bytes``, otherwise as much of it as fits."""
    read = _as_read(result)
    whole = truncate(read, limit_bytes=limit_bytes)
    if not whole.was_truncated:
        return ModelResult(result, {})
    cut = truncate(read, limit_bytes=limit_bytes - _NOTE_BYTES).value
    text = _written(read)
    offset = _common_prefix(text, _written(_unmarked(cut, read)))
    facts = {"total_bytes": whole.total_bytes, "call_id": str(call_id), "offset": offset}
    return ModelResult(_marked(cut, _how_to_read_on(call_id, offset, len(text))), facts)


def model_text(result: Any, error: Mapping[str, Any] | None = None) -> tuple[str, bool]:
    """Return the whole text, and whether it is an error. ``error`` is an error as stored in its row."""
    if result is None and error is not None:
        return _error_text(error), True
    text_form = text_result(result)
    return _written(_as_read(result)), text_form.is_error if text_form else error is not None


def bounded_text(
    result: Any, error: Mapping[str, Any] | None, call_id: UUID, *, limit_bytes: int = MODEL_RESULT_BYTES
) -> tuple[str, bool]:
    """Return what a model reads of an ended call, and whether it is an error."""
    if result is None and error is not None:
        return str(model_result(_error_text(error), call_id, limit_bytes=limit_bytes).value), True
    return model_text(model_result(result, call_id, limit_bytes=limit_bytes).value, error)


def text_piece(text: str, offset: int, call_id: UUID, *, limit_bytes: int = MODEL_RESULT_BYTES) -> tuple[str, int]:
    """Return the next piece of text from ``offset``, with a note on how to continue; and its end."""
    piece = head(text[offset:], limit_bytes=limit_bytes - 2 * _NOTE_BYTES)
    end = offset + len(piece)
    if end == len(text):
        return piece, end
    return f"{piece}\n[{_how_to_read_on(call_id, end, len(text))}]", end


def _how_to_read_on(call_id: UUID, offset: int, characters: int) -> str:
    return (
        f"truncated: true. The full result has {characters:,} characters. Continue with `{READ_RESULT}`: "
        f'call_id "{call_id}", offset {offset}.'
    )


def _error_text(error: Mapping[str, Any]) -> str:
    fields = error.get("fields") or {}
    words = "; ".join(f"{field}: {flaw}" for field, flaw in fields.items())
    return f"{error['message']}{': ' if words else ''}{words}"


def _written(read: Any) -> str:
    """Render a result of ``_as_read`` as text."""
    if (text_form := text_result(read)) is not None:
        return text_form.text
    return read if isinstance(read, str) else json_text(read)


def _as_read(result: Any) -> Any:
    """Prepare a result for a model: no duplicates, no image bytes, every object in the order of its row."""
    if is_mcp_result(result):
        result = _of_mcp(result)
    return result if text_result(result) else _in_kept_order(result)


def _of_mcp(result: Mapping[str, Any]) -> Any:
    """Prepare an MCP server's response. Many servers repeat their structured content as text."""
    shown = dict(result)
    if "structured" in shown and _is_json_of(shown.get("text"), shown["structured"]):
        shown.pop("text", None)
    if isinstance(media := shown.get("media"), list):
        shown["media"] = [_without_data(medium) for medium in media]
    return shown["structured"] if shown.keys() == {"structured"} else shown


def _is_json_of(text: Any, value: Any) -> bool:
    if not text:
        return True
    try:
        return bool(json.loads(text) == value)
    except (TypeError, ValueError, RecursionError):
        return False


def _without_data(medium: Any) -> Any:
    if not isinstance(medium, Mapping) or not isinstance(data := medium.get("data"), str):
        return medium
    left = {key: value for key, value in medium.items() if key != "data"}
    return {**left, "left_out": f"{len(data):,} characters of base64. A person can see them in the call."}


def _in_kept_order(value: Any, level: int = 0) -> Any:
    """Order objects as ``jsonb`` does: shorter keys first, then by their bytes."""
    if level == _DEEPEST:
        return value
    if isinstance(value, Mapping):
        named = {str(key): item for key, item in value.items()}
        return {key: _in_kept_order(named[key], level + 1) for key in sorted(named, key=_kept_place)}
    if isinstance(value, list | tuple):
        return [_in_kept_order(item, level + 1) for item in value]
    return value


def _kept_place(key: str) -> tuple[int, bytes]:
    encoded = key.encode("utf-8", "replace")
    return len(encoded), encoded


def _common_prefix(one: str, other: str) -> int:
    """Count equal leading characters: up to there, nothing was cut."""
    return bisect_right(range(min(len(one), len(other)) + 1), 0, key=lambda count: one[:count] != other[:count]) - 1


def _unmarked(cut: Any, whole: Any) -> Any:
    """Remove the mark of a cut result: a comparison then finds where it was cut."""
    if isinstance(cut, dict) and "truncated" in cut and isinstance(whole, Mapping):
        return {**cut, "truncated": whole["truncated"]}
    return cut


def _marked(cut: Any, how: str) -> Any:
    """Mark a cut result, in its own format."""
    if isinstance(cut, str):
        return f"{cut}\n[{how}]"
    if not isinstance(cut, dict):
        return {"items": cut, "truncated": True, "read_on": how}
    if text_result(cut) is None:
        return _in_kept_order({**cut, "truncated": True, "read_on": how})
    key = "output" if "output" in cut else "text"
    marked = {**cut, key: f"{cut[key]}\n[{how}]"}
    return {**marked, "metadata": {**cut["metadata"], "truncated": True}} if cut.get("metadata") else marked
