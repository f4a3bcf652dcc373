"""The ``ok`` union that every call of this toolset returns, and the limits of its caller."""

from typing import Any

from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Caller
from toolcrib.core.errors import (
    InvalidFrontmatter,
    InvalidTransition,
    NotFound,
    PathOutsideMount,
    PreconditionFailed,
    ProtectedPath,
    ReadOnlyMount,
    SandboxViolation,
    SchemaMismatch,
    TooLarge,
    ToolcribError,
    WriteLimitExceeded,
    error_text,
)
from toolcrib.core.paths import WorkspacePath

# The first match counts.
_CODES: tuple[tuple[type[ToolcribError], str], ...] = (
    (NotFound, "ENOENT"),
    (SandboxViolation, "E_SANDBOX_VIOLATION"),
    (WriteLimitExceeded, "E_WRITE_LIMIT"),
    (TooLarge, "E_READ_LIMIT"),
    (InvalidFrontmatter, "E_INVALID_FRONTMATTER"),
    (SchemaMismatch, "E_SCHEMA_VALIDATION"),
    (InvalidTransition, "E_INVALID_TRANSITION"),
    (PreconditionFailed, "E_PRECONDITION_FAILED"),
)
_OTHERWISE = "E_INTERNAL"
# Part of the wire format, so they stay whatever the classes are called.
_VIOLATIONS: dict[type[ToolcribError], str] = {
    PathOutsideMount: "outside_mount",
    ProtectedPath: "protected_name",
    ReadOnlyMount: "read_only_mount",
}


def done(path: WorkspacePath, **facts: Any) -> dict[str, Any]:
    """Encode a success."""
    return {"ok": True, "path": str(path), **facts}


def failed(error: ToolcribError) -> dict[str, Any]:
    """Encode any failure or denial in this dialect."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), _OTHERWISE)
    error_data: dict[str, Any] = {"code": code, "message": error_text(error)}
    if details := _details(error):
        error_data["details"] = details
    return {"ok": False, "error": error_data}


def _details(error: ToolcribError) -> dict[str, Any]:
    if isinstance(error, SandboxViolation):
        return {"violation": _VIOLATIONS.get(type(error), "violation")}
    if isinstance(error, InvalidTransition):
        return {"allowedNext": list(error.allowed)}
    return {"fields": error.fields} if error.fields else {}


def rules_of(caller: Caller) -> AgentRules:
    """Return the caller's limits: an agent's own; people have the defaults."""
    return caller.agent.rules if caller.agent else AgentRules()


def is_hidden(name: str) -> bool:
    return name.startswith(".")
