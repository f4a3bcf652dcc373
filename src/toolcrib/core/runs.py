"""Runs: one answer to one message of a user, in as many turns as it takes. Data, and the table of states."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from toolcrib.core.ids import AgentId, CallId, MessageId, RunId, SessionId, UserId, WorkspaceId
from toolcrib.core.messages import ModelToolCall, ToolCallId

# So many refusals of protected names a run may have before they count: a name alone is easily taken for another.
PROTECTED_NAMES_FREE = 2


@dataclass(frozen=True, slots=True)
class Violations:
    """How often a run touched the sandbox's border: by leaving it, and by asking for a protected name."""

    escapes: int = 0
    protected: int = 0

    @property
    def counted(self) -> int:
        return self.escapes + max(0, self.protected - PROTECTED_NAMES_FREE)


class RunState(StrEnum):
    """``queued``: the session has another run. ``ready``: any process may take it. ``waiting``: for a person."""

    QUEUED = "queued"
    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    ENDED = "ended"


TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset({RunState.READY, RunState.ENDED}),
    RunState.READY: frozenset({RunState.RUNNING, RunState.ENDED}),
    RunState.RUNNING: frozenset({RunState.RUNNING, RunState.READY, RunState.WAITING, RunState.ENDED}),
    RunState.WAITING: frozenset({RunState.READY, RunState.ENDED}),
    RunState.ENDED: frozenset(),
}


class RunEnding(StrEnum):
    """Why a run ended."""

    DONE = "done"
    TURN_LIMIT = "turn-limit"
    BUDGET = "budget"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    VIOLATION = "violation"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is stored. ``context_tokens`` is what its conversation took up when the model last answered."""

    id: RunId
    workspace_id: WorkspaceId
    session_id: SessionId
    user_id: UserId
    agent_id: AgentId | None
    via: str
    prompt: str
    state: RunState
    ending: RunEnding | None
    epoch: int
    turns: int
    input_tokens: int
    output_tokens: int
    context_tokens: int
    active_ms: int
    active_since: datetime | None
    cancelled_by: UserId | None
    error: Mapping[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    # Attempts at the calls of the present turn, and takeovers from dead processes since the run last got on.
    attempts: int = 0
    takeovers: int = 0


class RequestedCallState(StrEnum):
    """How far a call of the model is. ``begun``: by a process that is gone. ``decided``: a person allowed it."""

    NEW = "new"
    BEGUN = "begun"
    WAITING = "waiting"
    DECIDED = "decided"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A call that the model asked for in its last message, under our own id, and how far it is."""

    id: CallId
    wire_id: ToolCallId
    name: str
    arguments: str
    state: RequestedCallState = RequestedCallState.NEW
    repeatable: bool = True

    def parsed(self) -> dict[str, Any] | None:
        """The arguments, or None if they are no JSON object."""
        return ModelToolCall(self.wire_id, self.name, self.arguments).parsed()


@dataclass(frozen=True, slots=True)
class SessionMessage:
    """A message of a session. An assistant's calls have ids of ours, in the order in which it asked for them."""

    id: MessageId
    position: int
    run_id: RunId | None
    role: str
    content: str
    metadata: Mapping[str, Any] | None = None
    created_at: datetime | None = None

    @property
    def call_ids(self) -> list[CallId]:
        return [CallId(UUID(call["call_id"])) for call in (self.metadata or {}).get("tool_calls", ())]
