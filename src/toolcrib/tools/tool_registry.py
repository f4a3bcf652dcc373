"""All tools by name. Thread-safe."""

import importlib
import pkgutil
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Final, Protocol

from toolcrib.core.agents import AgentRules
from toolcrib.core.errors import Misconfigured, NotFound
from toolcrib.core.ids import UserId, WorkspaceId
from toolcrib.policy.permissions import READ_RESULT, is_offered
from toolcrib.tools.tool import Tool, ToolDefinition

# The prefix of tool names that belong to one workspace. No built-in tool has it.
ADDED_PREFIX: Final = "mcp:"


class WorkspaceToolSource(Protocol):
    """Tools that only one workspace has: those of its MCP servers."""

    async def tools_of(self, workspace_id: WorkspaceId) -> Mapping[str, Tool]: ...


class OwnTools(Protocol):
    """Tools that this server cannot run itself, but that work for people with their own keys."""

    async def tools_of(self, user_id: UserId) -> Collection[str]: ...


class ToolRegistry:
    """Finds tools, and lists those that an agent may see."""

    def __init__(
        self, tools: Iterable[Tool] = (), *, added: WorkspaceToolSource | None = None, own: OwnTools | None = None
    ) -> None:
        self._tools: dict[str, Tool] = {}
        self._lock = threading.Lock()
        self._added = added
        self._own = own
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Add a tool. Raises ``Misconfigured`` if its name is taken."""
        with self._lock:
            if tool.name in self._tools:
                raise Misconfigured(f"A tool named {tool.name!r} already exists. Choose another name.")
            # A new dict, so that iterations over the old one are not affected.
            self._tools = {**self._tools, tool.name: tool}

    async def for_workspace(self, workspace_id: WorkspaceId, name: str | None = None) -> "ToolRegistry":
        """Return the tools of one workspace. ``name`` is the wanted tool; for most names nothing is loaded."""
        if self._added is None or (name is not None and not name.startswith(ADDED_PREFIX)):
            return self
        there = ToolRegistry()
        there._tools = {**await self._added.tools_of(workspace_id), **self._tools}
        return there

    async def for_person(self, workspace_id: WorkspaceId, user_id: UserId) -> "ToolRegistry":
        """Return the tools of one workspace, with those made available by the person's own keys."""
        found = await self.for_workspace(workspace_id)
        if self._own is None or all(tool.is_available for tool in self._tools.values()):
            return found
        works = await self._own.tools_of(user_id)
        there = ToolRegistry()
        there._tools = {
            name: replace(tool, available=True) if name in works else tool for name, tool in found._tools.items()
        }
        return there

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def require(self, name: str) -> Tool:
        """Return a tool by name. Raises ``NotFound`` if there is none."""
        tool = self._tools.get(name)
        if tool is None:
            raise NotFound(f"Tool '{name}' not found")
        return tool

    def list_for_scope(self, rules: AgentRules | None) -> list[Tool]:
        """List the tools that an agent with these rules sees; without rules, all of them.

        Excludes ``read_result``, which is useful only after a result was cut.
        """
        if rules is None:
            return list(self._tools.values())
        offered = (tool for tool in self._tools.values() if tool.name != READ_RESULT)
        return [tool for tool in offered if tool.is_available and is_offered(rules, tool)]

    def definitions_for_scope(self, rules: AgentRules | None) -> list[ToolDefinition]:
        """Return the definitions of the tools that an agent with these rules sees."""
        return [tool.definition() for tool in self.list_for_scope(rules)]

    def read_result(self, rules: AgentRules) -> Tool | None:
        """Return the tool with which an agent reads the rest of a cut result; ``None`` if it is denied."""
        tool = self._tools.get(READ_RESULT)
        return tool if tool is not None and is_offered(rules, tool) else None

    def list_for_mcp(self, rules: AgentRules) -> list[Tool]:
        """List the tools for an agent's MCP client, which gets the list once, before any result."""
        offered = self.list_for_scope(rules)
        reads_on = self.read_result(rules)
        return [*offered, reads_on] if offered and reads_on else offered


def discover_tools(package: ModuleType) -> Iterator[Tool]:
    """Yield every module-level ``tool`` below ``package``."""
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        bound = getattr(importlib.import_module(found.name), "tool", None)
        if isinstance(bound, Tool):
            yield bound
