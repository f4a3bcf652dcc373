"""Tools for tests that run none: with names and dangers of the `studio` toolset."""

from typing import Any

from toolcrib.core.agents import AgentRules
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments


class Arguments(ToolArguments):
    path: str


async def nothing(_arguments: Arguments, _context: ToolContext) -> None:
    """Does nothing."""


def dummy(name: str, danger: Danger = Danger.SAFE, category: ToolCategory = ToolCategory.FILE) -> Tool:
    return Tool(
        name=name,
        toolset="studio",
        description=f"Pretends to be {name}.",
        category=category,
        danger=danger,
        arguments=Arguments,
        effects=lambda _: Effects(),
        function=nothing,
    )


FILE_READ = dummy("file_read")
FILE_WRITE = dummy("file_write", Danger.DANGEROUS)
BASH = dummy("bash", Danger.DANGEROUS, ToolCategory.EXEC)
WEB_SEARCH = dummy("web_search", Danger.SAFE, ToolCategory.SEARCH)
CORE = (FILE_READ, FILE_WRITE, BASH, WEB_SEARCH)


def scope(permissions: dict[str, Any] | None) -> AgentRules:
    """An agent with the `studio` toolset and these permissions."""
    return AgentRules.model_validate({"toolsets": ["studio"], "tool_permissions": permissions})
