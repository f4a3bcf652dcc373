"""The ``ok`` union that every call of this toolset results in, and the limits that bind its caller."""

import re
from typing import Any

from toolcrib.domain.agents import AgentRules
from toolcrib.domain.callers import Caller
from toolcrib.domain.errors import (
    BadFrontmatter,
    NotFound,
    Outdated,
    OverWriteLimit,
    TooLarge,
    ToolcribError,
    Violation,
    described,
)
from toolcrib.domain.places import Place

# The first that fits counts. `E_SCHEMA_VALIDATION` and `E_INVALID_TRANSITION` are reserved.
_CODES: tuple[tuple[type[ToolcribError], str], ...] = (
    (NotFound, "ENOENT"),
    (Violation, "E_SANDBOX_VIOLATION"),
    (OverWriteLimit, "E_WRITE_LIMIT"),
    (TooLarge, "E_READ_LIMIT"),
    (BadFrontmatter, "E_INVALID_FRONTMATTER"),
    (Outdated, "E_PRECONDITION_FAILED"),
)
_OTHERWISE = "E_INTERNAL"


def done(place: Place, **facts: Any) -> dict[str, Any]:
    return {"ok": True, "path": str(place), **facts}


def failed(error: ToolcribError) -> dict[str, Any]:
    """Any failure or refusal, in the words of this dialect."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), _OTHERWISE)
    told: dict[str, Any] = {"code": code, "message": described(error)}
    if details := _details(error):
        told["details"] = details
    return {"ok": False, "error": told}


def _details(error: ToolcribError) -> dict[str, Any]:
    if isinstance(error, Violation):
        return {"violation": re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()}
    return {"fields": error.fields} if error.fields else {}


def rules_of(caller: Caller) -> AgentRules:
    """The limits that bind a caller: an agent's own; a person has the defaults."""
    return caller.agent.rules if caller.agent else AgentRules()


def is_hidden(name: str) -> bool:
    return name.startswith(".")
