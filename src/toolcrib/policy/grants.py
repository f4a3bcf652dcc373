"""What a grant covers, and which one to offer. A grant answers a question beforehand; it never adds a permission."""

import re

from toolcrib.domain.agents import ToolPermission
from toolcrib.domain.approvals import Grant, GrantRule
from toolcrib.domain.callers import Caller
from toolcrib.domain.effects import Danger, Effects
from toolcrib.domain.errors import BadArguments
from toolcrib.domain.places import Place
from toolcrib.policy.permissions import ToolFacts, is_glob, path_allowed

# What means something in a glob, and so must be written with a backslash to mean itself.
_SPECIAL = re.compile(r"([\\*?\[\]!# ])")


def granted(caller: Caller, tool: ToolFacts, effects: Effects) -> Grant | None:
    """The grant by which nobody need be asked about this call, if there is one."""
    if caller.agent is None:
        return None
    for grant in caller.agent.grants:
        if grant.session_id in (None, caller.session_id) and covers(grant.rule, tool.name, effects):
            return grant
    return None


def covers(rule: GrantRule, tool_name: str, effects: Effects) -> bool:
    """Whether everything that a call would do is named by the rule."""
    if rule.tool != tool_name:
        return False
    if rule.commands is not None and effects.runs not in rule.commands:
        return False
    if rule.paths is None:
        return True
    touched = (*effects.writes, *effects.reads)
    permission = ToolPermission(allowed=True, paths=rule.paths)
    return bool(touched) and all(path_allowed(permission, place) for place in touched)


def offer(tool: ToolFacts, effects: Effects) -> GrantRule:
    """The rule to propose for the like of this call: as narrow as it can be said. A person may widen it."""
    if effects.runs is not None:
        return GrantRule(tool.name, commands=(effects.runs,))
    if tool.danger is Danger.SAFE or not effects.writes:
        return GrantRule(tool.name)
    return GrantRule(tool.name, paths=tuple(dict.fromkeys(map(_glob, (*effects.writes, *effects.reads)))))


def check_rule(rule: GrantRule, tool_name: str, effects: Effects) -> None:
    """BadArguments unless the rule can be stored: it is about this tool, is readable, and covers this very call."""
    if rule.tool != tool_name:
        raise BadArguments({"rule.tool": f"The call is of `{tool_name}`; a rule about another tool is not its answer."})
    for number, glob in enumerate(rule.paths or ()):
        if not is_glob(glob):
            raise BadArguments({f"rule.paths.{number}": f"`{glob}` matches nothing. Expected a glob such as `src/**`."})
    if effects.runs is not None and rule.commands is None:
        raise BadArguments({"rule.commands": "Name the commands that are allowed; a rule for any command is not kept."})
    if not covers(rule, tool_name, effects):
        raise BadArguments({"rule": "It does not cover the call that was asked about. Use the one that was offered."})


def _glob(place: Place) -> str:
    """A glob that matches this very place."""
    return f"@{place.mount}/" + _SPECIAL.sub(r"\\\1", place.path[1:]) if not place.is_root else f"@{place.mount}/**"
