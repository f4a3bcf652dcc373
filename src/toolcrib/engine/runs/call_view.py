"""What is known of a call of a run: how far it is, what came of it, and what the model reads of that."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from toolcrib.domain.runs import CallState
from toolcrib.policy.bounds import bound
from toolcrib.storage.json_text import json_text
from toolcrib.storage.run_steps import CallRow

_RESULT_BYTES = 60_000


@dataclass(frozen=True)
class CallView:
    """A call, seen by its run. ``begun``: a person has allowed it, and it had begun when its process died."""

    tool: str
    state: CallState
    result: Any = None
    error: Mapping[str, Any] | None = None
    repeatable: bool = True
    begun: bool = False

    @classmethod
    def of(cls, row: CallRow) -> Self:
        return cls(row.tool, row.state, row.result, row.error, row.repeatable, row.begun)

    @cached_property
    def told(self) -> tuple[str, bool]:
        """What a model reads of its outcome, and whether it is an error. The same in every request."""
        return _result_text(self.result, self.error)


def _result_text(result: Any, error: Mapping[str, Any] | None) -> tuple[str, bool]:
    """What a model reads of a call's outcome, and whether it is an error."""
    if isinstance(result, Mapping) and set(result) == {"output", "metadata", "is_error"}:
        text, failed = str(result["output"]), bool(result["is_error"])
    elif result is None and error is not None:
        text, failed = _told(error), True
    else:
        text, failed = result if isinstance(result, str) else json_text(result), error is not None
    return bound(text, limit_bytes=_RESULT_BYTES).value, failed


def _told(error: Mapping[str, Any]) -> str:
    fields = error.get("fields") or {}
    words = "; ".join(f"{field}: {flaw}" for field, flaw in fields.items())
    return f"{error['message']}{': ' if words else ''}{words}"
