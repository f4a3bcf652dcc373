"""Says which rule decides a call and why, without running it. Has no logic of its own: it asks the gate's."""

from dataclasses import dataclass

from toolcrib.domain.callers import Caller, Role
from toolcrib.domain.effects import Effects
from toolcrib.policy.decisions import Verdict, decide
from toolcrib.policy.guard import Access, Guard
from toolcrib.policy.permissions import ToolFacts


@dataclass(frozen=True, slots=True)
class Withheld:
    """A file of a batch that would not be given, though the others would."""

    path: str
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision, told to a person. ``agent`` is none when a person calls."""

    tool: str
    agent: str | None
    verdict: Verdict
    rule: str
    reason: str
    needs_role: Role
    considered: tuple[str, ...]
    withheld: tuple[Withheld, ...]


def explain(caller: Caller, tool: ToolFacts, effects: Effects) -> Explanation:
    """What the gate would do with a call, and every rule that it would look at on the way."""
    decision = decide(caller, tool, effects)
    return Explanation(
        tool=tool.name,
        agent=caller.agent.name if caller.agent else None,
        verdict=decision.verdict,
        rule=decision.rule,
        reason=decision.reason,
        needs_role=decision.needs_role,
        considered=decision.considered,
        withheld=_withheld(Guard(caller, tool.name), effects),
    )


def _withheld(guard: Guard, effects: Effects) -> tuple[Withheld, ...]:
    return tuple(
        Withheld(str(place), objection.rule, objection.error.message)
        for place in effects.reads_each
        if (objection := guard.objection(Access.READ, place))
    )
