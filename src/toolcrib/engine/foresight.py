"""What a call would do, worked out before anyone is asked, and how that is put to a person. Writes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.domain.approvals import Approval
from toolcrib.domain.changes import ChangeSet
from toolcrib.domain.effects import Effects
from toolcrib.domain.places import Place
from toolcrib.policy.bounds import bound
from toolcrib.policy.decisions import Decision
from toolcrib.workspace.paths import shown

_NAMED = 10
_SAID_BYTES = 10_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What a call would do and answer, worked out before anyone is asked."""

    change_set: ChangeSet
    result: Any
    # Places whose names are closed to agents, and how well the program was held that would write them.
    protected: tuple[Place, ...] = ()
    isolation: str | None = None

    @property
    def is_empty(self) -> bool:
        return not self.change_set.changes


def granted_in(change_set: ChangeSet, approval: Approval) -> frozenset[Place]:
    """The places of a proposed set whose protected names the person saw in front of them."""
    seen = frozenset(approval.effects.get("protected", ()))
    return frozenset(place for place in change_set.places if shown(place) in seen)


def why(decision: Decision, plan: Plan | None) -> tuple[str, str]:
    """The rule by which a person is asked, and why, with protected names in front."""
    if plan is None or not plan.protected:
        return decision.rule, decision.reason
    names = [shown(place) for place in plan.protected]
    others = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return "protected-name", (
        f"It would write {', '.join(names[:_NAMED])}{others}: names that hold secrets or become code on a person's "
        "machine. Only a person can let that pass."
    )


def effects_row(effects: Effects, plan: Plan | None) -> dict[str, Any]:
    protected = {"protected": [shown(place) for place in plan.protected]} if plan and plan.protected else {}
    ran = {"output": _said(plan.result)} if plan and effects.runs is not None else {}
    return {
        "reads": [shown(place) for place in (*effects.reads, *effects.reads_each)],
        "writes": [shown(place) for place in effects.writes],
        "runs": effects.runs,
        "contacts": list(effects.contacts),
        **protected,
        **ran,
    }


def _said(result: Any) -> Any:
    """What a command said whose effect is asked about."""
    said = result.get("output") if isinstance(result, Mapping) else result
    return bound(said, limit_bytes=_SAID_BYTES).value
