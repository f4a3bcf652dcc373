"""What a session's mode allows. In plan mode an agent looks, asks, and writes plans; nothing else."""

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.sessions import Mode
from toolcrib.policy.permissions import ToolFacts

PLAN_SUFFIX = ".plan"
EXIT = "exit_plan_mode"
# Writes files of any kind; in plan mode only plans.
_WRITES_PLANS = "write"


def offered_in(mode: Mode, tool: ToolFacts) -> bool:
    """Whether a model in a session of this mode is shown the tool."""
    if mode is Mode.BUILD:
        return tool.name != EXIT
    return tool.name == _WRITES_PLANS or _looks_or_plans(tool)


def refused_in(mode: Mode, tool: ToolFacts, effects: Effects) -> str | None:
    """Why a call is not allowed in this mode; none if it is."""
    if mode is Mode.BUILD or _looks_or_plans(tool):
        return None
    if tool.name == _WRITES_PLANS and effects.writes and all(p.name.endswith(PLAN_SUFFIX) for p in effects.writes):
        return None
    return (
        f"The session is in plan mode: `{tool.name}` may not be used, and `write` only for *{PLAN_SUFFIX}. "
        "Write the plan, ask with `ask_user` whether it is accepted, then call `exit_plan_mode`."
    )


def _looks_or_plans(tool: ToolFacts) -> bool:
    if tool.category in (Category.PLAN, Category.HUMAN):
        return True
    return tool.danger is Danger.SAFE and tool.category is not Category.EXEC
