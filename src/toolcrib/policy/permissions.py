"""Which tools an agent's owner allows, and on which paths. Trust and protected paths are decided elsewhere."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Final, Protocol

from toolcrib.core.agents import AgentRules, ToolPermission
from toolcrib.core.callers import SessionMode
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import Danger, ToolCategory
from toolcrib.policy.patterns import BadPatternError, GitIgnoreRules, PatternTooLargeError

# Returns only results of the agent's own calls. So it is allowed by default; an owner may still deny it by name.
READ_RESULT: Final = "read_result"
# Returns only names and descriptions of tools that the agent may use. So it is allowed by default, too.
TOOL_SEARCH: Final = "tool_search"
ALLOWED_BY_DEFAULT: Final = frozenset({READ_RESULT, TOOL_SEARCH})

# Per permission or grant: they are checked on every call, on the event loop.
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
    @property
    def replannable(self) -> bool: ...
    @property
    def declared_read_only(self) -> bool: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def modes(self) -> frozenset[SessionMode]: ...
    @property
    def plan_files_only(self) -> bool: ...


def is_offered(rules: AgentRules, tool: ToolMetadata) -> bool:
    """Whether an agent sees ``tool``: it has the toolset and may use the tool."""
    return has_toolset(rules, tool) and is_permitted(rules, tool)


def has_toolset(rules: AgentRules, tool: ToolMetadata) -> bool:
    """Whether the agent has the tool's toolset.

    A built-in tool that the owner allows by name does not need its toolset. A tool of an MCP server does, because the
    server chooses the names.
    """
    if tool.toolset in rules.toolsets or tool.name in ALLOWED_BY_DEFAULT:
        return True
    permission = permission_for(rules, tool.name)
    return permission is not None and permission.allowed and not tool.toolset.startswith("mcp:")


def is_permitted(rules: AgentRules, tool: ToolMetadata) -> bool:
    """Whether the agent may use a tool, on any path."""
    permission = permission_for(rules, tool.name)
    if tool.name in ALLOWED_BY_DEFAULT:
        return permission is None or permission.allowed
    if is_read_only(rules):
        return tool.read_only
    return permission is not None and permission.allowed


def is_read_only(rules: AgentRules) -> bool:
    """Whether the agent has no ``tool_permissions``, and so is read-only."""
    return not rules.tool_permissions


def permission_for(rules: AgentRules, tool_name: str) -> ToolPermission | None:
    """Return the entry of a tool in ``tool_permissions``, if there is one."""
    return (rules.tool_permissions or {}).get(tool_name)


_HOST: Final = re.compile(r"(\*\.)?(?=[a-z0-9.-]*[a-z])[a-z0-9-]+(\.[a-z0-9-]+)*(:[0-9]{1,5})?")
_WEB_PORTS: Final = ("80", "443")


def host_flaw(host: str) -> str | None:
    """Return why a text is not a host that can be granted, or ``None``."""
    if _HOST.fullmatch(host):
        return None
    return f"`{host}` is not a host. Use one such as `example.com`, `*.example.org` or `example.org:8080`."


def host_covers(granted: str, host: str) -> bool:
    """Whether a granted host includes another, which may have wildcards too. Without a port, it is for HTTP(S)."""
    name, _, port = granted.lower().partition(":")
    wanted, _, wanted_port = host.lower().partition(":")
    if (wanted_port != port) if port else (wanted_port and wanted_port not in _WEB_PORTS):
        return False
    return wanted == name or (name.startswith("*.") and wanted.endswith(name[1:]))


def granted_hosts(rules: AgentRules | None, tool_name: str) -> tuple[str, ...]:
    """Return the hosts that a tool's commands may contact. Empty unless an owner has named some."""
    permission = permission_for(rules, tool_name) if rules is not None else None
    return permission.hosts if permission is not None and permission.allowed else ()


def path_allowed(permission: ToolPermission | None, workspace_path: WorkspacePath) -> bool:
    """Whether a permission's globs cover ``path``. They read as in ``.gitignore``, and apply to @project and @central.

    A glob with ``!`` excludes what it matches, wherever it is in the list. One that starts with ``@project/`` or
    ``@central/`` applies to that mount only. ``@pkg`` and ``@state`` are open to every allowed tool; globs do not
    control what may be written there.
    """
    if permission is None or workspace_path.mount in (Mount.PKG, Mount.STATE):
        return True
    return all(_covers(paths, workspace_path) for paths in permission.path_lists)


def _covers(paths: tuple[str, ...], workspace_path: WorkspacePath) -> bool:
    globs = _globs_of(paths, workspace_path.mount)
    if workspace_path.is_root:
        return not _EVERYTHING.isdisjoint(globs)
    given = _spec(tuple(glob for glob in globs if not glob.startswith("!")))
    taken = _spec(tuple(glob[1:] for glob in globs if glob.startswith("!")))
    if given is None or taken is None:
        return False
    # The final slash makes ``src/**`` cover ``src`` itself, which must be listed and can be created.
    path = workspace_path.path[1:]
    return given.match(f"{path}/") and not taken.match(path)


def covers_whole(permission: ToolPermission | None, folder: WorkspacePath) -> bool:
    """Whether a permission's globs cover everything that may ever be in ``folder``. False if not certain."""
    if permission is None or folder.mount in (Mount.PKG, Mount.STATE):
        return True
    globs = [glob for paths in permission.path_lists for glob in _globs_of(paths, folder.mount)]
    return path_allowed(permission, folder) and not any(glob.startswith("!") for glob in globs)


def may_cover_below(permission: ToolPermission, folder: WorkspacePath) -> bool:
    """Whether something in ``folder`` may be covered: not if every glob starts with other folders."""
    return all(
        any(
            _may_lead_to(glob.split("/"), folder.parts)
            for glob in _globs_of(paths, folder.mount)
            if not glob.startswith("!")
        )
        for paths in permission.path_lists or ((),)
    )


def _may_lead_to(glob: Sequence[str], folder: Sequence[str]) -> bool:
    if len(glob) == 1 or (len(glob) == 2 and not glob[1]):
        return True  # without a slash, except a last one, it applies at any depth
    begin = glob[1:] if not glob[0] else glob
    plain = list(takewhile(lambda part: part and not _WILD.search(part), begin))
    return all(mine == theirs for mine, theirs in zip(plain, folder, strict=False))


def is_glob(glob: str) -> bool:
    """Whether a glob can match anything: ``/``, ``#x`` and a lone backslash cannot."""
    return bool(_spec(tuple({pattern for mount in Mount for pattern in _globs_of((glob,), mount)})))


def globs_flaw(globs: Sequence[str]) -> str | None:
    """Return why a list of globs is too large to check on every call, or ``None``."""
    if len(globs) > MAX_GLOBS:
        return f"There are {len(globs):,} globs; the limit is {MAX_GLOBS}."
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
    """Return the globs that apply to ``mount``, without its name."""
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
    # Ignoring one bad glob could widen what the others allow, so none counts.
    if len(globs) > MAX_GLOBS:
        return None
    try:
        return GitIgnoreRules(globs, strict=True)
    except (BadPatternError, PatternTooLargeError):
        return None
