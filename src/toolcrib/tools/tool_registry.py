"""All tools by name. Thread-safe."""

import importlib
import pkgutil
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Final, Protocol

from toolcrib.core.agents import AgentRules
from toolcrib.core.errors import Misconfigured, NotFound
from toolcrib.core.ids import UserId, WorkspaceId
from toolcrib.policy.agent_definition import KnownNames
from toolcrib.policy.permissions import ALLOWED_BY_DEFAULT, READ_RESULT, TOOL_SEARCH, is_offered
from toolcrib.tools.tool import OWN_TOOLSET, Tool, ToolDefinition

# The prefix of tool names that belong to one workspace. No built-in tool has it.
ADDED_PREFIX: Final = "mcp:"
# For how many different rules the offered tools are cached.
_MOST_KNOWN: Final = 1_000


class WorkspaceToolSource(Protocol):
    """Tools that only one workspace has: those of its MCP servers."""

    async def tools_of(self, workspace_id: WorkspaceId) -> Mapping[str, Tool]: ...


class OwnResources(Protocol):
    """Services that this server does not have itself, but that work for people with their own keys."""

    async def resources_of(self, user_id: UserId) -> Collection[type]: ...


class ToolRegistry:
    """Finds tools, and lists those that an agent may see. ``resources`` are the services that tools may require."""

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        resources: Mapping[type, Any] | None = None,
        added: WorkspaceToolSource | None = None,
        own: OwnResources | None = None,
    ) -> None:
        # A tool may look for others.
        self.resources: Mapping[type, Any] = {**(resources or {}), ToolRegistry: self}
        self._tools: dict[str, Tool] = {}
        # What agents see, by the part of their rules that decides it.
        self._offered: dict[object, tuple[Tool, ...]] = {}
        self._lock = threading.Lock()
        self._added = added
        self._own = own
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Add a tool. Raises ``Misconfigured`` if its name is taken."""
        with self._lock:
            if tool.name in self._tools:
                raise Misconfigured(_name_taken(tool, self._tools[tool.name]))
            # A new dict, so that iterations over the old one are not affected.
            self._tools = {**self._tools, tool.name: tool.bind(self.resources)}
            self._offered = {}

    async def for_workspace(self, workspace_id: WorkspaceId) -> "ToolRegistry":
        """Return the tools of one workspace."""
        if self._added is None:
            return self
        return self._with({**await self._added.tools_of(workspace_id), **self._tools})

    async def find(self, workspace_id: WorkspaceId, name: str) -> Tool | None:
        """Return the tool with this name in one workspace."""
        if self._added is not None and name.startswith(ADDED_PREFIX):
            return (await self._added.tools_of(workspace_id)).get(name)
        return self._tools.get(name)

    async def for_person(
        self, workspace_id: WorkspaceId, user_id: UserId, rules: AgentRules | None = None
    ) -> "ToolRegistry":
        """Return the tools of one workspace, with those made available by the person's own keys.

        With an agent's rules, only what they offer is loaded.
        """
        is_wanted = rules is None or any(toolset.startswith(ADDED_PREFIX) for toolset in rules.toolsets)
        found = await self.for_workspace(workspace_id) if is_wanted else self
        offered = self._tools.values() if rules is None else self._offered_to(rules)
        if self._own is None or all(tool.available is True or tool.is_available for tool in offered):
            return found
        works = await self._own.resources_of(user_id)
        return self._with(
            {
                name: replace(tool, available=True) if tool.requires in works else tool
                for name, tool in found._tools.items()
            }
        )

    def _with(self, tools: dict[str, Tool]) -> "ToolRegistry":
        there = ToolRegistry()
        there._tools = tools
        return there

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def require(self, name: str) -> Tool:
        """Return a tool by name. Raises ``NotFound`` if there is none."""
        tool = self._tools.get(name)
        if tool is None:
            raise NotFound(f"Tool '{name}' not found")
        return tool

    @property
    def names(self) -> KnownNames:
        """The names that an agent's rules may use, besides those of MCP servers."""
        toolsets = {tool.toolset for tool in self._tools.values()}
        return KnownNames(frozenset(self._tools), frozenset({OWN_TOOLSET, *toolsets}))

    def list_for_scope(self, rules: AgentRules | None) -> list[Tool]:
        """List the tools that an agent with these rules sees; without rules, all of them.

        Excludes ``read_result``, which is useful only after a result was cut, and ``tool_search``.
        """
        if rules is None:
            return list(self._tools.values())
        offered = (tool for tool in self._offered_to(rules) if tool.name not in ALLOWED_BY_DEFAULT)
        return [tool for tool in offered if tool.available is True or tool.is_available]

    def definitions_for_scope(self, rules: AgentRules | None) -> list[ToolDefinition]:
        """Return the definitions of the tools that an agent with these rules sees."""
        return [tool.definition() for tool in self.list_for_scope(rules)]

    def read_result(self, rules: AgentRules) -> Tool | None:
        """Return the tool with which an agent reads the rest of a cut result; ``None`` if it is denied."""
        return self._offered_by_name(rules, READ_RESULT)

    def tool_search(self, rules: AgentRules) -> Tool | None:
        """Return the tool with which an agent finds tools that it is not shown; ``None`` if it is denied."""
        return self._offered_by_name(rules, TOOL_SEARCH)

    def _offered_by_name(self, rules: AgentRules, name: str) -> Tool | None:
        return next((tool for tool in self._offered_to(rules) if tool.name == name), None)

    def list_for_mcp(self, rules: AgentRules) -> list[Tool]:
        """List the tools for an agent's MCP client, which gets the list once, before any result."""
        offered = self.list_for_scope(rules)
        reads_on = self.read_result(rules)
        return [*offered, reads_on] if offered and reads_on else offered

    def _offered_to(self, rules: AgentRules) -> tuple[Tool, ...]:
        """Return the tools that an agent with these rules may use, whether or not this server can run them."""
        # Read before the tools: ``add`` replaces it after them.
        known = self._offered
        permissions = (rules.tool_permissions or {}).items()
        key = (frozenset(rules.toolsets), frozenset((name, permission.allowed) for name, permission in permissions))
        offered = known.get(key)
        if offered is None:
            offered = tuple(tool for tool in self._tools.values() if is_offered(rules, tool))
            if len(known) >= _MOST_KNOWN:
                known.clear()
            known[key] = offered
        return offered


def _name_taken(tool: Tool, existing: Tool) -> str:
    if not tool.source:
        return f"A tool named {tool.name!r} already exists. Choose another name."
    other = f"one of {existing.source}" if existing.source else "a built-in one"
    return f"The tool {tool.name!r} of {tool.source} has the name of {other}. Rename it, or remove its package."


def discover_tools(package: ModuleType) -> Iterator[Tool]:
    """Yield every tool that is bound to a name in a module below ``package``, in the order of their definition."""
    seen: set[int] = set()
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        for bound in vars(importlib.import_module(found.name)).values():
            # A module may import a tool of another one.
            if isinstance(bound, Tool) and id(bound) not in seen:
                seen.add(id(bound))
                yield bound
