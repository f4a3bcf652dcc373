"""What an agent may do in a session: trust, limited by the owners' ceilings, and the phase that a person chose.

Also which calls a trust level asks about: ``asks_before`` by danger, ``irreversible_reason`` by what can be undone.
"""

from dataclasses import replace
from typing import assert_never

from toolcrib.core.agents import AgentRules, TrustLevel
from toolcrib.core.callers import Agent, WorkspaceRole
from toolcrib.core.errors import BadArguments, Forbidden
from toolcrib.core.ids import AgentId
from toolcrib.core.paused_calls import Grant
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.policy.grants import SHELL_TOOLS
from toolcrib.policy.permissions import ToolMetadata, granted_hosts, host_covers


def asks_before(rules: AgentRules, tool: ToolMetadata, effects: Effects) -> bool:
    """Whether a person must approve a call before it runs, by trust alone."""
    match rules.trust:
        case TrustLevel.SUPERVISED:
            return True
        case TrustLevel.GUIDED:
            return tool.danger is Danger.DANGEROUS
        case TrustLevel.REVIEW:
            return irreversible_reason(rules, tool, effects) is not None
        case TrustLevel.AUTONOMOUS:
            return False
        case _:
            assert_never(rules.trust)


def irreversible_reason(rules: AgentRules, tool: ToolMetadata, effects: Effects) -> str | None:
    """Return why history and trash could not undo a call, as far as that is known before it runs; None if they can.

    The hosts of shell commands are asked about at every trust, unless they are granted. A tool that declares the paths
    that it writes, or that it drafts, does nothing else.
    """
    if tool.danger is Danger.SAFE or tool.declared_read_only:
        return None
    if tool.category is ToolCategory.MCP:
        return "it is a tool of an MCP server that does not declare it as read-only"
    granted = granted_hosts(rules, tool.name)
    contacted = [host for host in effects.hosts if not any(host_covers(one, host) for one in granted)]
    if contacted and tool.name not in SHELL_TOOLS:
        return f"it contacts {', '.join(contacted)}"
    if effects.command is not None:
        # A command that is not planned again runs as a transaction, whose effect is a change set.
        return "it changes files while it runs" if tool.replannable else None
    if effects.writes or tool.drafts:
        return None
    return "it declares no files that it changes, so it may have any other effect"


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


def in_phase(agent: Agent, phase: str | None) -> Agent:
    """Return the agent with the permissions of a phase (default: its first). Agents without phases stay unchanged.

    A phase that the definition no longer has grants nothing: the agent is read-only.
    """
    rules = agent.rules
    if not rules.phases:
        return agent
    name = rules.phases[0].name if phase is None else phase
    permissions = next((one.tool_permissions for one in rules.phases if one.name == name), {})
    return replace(agent, rules=rules.model_copy(update={"tool_permissions": permissions}), phase=name)


def reject_unknown_phase(rules: AgentRules | None, phase: str | None) -> None:
    """Raise ``BadArguments`` if the agent has no such phase. ``None`` is always valid."""
    names = [one.name for one in rules.phases] if rules is not None else []
    if phase is None or phase in names:
        return
    known = f"Expected one of {', '.join(names)}" if names else "The session's agent has no phases"
    raise BadArguments({"phase": known})
