"""All tools by name. Safe to use from several threads."""

import importlib
import pkgutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Final, Protocol

from toolcrib.domain.agents import AgentRules
from toolcrib.domain.errors import Misconfigured, NotFound
from toolcrib.domain.ids import WorkspaceId
from toolcrib.policy.permissions import offers
from toolcrib.tools.tool import Tool, ToolDefinition

# How the names of tools begin that are a workspace's own. None of ours does.
ADDED_PREFIX: Final = "mcp:"


class WorkspaceTools(Protocol):
    """Tools that only one workspace has: those of its MCP servers."""

    async def tools_of(self, workspace_id: WorkspaceId) -> Mapping[str, Tool]: ...


class Registry:
    """Finds tools, and says which an agent is offered."""

    def __init__(self, tools: Iterable[Tool] = (), *, added: WorkspaceTools | None = None) -> None:
        self._tools: dict[str, Tool] = {}
        self._lock = threading.Lock()
        self._added = added
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        with self._lock:
            if tool.name in self._tools:
                raise Misconfigured(f"There is a tool named {tool.name!r} already. Give the new one another name.")
            # A new dict: whoever iterates over the old one is not disturbed.
            self._tools = {**self._tools, tool.name: tool}

    async def within(self, workspace_id: WorkspaceId, name: str | None = None) -> "Registry":
        """The tools of one workspace. ``name`` is the one that is wanted: for most, there is nothing to look up."""
        if self._added is None or (name is not None and not name.startswith(ADDED_PREFIX)):
            return self
        there = Registry()
        there._tools = {**await self._added.tools_of(workspace_id), **self._tools}
        return there

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def require(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            raise NotFound(f"Tool '{name}' not found")
        return tool

    def list_for_scope(self, rules: AgentRules | None) -> list[Tool]:
        """The tools that an agent with these rules is shown; all of them without rules."""
        return [tool for tool in self._tools.values() if rules is None or (tool.is_offered and offers(rules, tool))]

    def definitions_for_scope(self, rules: AgentRules | None) -> list[ToolDefinition]:
        return [tool.definition() for tool in self.list_for_scope(rules)]


def tools_in(package: ModuleType) -> Iterator[Tool]:
    """Every tool that a module below ``package`` binds to the name ``tool``."""
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        bound = getattr(importlib.import_module(found.name), "tool", None)
        if isinstance(bound, Tool):
            yield bound
