"""``glob``: its request example and documented behaviour."""

from collections.abc import Callable

import pytest

from tests.acceptance.shapes import A_TIME, Says, refused
from tests.acceptance.workspace import Workspace


def found(workspace: Workspace, **args: object) -> list[str]:
    return [match["path"] for match in workspace.result("glob", **args)["matches"]]


def test_request_example(workspace: Workspace) -> None:
    workspace.write("/main.rs", "fn main() {}\n")
    workspace.write("/src/lib.rs", "")
    workspace.write("/src/lib.md", "")

    result = workspace.result("glob", pattern="*.rs")

    document = {"synced": True, "file_type": "document", "is_virtual": False, "updated_at": A_TIME}
    assert result == {
        "pattern": "*.rs",
        "base_path": "/",
        "matches": [
            {"path": "/main.rs", "name": "main.rs", "size": 13} | document,
            {"path": "/src/lib.rs", "name": "lib.rs", "size": 0} | document,
        ],
    }


def test_arguments_as_shown(workspace: Workspace) -> None:
    workspace.write("/main.rs", "")
    workspace.write("/src/lib.rs", "")

    result = workspace.result("glob", pattern="*.rs", path="/src")

    assert result["base_path"] == "/src"
    assert [match["path"] for match in result["matches"]] == ["/src/lib.rs"]


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("*.rs", ["/main.rs", "/src/deep/x.rs", "/src/lib.rs"]),
        ("**/*.md", ["/docs/a.md", "/readme.md"]),
        ("/src/**/*.rs", ["/src/deep/x.rs", "/src/lib.rs"]),
        ("test_*", ["/test_folder", "/test_folder/test_a.py"]),
        ("*/file.txt", ["/docs/file.txt"]),
        ("lib.?s", ["/src/lib.rs"]),
        ("*.{md,txt}", ["/docs/a.md", "/docs/file.txt", "/readme.md", "/src/deep/file.txt"]),
    ],
)
def test_supported_patterns(workspace: Workspace, pattern: str, paths: list[str]) -> None:
    for path in ("/main.rs", "/src/lib.rs", "/src/deep/x.rs", "/src/deep/file.txt", "/docs/a.md", "/docs/file.txt"):
        workspace.write(path, "")
    workspace.write("/readme.md", "")
    workspace.write("/test_folder/test_a.py", "")

    assert found(workspace, pattern=pattern) == paths


def test_several_patterns(workspace: Workspace) -> None:
    for path in ("/a.rs", "/b.md", "/c.txt"):
        workspace.write(path, "")

    result = workspace.result("glob", patterns=["*.rs", "*.md"])

    assert result["pattern"] == "*.rs, *.md"
    assert [match["path"] for match in result["matches"]] == ["/a.rs", "/b.md"]


def test_synced_shows_whether_a_file_is_tracked(workspace: Workspace) -> None:
    workspace.write("/known.txt", "")
    workspace.put_file("/other.txt", "four")

    matches = workspace.result("glob", pattern="*.txt")["matches"]

    assert {match["path"]: (match["synced"], match["size"]) for match in matches} == {
        "/known.txt": (True, 0),
        "/other.txt": (False, 4),
    }


def test_virtual_files_are_found(workspace: Workspace, chat: Callable[[str], str]) -> None:
    path = chat("hello")

    [match] = workspace.result("glob", pattern="*.chat")["matches"]

    assert (match["path"], match["is_virtual"], match["size"]) == (path, True, 9)
    assert found(workspace, path="/chats", pattern="*") == [path]


def test_all_matches_are_returned_unless_a_limit_is_set(workspace: Workspace) -> None:
    for number in range(60):
        workspace.put_file(f"/{number:02}.txt", "")

    assert len(found(workspace, pattern="*")) == 60
    assert found(workspace, pattern="*", limit=2) == ["/00.txt", "/01.txt"]


@pytest.mark.parametrize("pattern", ["../*", "src/../../*", "/.."])
def test_patterns_with_two_dots_are_rejected(workspace: Workspace, pattern: str) -> None:
    refused(workspace.call("glob", pattern=pattern), 400, "VALIDATION_ERROR", fields={"pattern": Says("'..'")})


@pytest.mark.parametrize("args", [{}, {"pattern": "*", "patterns": ["*"]}])
def test_one_form_of_pattern_is_required(workspace: Workspace, args: dict[str, object]) -> None:
    refused(workspace.call("glob", **args), 400, "VALIDATION_ERROR", fields={"args": Says("`pattern` or `patterns`")})


def test_a_base_that_is_no_folder_is_rejected(workspace: Workspace) -> None:
    workspace.write("/a.txt", "")

    refused(workspace.call("glob", pattern="*", path="/nowhere"), 404, "NOT_FOUND", Says("/nowhere"))
    refused(
        workspace.call("glob", pattern="*", path="/a.txt"), 400, "VALIDATION_ERROR", fields={"path": Says("/a.txt")}
    )
