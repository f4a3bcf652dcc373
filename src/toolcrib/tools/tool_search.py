"""Search the tools that an agent may use but is not shown, because there are too many of them.

The tools that a search found are offered from the next turn on: ``found_tools`` reads them from the call's result.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from toolcrib.policy.permissions import TOOL_SEARCH
from toolcrib.runtime.worker_pool import in_worker
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments, built_in, no_effects
from toolcrib.tools.tool_matches import rank_tools
from toolcrib.tools.tool_registry import ToolRegistry
from toolcrib.tools.tool_results import ToolResult

# With more tools than this, a model is shown the built-in ones and finds the others.
MOST_SHOWN: Final = 40
_USUAL_RESULTS: Final = 5
_MOST_RESULTS: Final = 20
_MOST_QUERY: Final = 400
_MOST_DESCRIPTION: Final = 500
# Characters that are searched of a description, and of the names of the arguments: all for nearly every tool.
_SEARCHED: Final = 1_000


class ToolSearchArguments(ToolArguments):
    query: str = Field(
        min_length=1, max_length=_MOST_QUERY, description="What the tool should do, or words of its name."
    )
    max_results: int = Field(default=_USUAL_RESULTS, ge=1, le=_MOST_RESULTS, description="Maximum number of tools.")


class FoundTool(ToolResult):
    """A tool that matches."""

    name: str
    description: str


class FoundTools(ToolResult):
    """The tools that match best, the best first. ``searched``: among how many."""

    tools: list[FoundTool]
    searched: int
    note: str


@built_in("results", name=TOOL_SEARCH, effects=no_effects, checks_membership=False)
async def tool_search(arguments: ToolSearchArguments, context: ToolContext) -> FoundTools:
    """Search the tools that are not listed here, by what they do or by their names. You can call the tools that it
    returns from your next turn on.
    """
    caller = context.caller
    rules = caller.agent.rules if caller.agent else None
    registry = await context.resource(ToolRegistry).for_person(caller.workspace_id, caller.user_id, rules)
    tools = [tool for tool in registry.list_for_scope(rules) if not tool.is_built_in and caller.mode in tool.modes]
    # Workspace owners choose how many tools there are and what they say, so it is not done on the event loop.
    places = await in_worker(rank_tools, arguments.query, [(tool.name, searched_text(tool)) for tool in tools])
    found = [tools[place] for place in places[: arguments.max_results]]
    note = "You can call these tools from your next turn on." if found else "No tool matches. Try other words."
    return {
        "tools": [{"name": tool.name, "description": tool.description[:_MOST_DESCRIPTION]} for tool in found],
        "searched": len(tools),
        "note": note,
    }


def found_tools(result: Any) -> list[str]:
    """Return the names of the tools that a search found, from the result of its call."""
    listed = result.get("tools") if isinstance(result, Mapping) else None
    if not isinstance(listed, list):
        return []
    return [one["name"] for one in listed if isinstance(one, Mapping) and isinstance(one.get("name"), str)]


def searched_text(tool: Tool) -> str:
    """Return the description and the names of the arguments."""
    properties = tool.input_schema.get("properties")
    arguments = " ".join(map(str, list(properties)[:_SEARCHED])) if isinstance(properties, Mapping) else ""
    return f"{tool.description[:_SEARCHED]} {arguments[:_SEARCHED]}"
