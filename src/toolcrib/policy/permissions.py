"""What an agent's owner lets it use, and where. Decides nothing about trust or protected names."""

import re
from functools import lru_cache
from typing import Final, Protocol

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore import GitIgnorePatternError

from toolcrib.domain.agents import AgentRules, ToolPermission
from toolcrib.domain.effects import Category, Danger
from toolcrib.domain.places import Mount, Place

# Safe tools that do more than read, or serve those that do. An agent without ``tool_permissions`` has every other one.
MORE_THAN_READING: Final = frozenset(
    {"ask_user", "bash_list", "bash_output", "bash_stop", "exit_plan_mode", "plan_write", "plan_edit"}
)


class ToolFacts(Protocol):
    """What policy needs to know of a tool."""

    @property
    def name(self) -> str: ...
    @property
    def danger(self) -> Danger: ...
    @property
    def toolset(self) -> str: ...
    @property
    def category(self) -> Category: ...


def offers(rules: AgentRules, tool: ToolFacts) -> bool:
    """Whether an agent is shown ``tool``: it speaks the toolset and may use the tool."""
    return speaks(rules, tool) and may_use(rules, tool.name, tool.danger)


def speaks(rules: AgentRules, tool: ToolFacts) -> bool:
    """Whether the agent has the tool's toolset.

    A tool of ours that the owner allows by name needs no mention of its toolset. An MCP server's does:
    what its tools are called is not for us to say.
    """
    if tool.toolset in rules.toolsets:
        return True
    permission = permission_for(rules, tool.name)
    return permission is not None and permission.allowed and not tool.toolset.startswith("mcp:")


def may_use(rules: AgentRules, tool_name: str, danger: Danger) -> bool:
    """Whether the agent has permission for a tool, wherever it is used."""
    if is_read_only(rules):
        return danger is Danger.SAFE and tool_name not in MORE_THAN_READING
    permission = permission_for(rules, tool_name)
    return permission is not None and permission.allowed


def is_read_only(rules: AgentRules) -> bool:
    """Whether the agent has no ``tool_permissions``, and so reads only."""
    return not rules.tool_permissions


def permission_for(rules: AgentRules, tool_name: str) -> ToolPermission | None:
    """What ``tool_permissions`` says of a tool, if anything."""
    return (rules.tool_permissions or {}).get(tool_name)


def hosts_granted(rules: AgentRules | None, tool_name: str) -> tuple[str, ...]:
    """What a tool's commands may contact. Nothing unless an owner has named it."""
    permission = permission_for(rules, tool_name) if rules is not None else None
    return permission.hosts if permission is not None and permission.allowed else ()


def path_allowed(permission: ToolPermission | None, place: Place) -> bool:
    """Whether a permission's globs cover ``place``. They read as in ``.gitignore`` and count in both zones.

    A glob that begins with ``!`` takes away what it covers, wherever it stands in the list. One that begins with
    ``@project/`` or ``@central/`` counts in that zone only. ``@pkg`` and ``@state`` are open to every tool that is
    allowed; what may be written there is no matter of globs.
    """
    if permission is None or permission.paths is None or place.mount in (Mount.PKG, Mount.STATE):
        return True
    globs = _globs_of(permission.paths, place.mount)
    if place.is_root:
        return not _EVERYTHING.isdisjoint(globs)
    given = _spec(tuple(glob for glob in globs if not glob.startswith("!")))
    taken = _spec(tuple(glob[1:] for glob in globs if glob.startswith("!")))
    if given is None or taken is None:
        return False
    # The final slash makes ``src/**`` cover ``src`` itself, which must be listed and can be made.
    path = place.path[1:]
    return given.match_file(f"{path}/") and not taken.match_file(path)


def is_glob(glob: str) -> bool:
    """Whether a glob says anything: ``/``, ``#x`` and a lone backslash do not."""
    spec = _spec(tuple({said for mount in Mount for said in _globs_of((glob,), mount)}))
    return spec is not None and any(pattern.include is not None for pattern in spec.patterns)


_EVERYTHING = frozenset({"**", "/**", "*", "/*", "**/*", "/**/*"})
_MOUNTED = re.compile(rf"(!?)@({'|'.join(Mount)})(?:/|\Z)")


@lru_cache(maxsize=1_024)
def _globs_of(paths: tuple[str, ...], mount: Mount) -> tuple[str, ...]:
    """The globs that count in ``mount``, without its name."""
    found = []
    for glob in paths:
        named = _MOUNTED.match(glob)
        if named is None:
            found.append(glob)
        elif named[2] == mount:
            found.append(named[1] + (glob[named.end() :] or "**"))
    return tuple(found)


@lru_cache(maxsize=1_024)
def _spec(globs: tuple[str, ...]) -> GitIgnoreSpec | None:
    try:
        return GitIgnoreSpec.from_lines(globs)
    except GitIgnorePatternError:
        # Leaving out the one bad glob could widen what the others allow, so none counts.
        return None
