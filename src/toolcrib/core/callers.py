"""Who makes a call: a person or an agent, with workspace, session, run and call."""

from dataclasses import dataclass, field
from enum import StrEnum

from toolcrib.core.agents import AgentRules, TrustLevel
from toolcrib.core.ids import AgentId, CallId, RunId, SessionId, UserId, WorkspaceId, new_id
from toolcrib.core.paused_calls import Grant


class SessionMode(StrEnum):
    """A session's mode. ``plan``: read everything, write only plans. ``build``: everything that the agent may do."""

    PLAN = "plan"
    BUILD = "build"


class WorkspaceRole(StrEnum):
    """A member's role in a workspace."""

    VIEWER = "viewer"
    MEMBER = "member"
    OWNER = "owner"

    def covers(self, needed: "WorkspaceRole") -> bool:
        return _BY_RANK.index(self) >= _BY_RANK.index(needed)


_BY_RANK = tuple(WorkspaceRole)


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent of a workspace, with its rules and grants.

    Attributes:
        rules: Its rules, with trust already limited by ``max_trust``.
        max_trust: The ceiling that owners set, for the workspace or for the agent.
        phase: The phase whose permissions the rules have, if the agent has phases.
        directory: Where its commands start in its session, relative to the project. Empty: its root.
        is_read_only: It may not write or run commands, whatever its permissions say: a run that could not started it.
    """

    id: AgentId
    name: str
    rules: AgentRules
    grants: tuple[Grant, ...] = ()
    max_trust: TrustLevel | None = None
    phase: str | None = None
    is_read_only: bool = False
    directory: str = ""

    @property
    def described(self) -> str:
        """The agent as errors name it."""
        return f"Agent {self.name!r}" + (f" in phase {self.phase!r}" if self.phase else "")

    @property
    def permissions_rule(self) -> str:
        """The path of the current permissions in the agent's definition."""
        return f"agent.phases.{self.phase}.tool_permissions" if self.phase else "agent.tool_permissions"


@dataclass(frozen=True, slots=True)
class Narrowing:
    """How a call narrows the permissions of the child run that it starts. ``None`` narrows nothing."""

    tools: tuple[str, ...] | None = None
    trust: TrustLevel | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity behind a call. ``user_id`` is the responsible person, also when an agent calls.

    Membership is checked in the query that serves the call.

    Attributes:
        run_epoch: The run's fencing epoch. A commit by a run that another process took over fails.
    """

    workspace_id: WorkspaceId
    user_id: UserId
    agent: Agent | None = None
    session_id: SessionId | None = None
    run_id: RunId | None = None
    call_id: CallId = field(default_factory=lambda: CallId(new_id()))
    run_epoch: int | None = None
    token_version: int | None = None
    via: str = "library"
    mode: SessionMode = SessionMode.BUILD

    @property
    def agent_id(self) -> AgentId | None:
        return self.agent.id if self.agent else None

    @property
    def state_scope(self) -> str:
        """The scope of the caller's @state tree."""
        return state_scope(self.session_id, self.agent_id, self.user_id)

    @property
    def is_agent(self) -> bool:
        return self.agent is not None


def state_scope(session_id: SessionId | None, agent_id: AgentId | None, user_id: UserId | None) -> str:
    """Return the scope of an @state tree: the session or, outside one, the agent or the user."""
    return str(session_id or agent_id or user_id)
