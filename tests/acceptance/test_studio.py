"""The `studio` toolset over HTTP: its acceptance criteria by number, and how it reports a violation."""

from tests.acceptance.shapes import Says, refused
from tests.acceptance.workspace import Workspace


def test_ac12_file_read_gives_the_content_of_a_file_in_the_project(workspace: Workspace) -> None:
    workspace.put_file("/test.txt", "hello")

    result = workspace.result("file_read", path="test.txt")

    assert (result["output"], result["is_error"]) == ("hello", False)


def test_ac13_file_read_of_no_file_is_an_error_with_a_message(workspace: Workspace) -> None:
    result = workspace.result("file_read", path="none.txt")

    assert (result["output"], result["is_error"]) == ("file not found: none.txt", True)


def test_ac14_file_write_makes_the_file_and_the_directories_above_it(workspace: Workspace) -> None:
    result = workspace.result("file_write", path="new/dir/file.txt", content="data")

    assert (result["output"], result["is_error"]) == ("wrote 4 bytes to new/dir/file.txt", False)
    assert workspace.on_disk("/new/dir/file.txt").read_text() == "data"


def test_a_violation_is_an_error_and_not_a_result(workspace: Workspace) -> None:
    agent = workspace.agent("trust: autonomous\ntool_permissions:\n  file_write: {allowed: true}\n")

    refused(workspace.call("file_read", path="../../etc/passwd"), 400, "VALIDATION_ERROR", Says("outside"))
    refused(workspace.call("file_read", path="/etc/passwd"), 400, "VALIDATION_ERROR", Says("outside"))
    refused(agent.call("file_write", path=".env", content="KEY=1"), 400, "VALIDATION_ERROR", Says(".env", "protected"))
    assert not workspace.on_disk("/.env").exists()
