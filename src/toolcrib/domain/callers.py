"""Who makes a call: a person or an agent, in which workspace, as part of which session, run and call."""

from dataclasses import dataclass, field
from enum import StrEnum

from toolcrib.domain.agents import AgentRules
from toolcrib.domain.approvals import Grant
from toolcrib.domain.ids import AgentId, CallId, RunId, SessionId, UserId, WorkspaceId, new_id
from toolcrib.domain.sessions import Mode


class Role(StrEnum):
    """A member's role in a workspace."""

    VIEWER = "viewer"
    MEMBER = "member"
    OWNER = "owner"

    @property
    def rank(self) -> int:
        return list(Role).index(self)

    def covers(self, needed: "Role") -> bool:
        return self.rank >= needed.rank


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent of a workspace, with the rules that bind it and what people have granted it since."""

    id: AgentId
    name: str
    rules: AgentRules
    grants: tuple[Grant, ...] = ()


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
    fence: int | None = None
    token_version: int | None = None
    via: str = "library"
    mode: Mode = Mode.BUILD

    @property
    def agent_id(self) -> AgentId | None:
        return self.agent.id if self.agent else None

    @property
    def state_scope(self) -> str:
        """Which @state tree is theirs: the run's, or, outside a run, their own."""
        return str(self.run_id or self.agent_id or self.user_id)

    @property
    def is_agent(self) -> bool:
        return self.agent is not None
