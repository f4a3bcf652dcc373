"""Trust ceilings that owners set, for a workspace and for an agent."""

from dataclasses import replace

from toolcrib.core.agents import AgentRules, TrustLevel
from toolcrib.core.approvals import Grant
from toolcrib.core.callers import Agent, WorkspaceRole
from toolcrib.core.errors import Forbidden
from toolcrib.core.ids import AgentId
from toolcrib.policy.phases import in_phase


def bound_agent(
    agent_id: AgentId, name: str, rules: AgentRules, grants: tuple[Grant, ...], *, workspace_ceiling: TrustLevel | None
) -> Agent:
    """Build the calling agent: with trust limited by the ceilings, and in its first phase."""
    ceiling = ceiling_of(rules, workspace_ceiling)
    if rules.trust.exceeds(ceiling):
        rules = rules.model_copy(update={"trust": ceiling})
    return in_phase(Agent(agent_id, name, rules, grants, ceiling), None)


def ceiling_of(rules: AgentRules | None, workspace_ceiling: TrustLevel | None) -> TrustLevel | None:
    """Return the lower of the two ceilings, if there is any."""
    own = rules.max_trust if rules is not None else None
    return own.capped(workspace_ceiling) if own is not None else workspace_ceiling


def packaged_rules(rules: AgentRules) -> AgentRules:
    """Limit the rules of a packaged agent: the package's author cannot grant trust for the workspace's owner.

    Dangerous calls need an approval, protected paths stay protected, and only owners can raise the trust in a session.
    An owner who wants otherwise gives the agent another definition.
    """
    ceiling = (
        rules.max_trust if rules.max_trust is not None and not rules.max_trust.exceeds(TrustLevel.GUIDED) else None
    )
    return rules.model_copy(
        update={"trust": rules.trust.capped(TrustLevel.GUIDED), "max_trust": ceiling, "unprotected_paths": ()},
    )


def reject_beyond_ceiling(
    trust: TrustLevel | None, *, role: WorkspaceRole, rules: AgentRules | None, workspace_ceiling: TrustLevel | None
) -> None:
    """Raise ``Forbidden`` if a person with this role may not set this trust in a session."""
    ceiling = ceiling_of(rules, workspace_ceiling)
    if trust is None:
        return
    if trust.exceeds(ceiling):
        raise Forbidden(
            f"The trust of a session here is limited to {ceiling} (`max_trust`). "
            f"Choose {ceiling} or lower, or ask an owner to raise the limit."
        )
    if rules is not None and rules.max_trust is None and role is not WorkspaceRole.OWNER and trust.exceeds(rules.trust):
        raise Forbidden(
            f"The agent is {rules.trust}: only an owner of the workspace can set a higher trust. "
            f"Choose {rules.trust} or lower, or ask an owner to set the agent's `max_trust`."
        )


def in_session(agent: Agent, trust: TrustLevel | None, *, by_owner: bool) -> Agent:
    """Apply a session's trust to the agent. Rules and ceilings may have become stricter since it was set."""
    if trust is None:
        return agent
    ceiling = agent.max_trust
    if agent.rules.max_trust is None and not by_owner:
        ceiling = agent.rules.trust
    return replace(agent, rules=agent.rules.model_copy(update={"trust": trust.capped(ceiling)}))
