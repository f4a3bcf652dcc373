"""Who makes a call: a person or an agent, in which workspace, as part of which session, run and call."""

from dataclasses import dataclass, field
from enum import StrEnum

from toolcrib.core.agents import AgentRules, TrustLevel
from toolcrib.core.approvals import Grant
from toolcrib.core.ids import AgentId, CallId, RunId, SessionId, UserId, WorkspaceId, new_id

# A session's mode. Data only.


class SessionMode(StrEnum):
    """``plan``: look and write plans. ``build``: do what the agent may."""

    PLAN = "plan"
    BUILD = "build"


class WorkspaceRole(StrEnum):
    """A member's role in a workspace."""

    VIEWER = "viewer"
    MEMBER = "member"
    OWNER = "owner"

    @property
    def rank(self) -> int:
        return list(WorkspaceRole).index(self)

    def covers(self, needed: "WorkspaceRole") -> bool:
        return self.rank >= needed.rank


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent of a workspace, with the rules that bind it and what people have granted it since.

    ``max_trust`` is the ceiling that owners set, for the workspace or for the agent; the rules' own trust is within it.
    ``phase`` names the phase whose permissions the rules have, if the agent has phases.
    """

    id: AgentId
    name: str
    rules: AgentRules
    grants: tuple[Grant, ...] = ()
    max_trust: TrustLevel | None = None
    phase: str | None = None

    @property
    def described(self) -> str:
        """The agent as errors name it."""
        return f"Agent {self.name!r}" + (f" in phase {self.phase!r}" if self.phase else "")

    @property
    def permissions_rule(self) -> str:
        """Where in its definition the permissions are that bind it now."""
        return f"agent.phases.{self.phase}.tool_permissions" if self.phase else "agent.tool_permissions"


@dataclass(frozen=True, slots=True)
class Caller:
    """The one who calls. ``user_id`` answers for it, also when an agent acts.

    ``fence`` is the run's epoch: a commit by a run that was taken over is refused.
    Whether the user is a member is found out in the database trip that serves the call.
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
        """Which @state tree is theirs: the session's, or, outside a session, their own."""
        return str(self.session_id or self.agent_id or self.user_id)

    @property
    def is_agent(self) -> bool:
        return self.agent is not None
