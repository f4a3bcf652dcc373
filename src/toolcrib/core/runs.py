"""Runs: one response to one user message, in as many turns as needed. Data, and the table of states."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

from toolcrib.core.ids import AgentId, CallId, MessageId, RunId, SessionId, UserId, WorkspaceId
from toolcrib.core.messages import ModelToolCall, ToolCallId

# The priority of a message that names none. Lower ones, which start before those of other people, are for owners.
DEFAULT_PRIORITY, LAST_PRIORITY = 100, 1000
# How long a run may work, unless its agent's rules say otherwise: with tools, and without.
AGENTIC_SECONDS, CHAT_SECONDS = 30 * 60.0, 5 * 60.0

# Denials of protected names that a run may have before they count: a name is easily mistaken for another.
PROTECTED_NAMES_FREE = 2


@dataclass(frozen=True, slots=True)
class Violations:
    """How often a run left the sandbox's bounds, and how often it requested a protected name."""

    escapes: int = 0
    protected: int = 0

    @property
    def counted(self) -> int:
        """How many violations count against the run."""
        return self.escapes + max(0, self.protected - PROTECTED_NAMES_FREE)


class RunState(StrEnum):
    """The state of a run.

    ``queued``: the session has another run, or was stopped. ``ready``: any process may take it. ``waiting``: for a
    person or a child run.
    """

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


class RunWait(StrEnum):
    """What a run waits for.

    ``queue``: an earlier run of its session, or room among the workspace's runs. ``worker``: a free place in a server
    process, or the recovery of its workspace. ``child``: a child run. ``provider``: the model's provider limits
    requests. ``credential``: the credential's own limits have no room for another request. ``nobody``: its process is
    gone and no other has taken it over, or it is not in the queue.
    """

    RELEASE = "release"
    QUEUE = "queue"
    WORKER = "worker"
    PERSON = "person"
    CHILD = "child"
    PROVIDER = "provider"
    CREDENTIAL = "credential"
    NOBODY = "nobody"


class RunEnding(StrEnum):
    """Why a run ended."""

    DONE = "done"
    TURN_LIMIT = "turn-limit"
    BUDGET = "budget"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    VIOLATION = "violation"
    FAILED = "failed"


# A run that ended like this may be retried. Others have an answer, or would reach the same limit again.
_RETRIABLE = frozenset({RunEnding.FAILED, RunEnding.CANCELLED})


@dataclass(frozen=True, slots=True)
class Run:
    """A stored run. ``context_tokens`` is the size of its conversation at the model's last response."""

    id: RunId
    workspace_id: WorkspaceId
    session_id: SessionId
    user_id: UserId
    agent_id: AgentId | None
    via: str
    prompt: str
    state: RunState
    end_reason: RunEnding | None
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
    # Attempts at the calls of the current turn, and takeovers from dead processes since the last progress.
    attempts: int = 0
    takeovers: int = 0
    # The session was stopped while this run was queued: it starts only when somebody releases it.
    held: bool = False
    # Lower ones start first, among the runs of the workspace.
    priority: int = DEFAULT_PRIORITY
    # Put aside until then, because the provider limits requests.
    not_before: datetime | None = None
    # How often it was put aside since the model last answered, and for how long in total.
    provider_waits: int = 0
    provider_wait_ms: int = 0
    # Put aside until its credential has room for another model request.
    awaits_slot: bool = False
    # A child run: the run that waits for its end, and what was left of that run's turns and time when it started.
    parent_run_id: RunId | None = None
    max_turns: int | None = None
    max_active_ms: int | None = None
    # Turns of its own child runs that have ended, which count against its limit.
    child_turns: int = 0
    # It waits for child runs only, and for no person.
    waits_for_child: bool = False
    # In US dollars, at the prices of the time, and how many turns had no known price.
    cost: Decimal = Decimal(0)
    unpriced_turns: int = 0
    # The same of its child runs, and their tokens.
    child_tokens: int = 0
    child_cost: Decimal = Decimal(0)
    child_unpriced: int = 0
    # It answers no message, but replaces the older messages of its session by a summary.
    compacts: bool = False
    # Its process is gone, or nothing in the queue will start it: a defect, which workers repair.
    is_unattended: bool = False

    @property
    def known_cost(self) -> Decimal | None:
        """What it and its child runs have cost, as far as it is known; None if no price is known."""
        total = self.cost + self.child_cost
        return None if self.total_unpriced and not total else total.normalize() + 0

    @property
    def total_unpriced(self) -> int:
        """Turns of it and its child runs whose cost is unknown."""
        return self.unpriced_turns + self.child_unpriced

    @property
    def total_tokens(self) -> int:
        """Tokens of its requests and answers, and of its child runs."""
        return self.input_tokens + self.output_tokens + self.child_tokens

    @property
    def is_retriable(self) -> bool:
        """Whether its message may be sent again: it has no answer. A budget that stopped it may have been raised."""
        return self.end_reason in _RETRIABLE or (self.end_reason is RunEnding.BUDGET and self.error is not None)

    @property
    def is_between_turns(self) -> bool:
        """Whether it is put aside between two turns, so that it has no open calls."""
        waits_for_provider = self.not_before is not None and self.provider_waits > 0
        return self.state is RunState.READY and (self.awaits_slot or waits_for_provider)

    @property
    def waits_for(self) -> RunWait | None:
        """What the run waits for; None while it is executed, and after its end."""
        if self.is_unattended:
            return RunWait.NOBODY
        match self.state:
            case RunState.QUEUED:
                return RunWait.RELEASE if self.held else RunWait.QUEUE
            case RunState.READY if self.awaits_slot:
                return RunWait.CREDENTIAL
            case RunState.READY:
                # A run that never waited for its provider is put aside because its workspace is quarantined.
                return RunWait.PROVIDER if self.not_before and self.provider_waits else RunWait.WORKER
            case RunState.WAITING:
                return RunWait.CHILD if self.waits_for_child else RunWait.PERSON
            case RunState.RUNNING | RunState.ENDED:
                return None


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """What one request to a model has used. ``cost`` is in US dollars; None if the price is not known."""

    provider: str
    model: str
    input_tokens: int
    output_tokens: int
    cost: Decimal | None

    @property
    def unpriced(self) -> int:
        """1 if it has used something whose price is not known."""
        return int(self.cost is None and self.input_tokens + self.output_tokens > 0)

    @property
    def row(self) -> dict[str, Any]:
        """The parameters of ``count_model_usage``."""
        return {
            "provider": self.provider,
            "model": self.model,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost": str(self.cost or 0),
            "unpriced": self.unpriced,
        }

    @property
    def payload(self) -> dict[str, Any]:
        """The same in events."""
        return {
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "cost": None if self.cost is None else str(self.cost),
        }


class CostGroup(StrEnum):
    """What costs are added up by. A day is one of UTC. A session's are those of its child runs too."""

    DAY = "day"
    AGENT = "agent"
    MODEL = "model"
    SESSION = "session"


@dataclass(frozen=True, slots=True)
class CostSum:
    """What models have used for a day, an agent, a model or a session. ``cost`` lacks turns without a known price."""

    key: str
    runs: int
    input_tokens: int
    output_tokens: int
    cost: Decimal
    unpriced_turns: int

    @property
    def known_cost(self) -> Decimal | None:
        """The cost as far as it is known; None if no price is known."""
        return None if self.unpriced_turns and not self.cost else self.cost.normalize() + 0


class RequestedCallState(StrEnum):
    """The state of a requested call.

    ``begun``: by a process that is gone. ``waiting``: for a person or a child run. ``decided``: a person approved it,
    or its child run ended.
    """

    NEW = "new"
    BEGUN = "begun"
    WAITING = "waiting"
    DECIDED = "decided"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A call that the model requested in its last message, with its own id and its state."""

    id: CallId
    wire_id: ToolCallId
    name: str
    arguments: str
    state: RequestedCallState = RequestedCallState.NEW
    idempotent: bool = True

    def parsed(self) -> dict[str, Any] | None:
        """Return the arguments, or None if they are not a JSON object."""
        return ModelToolCall(self.wire_id, self.name, self.arguments).parsed()


class SessionActivity(StrEnum):
    """What a session does: its run works, waits for a person or is queued; or how the last one ended."""

    WORKING = "working"
    WAITING = "waiting"
    QUEUED = "queued"
    FAILED = "failed"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class SessionMessage:
    """A message of a session. An assistant's calls have Toolcrib's ids, in the order of the requests."""

    id: MessageId
    position: int
    run_id: RunId | None
    role: str
    content: str
    metadata: Mapping[str, Any] | None = None
    created_at: datetime | None = None

    @property
    def requested(self) -> list[tuple[CallId, Mapping[str, Any]]]:
        """The calls that it requests: Toolcrib's id, and the call as the model sent it."""
        return [(CallId(UUID(call["call_id"])), call) for call in (self.metadata or {}).get("tool_calls", ())]

    @property
    def call_ids(self) -> list[CallId]:
        return [call_id for call_id, _ in self.requested]

    @property
    def attached(self) -> list[CallId]:
        """The calls that read the files which a person's message brings."""
        return [CallId(UUID(one["call_id"])) for one in (self.metadata or {}).get("attachments", ())]
