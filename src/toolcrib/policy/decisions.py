"""Decides one call before it runs: allow, ask a person, or refuse. Does not know who is a member."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import starmap
from typing import assert_never

from toolcrib.domain.agents import Trust
from toolcrib.domain.callers import Agent, Caller, Role
from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import NotPermitted, ToolcribError
from toolcrib.domain.places import Place
from toolcrib.policy.grants import granted
from toolcrib.policy.guard import Access, Guard, Objection
from toolcrib.policy.modes import refused_in
from toolcrib.policy.permissions import ToolFacts, is_read_only, may_use, speaks


class Verdict(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to become of a call, and by which rule.

    ``needs_role`` is what the person must be who calls, or who answers for the agent that calls.
    ``considered`` has every rule that was looked at, in order, with its result.
    """

    verdict: Verdict
    rule: str
    reason: str
    needs_role: Role
    error: ToolcribError | None
    considered: tuple[str, ...]

    @property
    def is_supervised(self) -> bool:
        """Whether the question comes of a trust so low that even looking is asked about."""
        return self.rule.startswith(f"trust.{Trust.SUPERVISED}.")


def decide(caller: Caller, tool: ToolFacts, effects: Effects) -> Decision:
    """The decision on a call. ``effects.reads_each`` is not judged here: the guard judges it file by file."""
    role = _role_needed(tool, effects)
    considered: list[str] = []
    for rule, objection in _objections(caller, tool, effects):
        if objection is not None:
            considered.append(f"{objection.rule}: {Verdict.REFUSE}")
            error = objection.error
            return Decision(Verdict.REFUSE, objection.rule, error.message, role, error, tuple(considered))
        considered.append(f"{rule}: no objection")
    verdict, rule, reason = _by_trust(caller.agent, tool) if caller.agent else _by_role(role, tool)
    if verdict is Verdict.ASK and (grant := granted(caller, tool, effects)):
        considered.append(f"{rule}: {verdict}")
        verdict, rule = Verdict.ALLOW, f"grant.{'session' if grant.session_id else 'always'}:{grant.id}"
        reason = f"A person has allowed this before: {rule}. Nobody is asked."
    return Decision(verdict, rule, reason, role, None, (*considered, f"{rule}: {verdict}"))


def _role_needed(tool: ToolFacts, effects: Effects) -> Role:
    """Reading is for every member. A dangerous tool counts as an effect, even if it cannot tell which."""
    acts = effects.changes_something or tool.danger is Danger.DANGEROUS or tool.category is Category.HUMAN
    return Role.MEMBER if acts else Role.VIEWER


def _objections(caller: Caller, tool: ToolFacts, effects: Effects) -> Iterator[tuple[str, Objection | None]]:
    """Every rule that can refuse, in order, with what it has against the call."""
    guard = Guard(caller, tool.name)
    accesses = [(Access.READ, place) for place in effects.reads]
    accesses += [(Access.WRITE, place) for place in effects.writes]

    def first(judge: Callable[[Access, Place], Objection | None]) -> Objection | None:
        return next(filter(None, starmap(judge, accesses)), None)

    yield "mount.read-only", first(guard.read_only_mount)
    yield "state.logs", first(guard.state_logs)
    if caller.agent is None:
        return
    yield "session.mode", _mode(caller, tool, effects)
    yield "agent.toolsets", _toolset(caller.agent, tool)
    yield f"agent.tool_permissions.{tool.name}", _permission(caller.agent, tool, effects)
    yield f"agent.tool_permissions.{tool.name}.paths", first(guard.paths)
    yield "protected-name", first(guard.protected_name)


def _mode(caller: Caller, tool: ToolFacts, effects: Effects) -> Objection | None:
    reason = refused_in(caller.mode, tool, effects)
    return None if reason is None else Objection("session.mode", NotPermitted(reason))


def _toolset(agent: Agent, tool: ToolFacts) -> Objection | None:
    if speaks(agent.rules, tool):
        return None
    message = (
        f"Agent {agent.name!r} does not have the toolset `{tool.toolset}`, to which `{tool.name}` belongs. "
        "A workspace owner may add it under `toolsets`."
    )
    return Objection("agent.toolsets", NotPermitted(message))


def _permission(agent: Agent, tool: ToolFacts, effects: Effects) -> Objection | None:
    read_only = is_read_only(agent.rules)
    # A tool that calls itself safe may still write: what it would do to the tree counts for more.
    acts = bool(effects.writes or effects.runs)
    if may_use(agent.rules, tool.name, tool.danger) and not (read_only and acts):
        return None
    why = "without `tool_permissions` it only reads" if read_only else "its `tool_permissions` do not allow it"
    message = (
        f"Agent {agent.name!r} may not use `{tool.name}`: {why}. "
        f"A workspace owner may add `tool_permissions: {{{tool.name}: {{allowed: true}}}}`."
    )
    rule = "agent.tool_permissions.absent" if read_only else f"agent.tool_permissions.{tool.name}"
    return Objection(rule, NotPermitted(message))


def _by_trust(agent: Agent, tool: ToolFacts) -> tuple[Verdict, str, str]:
    if tool.category is Category.HUMAN:
        return Verdict.ALLOW, "people.asked", f"`{tool.name}` asks a person itself; nobody is asked whether it may."
    trust, danger = agent.rules.trust, tool.danger
    verdict = Verdict.ASK if _asks(trust, danger) else Verdict.ALLOW
    then = "a person must approve the call" if verdict is Verdict.ASK else "nobody is asked"
    reason = f"Agent {agent.name!r} is {trust} and `{tool.name}` is {danger}: {then}."
    return verdict, f"trust.{trust}.{danger}", reason


def _asks(trust: Trust, danger: Danger) -> bool:
    match trust:
        case Trust.SUPERVISED:
            return True
        case Trust.GUIDED:
            return danger is Danger.DANGEROUS
        case Trust.AUTONOMOUS:
            return False
        case _:
            assert_never(trust)


def _by_role(role: Role, tool: ToolFacts) -> tuple[Verdict, str, str]:
    reason = f"A person acts by role and is not asked: `{tool.name}` needs the role {role} or higher."
    return Verdict.ALLOW, f"role.{role}", reason
