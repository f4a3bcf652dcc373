"""The `project` toolset: `read_file` and `list_directory`, under the test names that their authors list.

Of the registry's three tests, "returns definitions for all registered tools" and "get returns tool by name" are here;
"get returns undefined for unknown tool" is `test_get_unknown_tool_returns_none` in the registry's own tests. `isError`
is written `is_error` here, as everywhere in Toolcrib.
"""

from pathlib import Path

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.builders import speaker, tool_result
from toolcrib.core.tool_calls import Danger, OutcomeState, ToolCategory
from toolcrib.tools.dialects.project_dialect import list_directory, read_file
from toolcrib.tools.tool_registry import ToolRegistry


@pytest.fixture
def workspace(workspace: WorkspaceFixture) -> WorkspaceFixture:
    """Create the files that the listed tests expect."""
    contents = {"hello.txt": "Hello, world!", "sub/nested.txt": "nested content", "file-a.txt": "a"}
    for name, content in contents.items():
        (workspace.project / name).parent.mkdir(exist_ok=True)
        (workspace.project / name).write_text(content)
    return workspace


# The registry


def test_returns_definitions_for_all_registered_tools() -> None:
    registry = ToolRegistry([read_file, list_directory])

    assert [definition.name for definition in registry.definitions_for_scope(None)] == ["read_file", "list_directory"]


def test_get_returns_tool_by_name() -> None:
    assert ToolRegistry([read_file]).get("read_file") is read_file


def test_both_are_safe_file_tools() -> None:
    for tool in (read_file, list_directory):
        assert (tool.danger, tool.category, tool.toolset) == (Danger.SAFE, ToolCategory.FILE, "project")


# read_file


def test_read_file_definition_has_correct_name_and_parameters() -> None:
    definition = read_file.definition()

    assert definition.name == "read_file"
    assert set(definition.input_schema["properties"]) == {"path"}
    assert definition.input_schema["required"] == ["path"]


async def test_reads_a_file_at_project_root(workspace: WorkspaceFixture) -> None:
    assert await tool_result(workspace, "read_file", path="hello.txt") == {"output": "Hello, world!"}


async def test_reads_a_nested_file(workspace: WorkspaceFixture) -> None:
    assert await tool_result(workspace, "read_file", path="sub/nested.txt") == {"output": "nested content"}


async def test_returns_error_for_nonexistent_file(workspace: WorkspaceFixture) -> None:
    assert await tool_result(workspace, "read_file", path="nope.txt") == {
        "output": "Error: file not found: nope.txt",
        "is_error": True,
    }


async def test_read_file_returns_error_for_path_traversal_attempt(workspace: WorkspaceFixture) -> None:
    outcome = await workspace.call("read_file", path="../../etc/passwd")

    assert outcome.result["is_error"] is True
    assert "outside" in outcome.result["output"]
    assert outcome.state is OutcomeState.DENIED


async def test_returns_error_when_path_is_missing(workspace: WorkspaceFixture) -> None:
    assert await tool_result(workspace, "read_file") == {
        "output": "Error: 'path': This field is required.",
        "is_error": True,
    }
    assert (await tool_result(workspace, "read_file", path=""))["is_error"] is True


async def test_directory_is_not_read_and_the_error_names_the_tool_for_it(workspace: WorkspaceFixture) -> None:
    assert await tool_result(workspace, "read_file", path="sub") == {
        "output": "Error: 'sub' is a directory, not a file. Use list_directory instead.",
        "is_error": True,
    }


async def test_absolute_path_is_outside(workspace: WorkspaceFixture) -> None:
    for tool in ("read_file", "list_directory"):
        result = await tool_result(workspace, tool, path=str(workspace.project / "sub"))
        assert (result["is_error"], "outside" in result["output"]) == (True, True)


# list_directory


def test_list_directory_definition_has_correct_name() -> None:
    definition = list_directory.definition()

    assert definition.name == "list_directory"
    assert "required" not in definition.input_schema


async def test_lists_project_root_when_path_is_dot(workspace: WorkspaceFixture) -> None:
    assert await tool_result(workspace, "list_directory", path=".") == {"output": "sub/\nfile-a.txt\nhello.txt"}


async def test_lists_subdirectory_contents(workspace: WorkspaceFixture) -> None:
    assert await tool_result(workspace, "list_directory", path="sub") == {"output": "nested.txt"}


async def test_returns_error_for_nonexistent_directory(workspace: WorkspaceFixture) -> None:
    assert await tool_result(workspace, "list_directory", path="nope") == {
        "output": "Error: directory not found: nope",
        "is_error": True,
    }


async def test_list_directory_returns_error_for_path_traversal(workspace: WorkspaceFixture) -> None:
    result = await tool_result(workspace, "list_directory", path="../../")

    assert (result["is_error"], "outside" in result["output"]) == (True, True)


async def test_returns_error_when_path_is_a_file_not_a_directory(workspace: WorkspaceFixture) -> None:
    assert await tool_result(workspace, "list_directory", path="file-a.txt") == {
        "output": "Error: 'file-a.txt' is not a directory",
        "is_error": True,
    }


async def test_defaults_to_project_root_when_path_is_omitted(workspace: WorkspaceFixture) -> None:
    assert await tool_result(workspace, "list_directory") == await tool_result(workspace, "list_directory", path=".")
    assert await tool_result(workspace, "list_directory", path="") == await tool_result(
        workspace, "list_directory", path="."
    )


async def test_link_that_leads_out_is_outside_for_both(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    (workspace.project / "out").symlink_to(tmp_path)

    for tool in ("read_file", "list_directory"):
        for path in ("out", "out/data"):
            result = await tool_result(workspace, tool, path=path)
            assert (result["is_error"], "outside" in result["output"]) == (True, True), (tool, path)


async def test_denied_permission_is_an_error_and_not_outside(workspace: WorkspaceFixture) -> None:
    agent = await speaker(workspace, tool_permissions={"read_file": {"allowed": True, "paths": ["sub/**"]}})

    result = await tool_result(workspace, "read_file", agent, path="hello.txt")

    assert result["is_error"] is True
    assert "outside" not in result["output"]
    assert (await tool_result(workspace, "read_file", agent, path="sub/nested.txt"))["output"] == "nested content"
