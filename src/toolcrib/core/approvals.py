"""Approvals: calls that wait for a person, what the person is shown, what they may say, and the table of states."""

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
    """``stale``: what it was asked about has changed since, and it is asked anew in another approval.

    ``withdrawn``: whoever called wants it no more, or is gone.
    """

    OPEN = "open"
    ALLOWED = "allowed"
    DENIED = "denied"
    EXPIRED = "expired"
    STALE = "stale"
    WITHDRAWN = "withdrawn"


# An approval is decided once. What was allowed may still turn out stale when it is carried out, or nobody may be left
# for whom it could be; what is stale ends when it is asked again, or when it cannot be.
TRANSITIONS: Mapping[ApprovalState, frozenset[ApprovalState]] = {
    ApprovalState.OPEN: frozenset(ApprovalState) - {ApprovalState.OPEN},
    ApprovalState.ALLOWED: frozenset({ApprovalState.STALE, ApprovalState.WITHDRAWN}),
    ApprovalState.DENIED: frozenset(),
    ApprovalState.EXPIRED: frozenset(),
    ApprovalState.STALE: frozenset({ApprovalState.WITHDRAWN}),
    ApprovalState.WITHDRAWN: frozenset(),
}


class GrantScope(StrEnum):
    """How far an allowance reaches: this call, its like in this session, or its like for good."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class GrantRule:
    """What a grant covers: a tool, and, if named, only these paths (globs) or exactly these commands."""

    tool: str
    paths: tuple[str, ...] | None = None
    commands: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """A rule that a person's decision left behind. Without a session it holds until it is revoked."""

    id: GrantId
    rule: GrantRule
    session_id: SessionId | None = None


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """What a person decides. ``arguments_sha256`` is what they were shown; given, it must be what would be done.

    ``rule`` must be given with a scope beyond this call: it is stored only as it was seen.
    """

    approved: bool
    scope: GrantScope = GrantScope.ONCE
    reason: str | None = None
    rule: GrantRule | None = None
    arguments_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """A call that waits, or waited. ``shown`` is for people's eyes; what is executed is kept apart from it.

    ``changes`` says per file what would become of it, where that is known; ``change_set_id`` holds the very set.
    ``bases`` are the versions that the person's yes is about.
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
