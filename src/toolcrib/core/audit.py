"""What is recorded of a call: its row, and its record in the audit log."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from toolcrib.core.callers import Caller
from toolcrib.core.change_sets import ChangeSet, FileChange
from toolcrib.core.ids import ChangeSetId, PauseId, new_id

# How much of the arguments an audit record keeps.
AUDITED_BYTES = 16_000
_NAME = 200
_RULE = 500

# Arguments that carry content. The audit log keeps their size and hash, never the text.
CONTENT_ARGUMENTS = frozenset({"content", "old_string", "new_string", "insert_content"})

# Deeper nesting and longer numbers cannot be stored; no tool accepts them either.
_DEEPEST = 100
_MOST_BITS = 10_000


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One record of the audit log. Denied calls have one too."""

    caller: Caller
    tool: str
    decision: str
    rule: str
    arguments: Mapping[str, Any]
    outcome: str
    created_at: datetime
    duration_us: int
    error_code: str | None = None
    decided_by: UUID | None = None
    files: Sequence[Mapping[str, Any]] = ()
    hosts: Sequence[Mapping[str, Any]] = ()
    isolation: str | None = None
    id: UUID = field(default_factory=new_id)

    @property
    def row(self) -> dict[str, Any]:
        """The record as the database function takes it."""
        caller = self.caller
        return {
            "id": self.id,
            "workspace_id": caller.workspace_id,
            "created_at": self.created_at,
            "user_id": caller.user_id,
            "agent_id": caller.agent_id,
            "session_id": caller.session_id,
            "run_id": caller.run_id,
            "call_id": caller.call_id,
            "via": caller.via,
            "tool": self.tool[:_NAME],
            "decision": self.decision,
            "rule": self.rule[:_RULE],
            "decided_by": self.decided_by,
            "arguments": self.arguments,
            "outcome": self.outcome,
            "error_code": self.error_code,
            "files": self.files,
            "hosts": self.hosts,
            "isolation": self.isolation,
            "duration_us": self.duration_us,
        }


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call as a row: its tool and arguments, its state or result, and its change set.

    Attributes:
        pause_id: The approved pause with which the call runs.
        events: Events for its session, published in the same transaction.
    """

    caller: Caller
    tool: str
    arguments: Mapping[str, Any]
    state: str
    result: Any = None
    error: Mapping[str, Any] | None = None
    change_set_id: ChangeSetId | None = None
    process_id: str | None = None
    idempotent: bool = True
    pause_id: PauseId | None = None
    is_violation: bool = False
    events: Sequence[Mapping[str, Any]] = ()

    @property
    def row(self) -> dict[str, Any]:
        """The row as the database function takes it."""
        caller = self.caller
        return {
            "id": caller.call_id,
            "session_id": caller.session_id,
            "run_id": caller.run_id,
            "run_epoch": caller.run_epoch,
            "user_id": caller.user_id,
            "agent_id": caller.agent_id,
            "tool": self.tool,
            "arguments": self.arguments,
            "state": self.state,
            "result": self.result,
            "error": self.error,
            "change_set_id": self.change_set_id,
            "process_id": self.process_id,
            "idempotent": self.idempotent,
            "pause_id": self.pause_id,
            "is_violation": self.is_violation,
            "events": self.events or None,
        }


def redact_content(value: Any, level: int = 0) -> Any:
    """Replace contents by their size and sha256, at any depth, for the audit log."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"[… a number of {value.bit_length():,} bits …]"
    if not isinstance(value, Mapping | list | tuple):
        return value
    if level == _DEEPEST:
        return f"[… nested more than {_DEEPEST} levels deep …]"
    if isinstance(value, Mapping):
        return {
            key: _measured(inner) if key in CONTENT_ARGUMENTS else redact_content(inner, level + 1)
            for key, inner in value.items()
        }
    return [redact_content(inner, level + 1) for inner in value]


def audit_files(change_set: ChangeSet, edits: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """List every file that a change set touches, with its hashes before and after.

    Args:
        edits: What a person changed before approving. These files also have the hash of what was proposed.
    """
    proposed = {one["path"]: one["proposed_sha256"] for one in edits}
    return [
        {
            "path": str((change.after or change.before).path),  # type: ignore[union-attr]
            "change": str(change.kind),
            "before": _hex(change.before.sha256 if change.before else None),
            "after": _hex(change.after.sha256 if change.after else None),
            **_proposed(change, proposed),
        }
        for change in change_set.changes
    ]


def _proposed(change: FileChange, proposed: Mapping[str, str]) -> dict[str, str]:
    path = change.after.path.display if change.after else ""
    return {"proposed": proposed[path]} if path in proposed else {}


def _measured(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        body = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError):
        return {"bytes": None, "sha256": None}
    return {"bytes": len(body), "sha256": sha256(body).hexdigest()}


def _hex(digest: bytes | None) -> str | None:
    return digest.hex() if digest else None
