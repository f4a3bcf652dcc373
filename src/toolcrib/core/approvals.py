"""Approvals: calls that wait for a person, the decisions on them, and the grants that follow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from toolcrib.core.ids import (
    AgentId,
    ApprovalId,
    CallId,
    ChangeSetId,
    GrantId,
    RunId,
    SessionId,
    UserId,
    WorkspaceId,
)


class ApprovalState(StrEnum):
    """The state of an approval.

    ``stale``: the base changed since, and a new approval replaces this one. ``withdrawn``: the caller cancelled the
    call, or is gone.
    """

    OPEN = "open"
    ALLOWED = "allowed"
    DENIED = "denied"
    EXPIRED = "expired"
    STALE = "stale"
    WITHDRAWN = "withdrawn"


# An approval is decided once. An allowed one can become stale when it is applied, or be withdrawn if its caller is
# gone. A stale one ends when it is asked again, or when that is not possible.
TRANSITIONS: Mapping[ApprovalState, frozenset[ApprovalState]] = {
    ApprovalState.OPEN: frozenset(ApprovalState) - {ApprovalState.OPEN},
    ApprovalState.ALLOWED: frozenset({ApprovalState.STALE, ApprovalState.WITHDRAWN}),
    ApprovalState.DENIED: frozenset(),
    ApprovalState.EXPIRED: frozenset(),
    ApprovalState.STALE: frozenset({ApprovalState.WITHDRAWN}),
    ApprovalState.WITHDRAWN: frozenset(),
}


class GrantScope(StrEnum):
    """How far an approval extends: this call, similar calls in this session, or similar calls always."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class GrantRule:
    """What a grant covers: a tool and, if given, only these paths (globs) or exactly these commands."""

    tool: str
    paths: tuple[str, ...] | None = None
    commands: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """A rule saved from a person's decision. Without a session it applies until it is revoked."""

    id: GrantId
    rule: GrantRule
    session_id: SessionId | None = None


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """A person's decision.

    Attributes:
        rule: Required with a scope beyond this call. It is stored exactly as the person saw it.
        arguments_sha256: The hash of what the person saw. If given, it must match what would run.
    """

    approved: bool
    scope: GrantScope = GrantScope.ONCE
    reason: str | None = None
    rule: GrantRule | None = None
    arguments_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """A call that waits, or waited, for a decision.

    Attributes:
        shown: The arguments for display. What runs is stored separately.
        changes: What happens to each file, where that is known.
        change_set_id: The proposed change set.
    """

    id: ApprovalId
    workspace_id: WorkspaceId
    call_id: CallId
    session_id: SessionId | None
    run_id: RunId | None
    user_id: UserId
    agent_id: AgentId | None
    agent_name: str | None
    tool: str
    shown: Mapping[str, Any]
    arguments_sha256: str
    changes: Sequence[Mapping[str, Any]]
    change_set_id: ChangeSetId | None
    effects: Mapping[str, Any]
    rule: str
    reason: str
    isolation: str | None
    state: ApprovalState
    scope: GrantScope | None
    decided_by: UserId | None
    decided_by_name: str | None
    decided_at: datetime | None
    denial: str | None
    created_at: datetime
    expires_at: datetime
    replaces: ApprovalId | None
    offered: GrantRule
