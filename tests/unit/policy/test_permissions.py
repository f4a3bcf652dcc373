"""Permissions: which tools an agent may use, and on which paths."""

import pytest

import toolcrib.tools
from tests.unit.policy.builders import BASH, READ, Tool, project, rules
from toolcrib.core.agents import AgentRules, ToolPermission
from toolcrib.core.paths import Mount, WorkspacePath, mount_root
from toolcrib.core.tool_calls import Danger
from toolcrib.policy.permissions import is_offered, is_permitted, path_allowed
from toolcrib.tools.tool_registry import discover_tools

# fmt: off
READING_TOOLS = [
    "ls", "read", "cat", "file_info", "read_multiple_files", "grep", "glob", "find", "plan_read", "plan_list",
    "file_read", "web_search", "fs.list", "fs.read", "fs.search", "read_file", "list_directory",
]
OTHER_SAFE_TOOLS = [
    "ask_user", "exit_plan_mode", "plan_write", "plan_edit", "bash_list", "bash_output", "bash_stop",
]
DANGEROUS_TOOLS = [
    "file_write", "bash", "write", "edit", "rm", "mv", "touch", "mkdir", "fs.write", "fs.apply_patch",
]
# fmt: on
BUILTIN = {tool.name: tool for tool in discover_tools(toolcrib.tools)}


@pytest.mark.parametrize("permissions", [None, {}])
def test_ac10_without_permissions_an_agent_only_reads(permissions: dict[str, object] | None) -> None:
    reader = rules(tool_permissions=permissions)
    assert all(is_permitted(reader, BUILTIN[name]) for name in READING_TOOLS)
    assert not any(is_permitted(reader, BUILTIN[name]) for name in OTHER_SAFE_TOOLS)
    assert not any(is_permitted(reader, BUILTIN[name]) for name in DANGEROUS_TOOLS)


def test_ac9_only_the_tools_that_are_allowed_may_be_used() -> None:
    scope = rules(tool_permissions={"file_read": {"allowed": True}, "web_search": {"allowed": True}})
    allowed = [n for n in (*READING_TOOLS, *OTHER_SAFE_TOOLS) if is_permitted(scope, BUILTIN[n])]
    assert sorted(allowed) == ["file_read", "web_search"]
    assert not any(is_permitted(scope, BUILTIN[name]) for name in DANGEROUS_TOOLS)


@pytest.mark.parametrize("entry", [{"allowed": False}, {}])
def test_a_tool_that_is_listed_but_not_allowed_may_not_be_used(entry: dict[str, object]) -> None:
    assert not is_permitted(rules(tool_permissions={"read": entry}), READ)


def test_a_tool_is_offered_if_its_toolset_is_enabled_and_it_is_allowed() -> None:
    assert is_offered(AgentRules(), READ)
    assert not is_offered(AgentRules(), Tool("read_file", toolset="project"))
    assert is_offered(rules(toolsets=["project"]), Tool("read_file", toolset="project"))
    assert not is_offered(rules(toolsets=["project"]), READ)
    assert not is_offered(rules(toolsets=["studio"]), BASH)


def test_allowing_a_tool_by_name_offers_it_unless_an_mcp_server_provides_it() -> None:
    permissions = {"bash": {"allowed": True}, "deploy": {"allowed": True}}
    deploy = Tool("deploy", Danger.DANGEROUS, "mcp:ops")
    assert is_offered(rules(tool_permissions=permissions), BASH)
    assert not is_offered(rules(tool_permissions=permissions), deploy)
    assert is_offered(rules(tool_permissions=permissions, toolsets=["mcp:ops"]), deploy)


@pytest.mark.parametrize(
    ("glob", "inside", "outside"),
    [
        ("**", ["/", "/a", "/a/b.py"], []),
        ("src/**", ["/src", "/src/a.py", "/src/a/b.py"], ["/", "/Src/a.py", "/srcs/a.py", "/lib/src/a.py"]),
        ("/src/**", ["/src/a.py"], ["/lib/src/a.py", "/a.py"]),
        ("src", ["/src", "/src/a.py"], ["/a.py"]),
        ("*.md", ["/a.md", "/docs/deep/b.md"], ["/", "/a.MD", "/a.mdx"]),
        ("docs/*.md", ["/docs/a.md"], ["/docs/deep/a.md", "/a.md"]),
        ("docs/**/*.md", ["/docs/a.md", "/docs/deep/er/a.md"], ["/docs/a.txt"]),
        ("_bmad-output/**", ["/_bmad-output/plan.md"], ["/bmad-output/plan.md"]),
        ("@types/**", ["/@types/a.d.ts"], ["/types/a.d.ts"]),
        ("[abc].py", ["/a.py"], ["/d.py"]),
        ("../**", [], ["/", "/a"]),
        ("", [], ["/", "/a"]),
        ("broken\\", [], ["/", "/broken"]),
    ],
)
def test_a_glob_without_a_mount_applies_to_both_mounts(glob: str, inside: list[str], outside: list[str]) -> None:
    permission = ToolPermission(allowed=True, paths=(glob,))
    for zone in (Mount.PROJECT, Mount.CENTRAL):
        assert [path for path in inside if not path_allowed(permission, WorkspacePath(zone, path))] == []
        assert [path for path in outside if path_allowed(permission, WorkspacePath(zone, path))] == []


def test_a_glob_with_a_mount_applies_to_that_mount_only() -> None:
    permission = ToolPermission(allowed=True, paths=("@project/src/**", "@central"))
    assert path_allowed(permission, project("/src/a.py"))
    assert not path_allowed(permission, project("/docs/a.md"))
    assert path_allowed(permission, WorkspacePath(Mount.CENTRAL, "/docs/a.md"))
    assert path_allowed(permission, mount_root(Mount.CENTRAL))


def test_a_later_glob_may_except_from_an_earlier_one() -> None:
    permission = ToolPermission(allowed=True, paths=("**", "!infra/**"))
    assert path_allowed(permission, project("/src/a.py"))
    assert not path_allowed(permission, project("/infra/main.tf"))


def test_without_globs_every_path_is_allowed_and_with_an_empty_list_none() -> None:
    assert path_allowed(ToolPermission(allowed=True), project("/a"))
    assert path_allowed(None, project("/a"))
    assert not path_allowed(ToolPermission(allowed=True, paths=()), project("/a"))


@pytest.mark.parametrize("mount", [Mount.STATE, Mount.PKG])
def test_globs_do_not_restrict_state_and_pkg(mount: Mount) -> None:
    assert path_allowed(ToolPermission(allowed=True, paths=("src/**",)), WorkspacePath(mount, "/notes.md"))


@pytest.mark.parametrize(
    ("globs", "path"),
    [
        (("src/**", "!src/secret.txt"), "/src/secret.txt"),
        (("!src/secret.txt", "src/**"), "/src/secret.txt"),
        (("**", "!src/secret.txt"), "/src/secret.txt"),
        (("src/**", "!src/s"), "/src/s/x"),
        (("src/**", "!src/s/"), "/src/s/x"),
        (("**", "!*.key"), "/deep/down/a.key"),
        (("@project/**", "!@project/src/**"), "/src/a"),
    ],
)
def test_a_negated_glob_denies_its_paths(globs: tuple[str, ...], path: str) -> None:
    permission = ToolPermission(allowed=True, paths=globs)

    assert not path_allowed(permission, WorkspacePath(Mount.PROJECT, path))
    assert path_allowed(permission, WorkspacePath(Mount.PROJECT, "/src/open.txt")) is ("!@project/src/**" not in globs)
