"""What an agent's owner lets it use, and where. Decides nothing about trust or protected names."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Final, Protocol

from toolcrib.core.agents import AgentRules, ToolPermission
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import Danger, ToolCategory
from toolcrib.policy.patterns import BadPatternError, GitIgnoreRules, PatternTooLargeError

# Safe tools that do more than read, or serve those that do. An agent without ``tool_permissions`` has every other one.
MORE_THAN_READING: Final = frozenset(
    {"ask_user", "bash_list", "bash_output", "bash_stop", "exit_plan_mode", "plan_write", "plan_edit"}
)

# Gives an agent only what its own calls resulted in. So it needs no mention; an owner may still deny it by name.
READ_RESULT: Final = "read_result"

# Of one permission or grant: they are judged on every call, while others wait.
MAX_GLOBS: Final = 200


class ToolMetadata(Protocol):
    """What policy needs to know of a tool."""

    @property
    def name(self) -> str: ...
    @property
    def danger(self) -> Danger: ...
    @property
    def toolset(self) -> str: ...
    @property
    def category(self) -> ToolCategory: ...
    @property
    def drafts(self) -> bool: ...


def is_offered(rules: AgentRules, tool: ToolMetadata) -> bool:
    """Whether an agent is shown ``tool``: it speaks the toolset and may use the tool."""
    return has_toolset(rules, tool) and is_permitted(rules, tool.name, tool.danger)


def has_toolset(rules: AgentRules, tool: ToolMetadata) -> bool:
    """Whether the agent has the tool's toolset.

    A tool of ours that the owner allows by name needs no mention of its toolset. An MCP server's does:
    what its tools are called is not for us to say.
    """
    if tool.toolset in rules.toolsets or tool.name == READ_RESULT:
        return True
    permission = permission_for(rules, tool.name)
    return permission is not None and permission.allowed and not tool.toolset.startswith("mcp:")


def is_permitted(rules: AgentRules, tool_name: str, danger: Danger) -> bool:
    """Whether the agent has permission for a tool, wherever it is used."""
    if tool_name == READ_RESULT:
        named = permission_for(rules, tool_name)
        return named is None or named.allowed
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


def granted_hosts(rules: AgentRules | None, tool_name: str) -> tuple[str, ...]:
    """What a tool's commands may contact. Nothing unless an owner has named it."""
    permission = permission_for(rules, tool_name) if rules is not None else None
    return permission.hosts if permission is not None and permission.allowed else ()


def path_allowed(permission: ToolPermission | None, place: WorkspacePath) -> bool:
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
    return given.match(f"{path}/") and not taken.match(path)


def covers_whole(permission: ToolPermission | None, folder: WorkspacePath) -> bool:
    """Whether a permission's globs cover all that may ever stand in ``folder``. Says no where it is not sure."""
    if permission is None or permission.paths is None or folder.mount in (Mount.PKG, Mount.STATE):
        return True
    globs = _globs_of(permission.paths, folder.mount)
    return path_allowed(permission, folder) and not any(glob.startswith("!") for glob in globs)


def may_cover_below(permission: ToolPermission, folder: WorkspacePath) -> bool:
    """Whether something in ``folder`` may be covered: unless every glob names other folders at its start."""
    return any(
        _may_lead_to(glob.split("/"), folder.parts)
        for glob in _globs_of(permission.paths or (), folder.mount)
        if not glob.startswith("!")
    )


def _may_lead_to(glob: Sequence[str], folder: Sequence[str]) -> bool:
    if len(glob) == 1 or (len(glob) == 2 and not glob[1]):
        return True  # it has no slash but a last one, and counts at any depth
    begin = glob[1:] if not glob[0] else glob
    plain = list(takewhile(lambda part: part and not _WILD.search(part), begin))
    return all(mine == theirs for mine, theirs in zip(plain, folder, strict=False))


def is_glob(glob: str) -> bool:
    """Whether a glob says anything: ``/``, ``#x`` and a lone backslash do not."""
    return bool(_spec(tuple({said for mount in Mount for said in _globs_of((glob,), mount)})))


def globs_flaw(globs: Sequence[str]) -> str | None:
    """Why a list of globs is too much to be judged on every call, if it is."""
    if len(globs) > MAX_GLOBS:
        return f"There are {len(globs):,} globs; at most {MAX_GLOBS} are taken."
    try:
        for mount in Mount:
            GitIgnoreRules(_globs_of(tuple(globs), mount))
    except PatternTooLargeError as error:
        return str(error)
    return None


_WILD = re.compile(r"[*?\[\\]|\A\s|\s\Z")
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


@lru_cache(maxsize=256)
def _spec(globs: tuple[str, ...]) -> GitIgnoreRules | None:
    # Leaving out the one bad glob could widen what the others allow, so none counts.
    if len(globs) > MAX_GLOBS:
        return None
    try:
        return GitIgnoreRules(globs, strict=True)
    except (BadPatternError, PatternTooLargeError):
        return None
