"""The `project` toolset over HTTP: text results, including errors."""

from tests.acceptance.workspace import Workspace


def test_a_file_and_a_directory_are_read_by_relative_path(workspace: Workspace) -> None:
    workspace.write("/sub/nested.txt", "nested content")
    workspace.put_file("/file-a.txt", "a")

    assert workspace.result("read_file", path="sub/nested.txt") == {"output": "nested content"}
    assert workspace.result("list_directory") == {"output": "sub/\nfile-a.txt"}


def test_an_error_is_a_result_and_a_violation_contains_outside(workspace: Workspace) -> None:
    missing = workspace.result("read_file", path="nope.txt")
    outside = workspace.result("list_directory", path="../../")
    protected = workspace.agent("toolsets: [project]\n").result("read_file", path=".env")

    assert missing == {"output": "Error: file not found: nope.txt", "is_error": True}
    for violation in (outside, protected):
        assert violation["is_error"] is True
        assert "outside" in violation["output"]


def test_an_agent_uses_the_dialect_that_its_owner_selects(workspace: Workspace) -> None:
    agent = workspace.agent("toolsets: [project]\n")

    offered = {tool["name"] for tool in agent.get("/tools").json()}

    assert offered == {"read_file", "list_directory"}
