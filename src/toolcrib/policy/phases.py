"""The current phase of an agent's workflow. Only people choose it, never the agent."""

from dataclasses import replace

from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Agent
from toolcrib.core.errors import BadArguments


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
