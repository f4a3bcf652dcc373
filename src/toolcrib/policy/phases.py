"""Which phase of its workflow binds an agent. People choose it; nothing that an agent can call does."""

from dataclasses import replace

from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Agent
from toolcrib.core.errors import BadArguments


def in_phase(agent: Agent, phase: str | None) -> Agent:
    """The agent with the permissions of a phase; without one, of its first. Agents without phases stay as they are.

    A phase that the definition does not have any more gives nothing: there the agent reads only.
    """
    rules = agent.rules
    if not rules.phases:
        return agent
    name = rules.phases[0].name if phase is None else phase
    permissions = next((one.tool_permissions for one in rules.phases if one.name == name), {})
    return replace(agent, rules=rules.model_copy(update={"tool_permissions": permissions}), phase=name)


def refuse_unknown_phase(rules: AgentRules | None, phase: str | None) -> None:
    """BadArguments if the agent has no such phase. Every agent has none."""
    names = [one.name for one in rules.phases] if rules is not None else []
    if phase is None or phase in names:
        return
    known = f"Expected one of {', '.join(names)}" if names else "The session's agent has no phases"
    raise BadArguments({"phase": known})
