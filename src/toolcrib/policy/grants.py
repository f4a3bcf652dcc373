"""What a grant covers, and which one to suggest. A grant replaces an approval; it never adds a permission.

A path in a rule with a mount and without wildcards is exactly that path: not what is below it, and not the same name
elsewhere. Everything else reads as in ``tool_permissions``; a glob with a mount starts at the mount's root.
"""

import re
from functools import lru_cache

from toolcrib.core.agents import ToolPermission
from toolcrib.core.approvals import Grant, GrantRule
from toolcrib.core.callers import Caller
from toolcrib.core.errors import BadArguments
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import Danger, Effects
from toolcrib.policy.permissions import ToolMetadata, globs_flaw, is_glob, path_allowed

# Characters with a meaning in a glob, which a backslash escapes.
_SPECIAL = re.compile(r"([\\*?\[\]!# ])")
_MOUNTED = re.compile(rf"(!?)@({'|'.join(Mount)})/(.*)", re.DOTALL)
_WILD = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]|/\Z")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def find_grant(caller: Caller, tool: ToolMetadata, effects: Effects) -> Grant | None:
    """Return the grant that makes an approval of this call unnecessary, if there is one."""
    if caller.agent is None or tool.drafts:
        # What a drafting tool would touch is not known yet, so no grant can cover it.
        return None
    for grant in caller.agent.grants:
        if grant.session_id in (None, caller.session_id) and grant_covers(grant.rule, tool.name, effects):
            return grant
    return None


def grant_covers(rule: GrantRule, tool_name: str, effects: Effects) -> bool:
    """Whether the rule covers everything that a call would do."""
    if rule.tool != tool_name:
        return False
    if (rule.commands is not None or effects.command is not None) and effects.command not in (rule.commands or ()):
        return False
    if rule.paths is None:
        return True
    touched = (*effects.writes, *effects.reads)
    return bool(touched) and all(_names(rule.paths, path) for path in touched)


def suggest_rule(tool: ToolMetadata, effects: Effects) -> GrantRule:
    """Suggest the narrowest rule for calls like this one. A person may widen it."""
    if effects.command is not None:
        return GrantRule(tool.name, commands=(effects.command,))
    if tool.danger is Danger.SAFE or not effects.writes:
        return GrantRule(tool.name)
    return GrantRule(tool.name, paths=tuple(dict.fromkeys(map(_glob, (*effects.writes, *effects.reads)))))


def check_rule(rule: GrantRule, tool: ToolMetadata, effects: Effects) -> None:
    """Raise ``BadArguments`` unless the rule is for this tool, is valid and covers this call."""
    if rule.tool != tool.name:
        raise BadArguments({"rule.tool": f"The rule must be about `{tool.name}`, the tool of this call."})
    if tool.drafts:
        raise BadArguments({"scope": f"`{tool.name}` changes different files in each call. Approve it `once`."})
    if flaw := globs_flaw(rule.paths or ()):
        raise BadArguments({"rule.paths": flaw})
    for number, glob in enumerate(rule.paths or ()):
        if not is_glob(glob):
            raise BadArguments({f"rule.paths.{number}": f"`{glob}` matches nothing. Expected a glob such as `src/**`."})
    if effects.command is not None and rule.commands is None:
        raise BadArguments({"rule.commands": "List the allowed commands; a rule for any command is not possible."})
    if not grant_covers(rule, tool.name, effects):
        raise BadArguments({"rule": "The rule does not cover this call. Use the suggested rule."})


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
