"""What a grant covers, and which one to suggest. A grant replaces an approval; it never adds a permission.

A path in a rule with a mount and without wildcards is exactly that path: not what is below it, and not the same name
elsewhere. Everything else reads as in ``tool_permissions``; a glob with a mount starts at the mount's root.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import translate
from functools import lru_cache
from glob import escape
from itertools import islice
from typing import Any, Final

from toolcrib.core.agents import ToolPermission
from toolcrib.core.callers import Caller
from toolcrib.core.errors import BadArguments
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.paused_calls import Grant, GrantRule
from toolcrib.core.tool_calls import Danger, Effects
from toolcrib.policy.command_patterns import covered_parts, entry_flaw, part_count, suggested_entries
from toolcrib.policy.permissions import (
    ToolMetadata,
    globs_flaw,
    granted_hosts,
    host_covers,
    host_flaw,
    is_glob,
    path_allowed,
)

# Their command is shell code. The command of another tool is only compared as a whole.
SHELL_TOOLS: Final = frozenset({"bash", "bash_start"})
WEB_FETCH: Final = "web_fetch"
# Their callers choose the hosts. A person approves those that are not granted.
_HOST_TOOLS: Final = SHELL_TOOLS | {WEB_FETCH}
# The tools that change contents, and all that change files, by dialect.
_CONTENT_TOOLS: Final = ("write", "edit", "touch", "mkdir")
_EDITING_TOOLS: Final = ((*_CONTENT_TOOLS, "mv", "rm"), ("fs.write", "fs.apply_patch"), ("file_write",))

# Longer arguments match no glob.
_LONGEST_VALUE: Final = 10_000
# What a suggestion includes of a call's arguments.
_SHORT_VALUE: Final = 200
_MOST_ARGUMENTS: Final = 20

# Characters with a meaning in a glob, which a backslash escapes.
_SPECIAL = re.compile(r"([\\*?\[\]!# ])")
_MOUNTED = re.compile(rf"(!?)@({'|'.join(Mount)})/(.*)", re.DOTALL)
_WILD = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]|/\Z")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def find_grant(caller: Caller, tool: ToolMetadata, effects: Effects) -> Grant | None:
    """Return the grant that makes an approval of this call unnecessary, if there is one.

    Several grants may cover the parts of one command together; then it is the first of them.
    """
    if tool.drafts:
        # What a drafting tool would touch is not known yet, so no grant can cover it.
        return None
    grants = tuple(_in_scope(caller, tool))
    whole = next((grant for grant in grants if grant_covers(grant.rule, tool.name, effects)), None)
    if whole is not None or effects.command is None or tool.name not in SHELL_TOOLS:
        return whole
    parts = [(grant, covered_parts(effects.command, _plain_commands(grant.rule))) for grant in grants]
    if len(frozenset[int]().union(*(covered for _, covered in parts))) < part_count(effects.command):
        return None
    return next(grant for grant, covered in parts if covered)


def ungranted_hosts(caller: Caller, tool: ToolMetadata, effects: Effects) -> tuple[str, ...]:
    """Return the hosts of a command or a fetch that neither the agent's definition nor a grant allows."""
    if caller.agent is None or tool.name not in _HOST_TOOLS:
        return ()
    allowed = [*granted_hosts(caller.agent.rules, tool.name)]
    for grant in _in_scope(caller, tool):
        # With commands, the rule itself must cover all parts: what another rule allows may not use these hosts.
        if grant.rule.commands is None or _command_covered(grant.rule, tool.name, effects):
            allowed += grant.rule.hosts or ()
    return uncovered_hosts(effects.hosts, allowed)


def uncovered_hosts(hosts: Iterable[str], allowed: Collection[str]) -> tuple[str, ...]:
    """Return the hosts that none of the allowed ones includes."""
    return tuple(host for host in hosts if not any(host_covers(one, host) for one in allowed))


def _in_scope(caller: Caller, tool: ToolMetadata) -> Iterator[Grant]:
    for grant in caller.agent.grants if caller.agent else ():
        if grant.session_id in (None, caller.session_id) and tool.name in grant.rule.tools:
            yield grant


def grant_covers(rule: GrantRule, tool_name: str, effects: Effects) -> bool:
    """Whether the rule covers everything that a call would do, except for hosts that its caller chooses."""
    if tool_name not in rule.tools or not _command_covered(rule, tool_name, effects):
        return False
    if not _reach_covered(rule, tool_name, effects):
        return False
    if rule.arguments is not None and not _arguments_match(rule.arguments, effects):
        return False
    if rule.paths is None:
        if rule.hosts is None or rule.commands is not None:
            return True
        # A rule with hosts only covers fetches from them, but no command.
        return effects.command is None and bool(effects.hosts) and not uncovered_hosts(effects.hosts, rule.hosts)
    touched = (*effects.writes, *effects.reads)
    return bool(touched) and all(_names(rule.paths, path) for path in touched)


def _reach_covered(rule: GrantRule, tool_name: str, effects: Effects) -> bool:
    """Whether the rule names all that the tool was given by others than its caller, who may give it more later."""
    if not frozenset(effects.access).issubset(rule.access or ()):
        return False
    return tool_name in _HOST_TOOLS or not uncovered_hosts(effects.hosts, rule.hosts or ())


def _command_covered(rule: GrantRule, tool_name: str, effects: Effects) -> bool:
    if effects.command is None:
        return rule.commands is None
    if tool_name not in SHELL_TOOLS:
        return effects.command in (rule.commands or ())
    return len(covered_parts(effects.command, rule.commands or ())) == part_count(effects.command)


def _plain_commands(rule: GrantRule) -> tuple[str, ...]:
    """Return the commands of a rule that limits nothing else."""
    return rule.commands or () if rule.paths is None and rule.arguments is None else ()


def _arguments_match(globs: Mapping[str, str], effects: Effects) -> bool:
    given = effects.arguments or {}
    return all(_argument_matches(glob, given.get(name)) for name, glob in globs.items())


def _argument_matches(glob: str, value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_VALUE and bool(_argument_glob(glob).match(value))


@lru_cache(maxsize=1_024)
def _argument_glob(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


def suggest_rules(tool: ToolMetadata, effects: Effects, *, hosts: tuple[str, ...] = ()) -> tuple[GrantRule, ...]:
    """Suggest rules for calls like this one: first one of useful width, then narrower and wider ones.

    Args:
        hosts: What the call wants to contact and may not.
    """
    one = (tool.name,)
    if effects.command is not None:
        entries = suggested_entries(effects.command) if tool.name in SHELL_TOOLS else None
        found = [GrantRule(one, commands=entries)] if entries else []
        found.append(GrantRule(one, commands=(effects.command,)))
        found += [GrantRule(one)] if hosts else []
    elif hosts or tool.danger is Danger.SAFE or not effects.writes:
        found = [GrantRule(one)]
    else:
        found = _path_rules(tool.name, tuple(dict.fromkeys((*effects.writes, *effects.reads))))
    named = hosts if tool.name in _HOST_TOOLS else effects.hosts
    found = [replace(rule, hosts=named or None, access=effects.access or None) for rule in found]
    if effects.arguments is not None and (same := _same_arguments(effects.arguments)):
        found.append(replace(found[0], arguments=same))
    return tuple(rule for number, rule in enumerate(found) if rule not in found[:number])


def _same_arguments(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return globs that match the same short texts."""
    texts = {name: value for name, value in arguments.items() if isinstance(value, str) and len(value) <= _SHORT_VALUE}
    return {name: escape(value) for name, value in islice(texts.items(), _MOST_ARGUMENTS)}


def _path_rules(tool: str, touched: tuple[WorkspacePath, ...]) -> list[GrantRule]:
    exact = GrantRule((tool,), paths=tuple(map(_glob, touched)))
    editing = next((tools for tools in _EDITING_TOOLS if tool in tools), ())
    anywhere = [GrantRule(editing)] if editing else []
    if any(path.is_root or path.parent.is_root for path in touched):
        return [exact, *anywhere]
    folders = tuple(dict.fromkeys(f"{_glob(path.parent)}/**" for path in touched))
    return [GrantRule(_CONTENT_TOOLS if tool in _CONTENT_TOOLS else (tool,), paths=folders), exact, *anywhere]


def check_rule(rule: GrantRule, tool: ToolMetadata, effects: Effects) -> None:
    """Raise ``BadArguments``, which names the field, unless the rule is valid and covers this call.

    ``effects.hosts`` are those that the rule must allow.
    """
    if tool.name not in rule.tools:
        raise BadArguments({"rule.tools": f"The rule must be about `{tool.name}`, the tool of this call."})
    if tool.drafts:
        raise BadArguments({"scope": f"`{tool.name}` changes different files in each call. Approve it `once`."})
    if flaws := dict(_flaws(rule, tool, effects)):
        raise BadArguments(flaws)
    if uncovered := uncovered_hosts(effects.hosts, rule.hosts or ()):
        raise BadArguments({"rule.hosts": f"The rule does not allow {', '.join(uncovered)}, which this call contacts."})
    is_for_hosts = bool(effects.hosts) and rule.commands is None and tool.name in _HOST_TOOLS
    if effects.command is not None and rule.commands is None and not is_for_hosts:
        raise BadArguments({"rule.commands": "List the allowed commands; a rule for any command is not possible."})
    if not is_for_hosts and not grant_covers(rule, tool.name, effects):
        raise BadArguments({"rule": "The rule does not cover this call. Use the suggested rule."})


def _flaws(rule: GrantRule, tool: ToolMetadata, effects: Effects) -> Iterator[tuple[str, str]]:
    if flaw := globs_flaw(rule.paths or ()):
        yield "rule.paths", flaw
        return
    for number, glob in enumerate(rule.paths or ()):
        if not is_glob(glob):
            yield f"rule.paths.{number}", f"`{glob}` matches nothing. Expected a glob such as `src/**`."
    for number, entry in enumerate(rule.commands or ()):
        if tool.name in SHELL_TOOLS and (flaw := entry_flaw(entry)):
            yield f"rule.commands.{number}", flaw
    for number, host in enumerate(rule.hosts or ()):
        # The URL of an MCP server may have an address, which cannot be granted otherwise.
        if host not in effects.hosts and (flaw := host_flaw(host)):
            yield f"rule.hosts.{number}", flaw
    if rule.hosts is not None and tool.name not in _HOST_TOOLS and not effects.hosts:
        yield "rule.hosts", f"`{tool.name}` contacts no hosts that a rule could allow. Leave it out."
    for number, access in enumerate(rule.access or ()):
        if access not in effects.access:
            yield f"rule.access.{number}", f"`{tool.name}` was not given {access}. Use the suggested rule."
    for name in rule.arguments or ():
        if name not in (effects.arguments or {}):
            yield f"rule.arguments.{name}", "This call has no such argument."


def _glob(path: WorkspacePath) -> str:
    """Return a glob that matches exactly this path."""
    return f"@{path.mount}/" + (_SPECIAL.sub(r"\\\1", path.path[1:]) if not path.is_root else "**")


def _names(paths: tuple[str, ...], path: WorkspacePath) -> bool:
    """Whether a rule's paths cover a path: as a literal or by a glob, and no glob with ``!`` excludes it."""
    globs = _anchored(paths, path.mount)
    # ``path_allowed`` leaves @pkg and @state open, because permissions do not apply there. A grant reaches there only
    # if it says that: so these paths are checked as if they were in @project.
    path_in_mount = WorkspacePath(Mount.PROJECT, path.path)
    # An exclusion applies wherever it is in the list.
    if _matches(tuple(glob[1:] for glob in globs if glob.startswith("!")), path_in_mount):
        return False
    if any(_literal(glob, path.mount) == path.path for glob in paths):
        return True
    wide = tuple(glob for glob in globs if not glob.startswith("!") and (_WILD.search(glob) or glob[0] != "/"))
    return _matches(wide, path_in_mount)


def _matches(globs: tuple[str, ...], path: WorkspacePath) -> bool:
    return bool(globs) and path_allowed(ToolPermission(allowed=True, paths=globs), path)


@lru_cache(maxsize=1_024)
def _anchored(paths: tuple[str, ...], mount: Mount) -> tuple[str, ...]:
    """Return the globs that apply to a mount, without its name. Those with the name start at its root."""
    found = []
    for glob in paths:
        named = _MOUNTED.fullmatch(glob)
        if named is None:
            # Without a mount, a glob applies to the mounts with people's own files.
            if mount in (Mount.PROJECT, Mount.CENTRAL):
                found.append(glob)
        elif named[2] == mount:
            found.append(f"{named[1]}/{named[3].lstrip('/') or '**'}")
    return tuple(found)


def _literal(glob: str, mount: Mount) -> str | None:
    """Return the path that a glob without wildcards names in that mount."""
    named = _MOUNTED.fullmatch(glob)
    if named is None or named[1] or named[2] != mount or not named[3] or _WILD.search(named[3]):
        return None
    return "/" + _ESCAPED.sub(r"\1", named[3])
