"""How a tool call ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toolcrib.domain.errors import ToolcribError
from toolcrib.domain.ids import CallId, ChangeSetId


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
