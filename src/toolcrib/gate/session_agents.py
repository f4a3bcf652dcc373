"""The agent of a session as it calls tools there: with the session's phase and trust, and its parents' limits."""

from dataclasses import replace

from toolcrib.core.callers import Agent, Caller, Narrowing, SessionMode
from toolcrib.core.errors import NotFound
from toolcrib.core.ids import UserId, WorkspaceId
from toolcrib.policy.child_rules import narrowed_agent
from toolcrib.storage.agents import AgentStore
from toolcrib.storage.database import Tenant
from toolcrib.storage.runs import RunStore
from toolcrib.storage.sessions import Session, SessionStore
from toolcrib.tools.tool_registry import ToolRegistry


class SessionAgents:
    """Computes what an agent may do in a session. In the session of a child run: at most what its parents may."""

    def __init__(self, agents: AgentStore, sessions: SessionStore, runs: RunStore, registry: ToolRegistry) -> None:
        self._agents = agents
        self._sessions = sessions
        self._runs = runs
        self._registry = registry

    async def caller_in(self, caller: Caller, session: Session) -> Caller:
        """Return who calls in the session: the session's agent, for the person. In one without an agent, the person.

        An agent's own key always calls as that agent.

        Raises:
            NotFound: The agent or the session of a parent was deleted.
        """
        agent, mode = caller.agent, session.mode
        if agent is None and session.agent_id is not None:
            agent = (await self._agents.get(Tenant.of(caller), session.agent_id)).as_caller
        if agent is not None:
            agent, mode = await self.in_session(caller.workspace_id, agent, session, caller.user_id)
        return replace(caller, agent=agent, session_id=session.id, mode=mode)

    async def in_session(
        self, workspace_id: WorkspaceId, agent: Agent, session: Session, user_id: UserId
    ) -> tuple[Agent, SessionMode]:
        """Return the agent as it calls tools in the session for this person, and the mode.

        Another agent than the session's own keeps its rules.

        Raises:
            NotFound: The agent or the session of a parent was deleted.
        """
        if session.parent_run_id is None or agent.id != session.agent_id:
            return session.apply_to(agent), session.mode
        tenant = Tenant(workspace_id)
        run = await self._runs.get(tenant, session.parent_run_id)
        if run.agent_id is None:
            raise NotFound("The run that started this session has no agent.")
        stored, above = await self._agents.get(tenant, run.agent_id), await self._sessions.get(tenant, run.session_id)
        parent, parent_mode = await self.in_session(workspace_id, stored.as_caller, above, user_id)
        own = session.apply_to(agent)
        registry = await self._registry.for_person(workspace_id, user_id, own.rules)
        tools = registry.list_for_scope(own.rules)
        narrowed = narrowed_agent(own, parent, tools, session.narrowed_to or Narrowing(), session.id)
        return narrowed, SessionMode.PLAN if SessionMode.PLAN in (session.mode, parent_mode) else SessionMode.BUILD
