"""The registry: finding tools, rejecting duplicates, and the tools that an agent with given rules gets.

AC-11 (`RegisterMCP` returns "not implemented") has no test: it is superseded, since MCP servers become toolsets.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

import toolcrib.tools
from tests.unit.tools.builders import BASH, CORE, FILE_READ, WEB_SEARCH, dummy, scope
from toolcrib.core.callers import SessionMode
from toolcrib.core.errors import Misconfigured, NotFound
from toolcrib.core.ids import UserId, WorkspaceId, new_id
from toolcrib.core.tool_calls import Danger, ToolCategory
from toolcrib.tools.tool import Tool, ToolDefinition
from toolcrib.tools.tool_registry import ToolRegistry, discover_tools


@pytest.fixture
def registry() -> ToolRegistry:
    return ToolRegistry(CORE)


def names(tools: list[Tool]) -> list[str]:
    return [tool.name for tool in tools]


def test_register_a_tool_get_returns_it() -> None:
    registry = ToolRegistry()

    registry.add(FILE_READ)

    assert registry.get("file_read") is FILE_READ
    assert registry.require("file_read") is FILE_READ


def test_get_unknown_tool_returns_none(registry: ToolRegistry) -> None:
    assert registry.get("teleport") is None
    with pytest.raises(NotFound, match="'teleport' not found"):
        registry.require("teleport")


def test_register_duplicate_name_returns_error(registry: ToolRegistry) -> None:
    other = dummy("bash")

    with pytest.raises(Misconfigured, match="'bash'"):
        registry.add(other)
    with pytest.raises(Misconfigured, match="'bash'"):
        ToolRegistry([BASH, other])

    assert registry.get("bash") is BASH


def test_list_for_scope_with_all_allowed_returns_all(registry: ToolRegistry) -> None:
    everything = scope({tool.name: {"allowed": True} for tool in CORE})

    assert registry.list_for_scope(everything) == list(CORE)


def test_list_for_scope_with_partial_permissions_returns_only_permitted_tools(registry: ToolRegistry) -> None:
    some = scope({"bash": {"allowed": True}, "file_write": {"allowed": False}, "file_read": {"allowed": True}})

    assert names(registry.list_for_scope(some)) == ["file_read", "bash"]


def test_list_for_scope_with_nil_scope_returns_all_tools(registry: ToolRegistry) -> None:
    assert registry.list_for_scope(None) == list(CORE)


def test_list_for_scope_with_empty_permissions_returns_only_safe_defaults(registry: ToolRegistry) -> None:
    assert registry.list_for_scope(scope({})) == [FILE_READ, WEB_SEARCH]
    assert registry.list_for_scope(scope(None)) == [FILE_READ, WEB_SEARCH]


def test_list_definitions_for_scope_returns_valid_tool_definitions(registry: ToolRegistry) -> None:
    definitions = registry.definitions_for_scope(scope({"file_write": {"allowed": True}}))

    assert definitions == [
        ToolDefinition(
            name="file_write",
            description="Pretends to be file_write.",
            input_schema={
                "type": "object",
                "properties": {"path": {"type": "string", "title": "Path"}},
                "required": ["path"],
                "additionalProperties": False,
            },
        )
    ]


def test_thread_safety_concurrent_register_and_get_do_not_panic() -> None:
    registry = ToolRegistry(CORE)
    start = Barrier(8)

    def add_and_look(worker: int) -> list[int]:
        start.wait()
        counts = []
        for number in range(50):
            registry.add(dummy(f"tool_{worker}_{number}"))
            assert registry.get(f"tool_{worker}_{number}") is not None
            counts.append(len(registry.list_for_scope(None)))
        return counts

    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(add_and_look, range(8)))

    assert len(registry.list_for_scope(None)) == len(CORE) + 400
    assert all(counts == sorted(counts) for counts in seen)


def test_of_two_threads_that_register_one_name_one_succeeds() -> None:
    registry = ToolRegistry()
    start = Barrier(8)

    def add(_: int) -> bool:
        start.wait()
        try:
            registry.add(dummy("same"))
        except Misconfigured:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(add, range(8))) == 1


def test_ac8_without_a_scope_all_four_core_tools_are_returned(registry: ToolRegistry) -> None:
    assert names(registry.list_for_scope(None)) == ["file_read", "file_write", "bash", "web_search"]


def test_ac9_a_scope_of_file_read_and_web_search_returns_these_two(registry: ToolRegistry) -> None:
    two = scope({"file_read": {"allowed": True}, "web_search": {"allowed": True}})

    assert names(registry.list_for_scope(two)) == ["file_read", "web_search"]


def test_ac10_a_scope_with_empty_permissions_returns_the_safe_defaults(registry: ToolRegistry) -> None:
    assert names(registry.list_for_scope(scope({}))) == ["file_read", "web_search"]


def test_a_tool_of_a_toolset_that_the_agent_lacks_is_not_listed(registry: ToolRegistry) -> None:
    registry.add(dummy("stranger", Danger.SAFE))
    mute = scope(None).model_copy(update={"toolsets": ("workspace",)})

    assert registry.list_for_scope(mute) == []


def test_added_tool_is_listed_for_rules_that_were_seen_before(registry: ToolRegistry) -> None:
    rules = scope({"file_read": {"allowed": True}, "later": {"allowed": True}})
    before = names(registry.list_for_scope(rules))

    registry.add(dummy("later"))

    assert (before, names(registry.list_for_scope(rules))) == (["file_read"], ["file_read", "later"])


class McpServers:
    """The tools of a workspace's MCP servers, and how often they were loaded."""

    def __init__(self) -> None:
        self.loaded = 0

    async def tools_of(self, workspace_id: WorkspaceId) -> dict[str, Tool]:
        self.loaded += 1
        return {"mcp:a/x": replace(dummy("mcp:a/x", Danger.SAFE), toolset="mcp:a", read_only=True)}


async def test_tools_of_mcp_servers_are_loaded_for_agents_that_have_such_a_toolset() -> None:
    servers = McpServers()
    registry = ToolRegistry(CORE, added=servers)
    plain = scope(None)
    with_server = plain.model_copy(update={"toolsets": (*plain.toolsets, "mcp:a")})
    ids = (WorkspaceId(new_id()), UserId(new_id()))

    without = (await registry.for_person(*ids, plain)).list_for_scope(plain)
    loaded_for_plain = servers.loaded
    found = (await registry.for_person(*ids, with_server)).list_for_scope(with_server)

    assert (names(without), loaded_for_plain) == (["file_read", "web_search"], 0)
    assert sorted(names(found)) == ["file_read", "mcp:a/x", "web_search"]
    assert (await registry.for_person(*ids)).get("mcp:a/x") is not None


def test_builtin_tools_are_found_by_their_modules() -> None:
    found = {tool.name: tool for tool in discover_tools(toolcrib.tools)}

    workspace = {name for name, tool in found.items() if tool.toolset == "workspace"}
    assert workspace >= {
        "ls",
        "read",
        "write",
        "rm",
        "mv",
        "touch",
        "mkdir",
        "edit",
        "grep",
        "glob",
        "find",
        "cat",
        "file_info",
        "read_multiple_files",
        "plan_write",
        "plan_read",
        "plan_edit",
        "plan_list",
        "ask_user",
        "exit_plan_mode",
    }
    dangerous = {name for name in workspace if found[name].danger is Danger.DANGEROUS}
    assert dangerous == {"write", "rm", "mv", "touch", "mkdir", "edit"}


def test_every_builtin_tool_is_complete() -> None:
    for tool in discover_tools(toolcrib.tools):
        assert tool.description
        assert tool.input_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        assert all("description" in field for field in tool.input_schema["properties"].values()), tool.name
        assert (tool.category is ToolCategory.PLAN) == ("plan" in tool.name)


def test_metadata_says_where_each_builtin_tool_is_offered() -> None:
    found = {tool.name: tool for tool in discover_tools(toolcrib.tools)}
    safe = {name for name, tool in found.items() if tool.danger is Danger.SAFE}
    workspace = {name for name, tool in found.items() if tool.toolset == "workspace"}

    more_than_reads = {
        *("ask_user", "attach", "bash_list", "bash_output", "bash_stop"),
        *("exit_plan_mode", "plan_write", "plan_edit", "review", "run_agent"),
    }
    assert {name for name, tool in found.items() if tool.read_only} == safe - more_than_reads
    commands = {"bash_list", "bash_output", "bash_stop"}
    assert {name for name, tool in found.items() if SessionMode.PLAN in tool.modes} == (safe - commands) | {"write"}
    assert {name for name, tool in found.items() if SessionMode.BUILD not in tool.modes} == {"exit_plan_mode"}
    assert {name for name, tool in found.items() if tool.plan_files_only} == {"write"}
    assert {name for name, tool in found.items() if tool.default} == workspace | {"bash", "web_fetch", "web_search"}
    assert {name for name, tool in found.items() if tool.exposed_over_mcp} == workspace
    assert {tool.toolset for tool in found.values() if tool.in_execution_log} == {"mounts"}
    assert all(tool.in_execution_log for tool in found.values() if tool.toolset == "mounts")
