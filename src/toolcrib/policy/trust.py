"""How far an agent may be trusted: ceilings that owners set, for a workspace and for an agent."""

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
    """The agent as it calls: trusted no further than the ceilings allow, and in the first of its phases."""
    ceiling = ceiling_of(rules, workspace_ceiling)
    if rules.trust.exceeds(ceiling):
        rules = rules.model_copy(update={"trust": ceiling})
    return in_phase(Agent(agent_id, name, rules, grants, ceiling), None)


def ceiling_of(rules: AgentRules | None, workspace_ceiling: TrustLevel | None) -> TrustLevel | None:
    """The lower of the two ceilings, if there is any."""
    own = rules.max_trust if rules is not None else None
    return own.capped(workspace_ceiling) if own is not None else workspace_ceiling


def packaged_rules(rules: AgentRules) -> AgentRules:
    """The rules of an agent that came with a package: whoever packed it trusts nobody in the owner's name.

    People are asked before what is dangerous, names stay protected, and only owners trust it further in a session. An
    owner who wants it otherwise gives the agent another definition.
    """
    ceiling = (
        rules.max_trust if rules.max_trust is not None and not rules.max_trust.exceeds(TrustLevel.GUIDED) else None
    )
    return rules.model_copy(
        update={"trust": rules.trust.capped(TrustLevel.GUIDED), "max_trust": ceiling, "unprotect": ()},
    )


def refuse_beyond_ceiling(
    trust: TrustLevel | None, *, role: WorkspaceRole, rules: AgentRules | None, workspace_ceiling: TrustLevel | None
) -> None:
    """Forbidden if a person of this role may not trust an agent so far in a session."""
    ceiling = ceiling_of(rules, workspace_ceiling)
    if trust is None:
        return
    if trust.exceeds(ceiling):
        raise Forbidden(
            f"A session here may be trusted {ceiling} at most: an owner has set that ceiling (`max_trust`). "
            f"Choose {ceiling} or less, or let an owner raise it."
        )
    if rules is not None and rules.max_trust is None and role is not WorkspaceRole.OWNER and trust.exceeds(rules.trust):
        raise Forbidden(
            f"The agent is {rules.trust}: only an owner of the workspace may trust it further. "
            f"Choose {rules.trust} or less, or let an owner set the agent's `max_trust`."
        )


def in_session(agent: Agent, trust: TrustLevel | None, *, by_owner: bool) -> Agent:
    """The agent as a session trusts it. Rules and ceilings may have become stricter since that was said."""
    if trust is None:
        return agent
    ceiling = agent.max_trust
    if agent.rules.max_trust is None and not by_owner:
        ceiling = agent.rules.trust
    return replace(agent, rules=agent.rules.model_copy(update={"trust": trust.capped(ceiling)}))
