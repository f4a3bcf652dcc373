"""``grep``: its request example and documented behaviour."""

from collections.abc import Callable

import pytest

from tests.acceptance.shapes import Says, refused
from tests.acceptance.workspace import Workspace


def found(workspace: Workspace, **args: object) -> list[tuple[str, int]]:
    return [(match["path"], match["line_number"]) for match in workspace.result("grep", **args)["matches"]]


def test_request_example(workspace: Workspace) -> None:
    before = "".join(f"line {number}\n" for number in range(1, 42))
    workspace.write("/src/main.rs", before + "// TODO: Implement error handling\n// todo: not this one\n")

    result = workspace.result("grep", pattern="TODO:", case_sensitive=True)

    assert result == {
        "matches": [{"path": "/src/main.rs", "line_number": 42, "line_text": "// TODO: Implement error handling"}]
    }


def test_arguments_as_shown(workspace: Workspace) -> None:
    workspace.write("/src/main.rs", "fn main() {\n    FN other()\n}\n")
    workspace.write("/src/main.py", "fn main()\n")

    result = workspace.result("grep", pattern="fn \\w+\\(", path_pattern="%.rs", case_sensitive=False, limit=50)

    assert [match["line_text"] for match in result["matches"]] == ["fn main() {", "    FN other()"]


def test_patterns_are_those_of_postgresql(workspace: Workspace) -> None:
    workspace.write("/a.txt", "abab\nabcd\nword\nsword\nx9\n")

    assert found(workspace, pattern=r"(ab)\1") == [("/a.txt", 1)]
    assert found(workspace, pattern="ab(?!ab)") == [("/a.txt", 1), ("/a.txt", 2)]
    assert found(workspace, pattern=r"\mword\M") == [("/a.txt", 3)]
    assert found(workspace, pattern="^[[:alpha:]][[:digit:]]$") == [("/a.txt", 5)]


def test_a_word_boundary_means_what_models_expect(workspace: Workspace) -> None:
    workspace.write("/a.txt", "word\nsword\nwords\nwörd word\n")

    assert found(workspace, pattern=r"\bword\b") == [("/a.txt", 1), ("/a.txt", 4)]
    assert found(workspace, pattern=r"\bw\w+d\b") == [("/a.txt", 1), ("/a.txt", 4)]


def test_case_is_ignored_by_default(workspace: Workspace) -> None:
    workspace.write("/a.txt", "Ärger\nÄRGER\nanger\n")

    assert found(workspace, pattern="ärger") == [("/a.txt", 1), ("/a.txt", 2)]
    assert found(workspace, pattern="Ärger", case_sensitive=True) == [("/a.txt", 1)]


@pytest.mark.parametrize(
    ("path_pattern", "paths"),
    [
        ("%.rs", ["/src/main.rs"]),
        ("*.RS", ["/src/main.rs"]),
        ("src/*", ["/src/main.rs", "/src/sub/a.md"]),
        ("/src/%", ["/src/main.rs", "/src/sub/a.md"]),
        ("main", ["/main.md", "/src/main.rs"]),
        ("SUB/a", ["/src/sub/a.md"]),
    ],
)
def test_fuzzy_path_matching(workspace: Workspace, path_pattern: str, paths: list[str]) -> None:
    for path in ("/src/main.rs", "/src/sub/a.md", "/main.md", "/other.md"):
        workspace.write(path, "x\n")

    assert [path for path, _ in found(workspace, pattern="x", path_pattern=path_pattern)] == paths


def test_the_latest_version_is_searched_in_the_database_and_on_disk_alike(workspace: Workspace) -> None:
    workspace.write("/a.txt", "old\n")
    workspace.result("write", path="/a.txt", content="new\n", overwrite=True)
    workspace.write("/b.txt", "old\n")
    workspace.put_file("/b.txt", "new\n")
    workspace.put_file("/c.txt", "new\n")

    assert found(workspace, pattern="old") == []
    assert found(workspace, pattern="new") == [("/a.txt", 1), ("/b.txt", 1), ("/c.txt", 1)]


def test_virtual_files_are_searched_as_readable_text(workspace: Workspace, chat: Callable[[str], str]) -> None:
    first, second = chat("Find the needle, please"), chat("NEEDLES")
    workspace.write("/z.txt", "needle\n")

    # Files on disk come first.
    assert workspace.result("grep", pattern="needle", after_context=1)["matches"] == [
        {"path": "/z.txt", "line_number": 1, "line_text": "needle", "after_context": []},
        {"path": first, "line_number": 1, "line_text": "# Find the needle, please", "after_context": [""]},
        {"path": second, "line_number": 1, "line_text": "# NEEDLES", "after_context": [""]},
    ]
    assert found(workspace, pattern=r"needle\b", case_sensitive=True) == [("/z.txt", 1), (first, 1)]
    assert found(workspace, pattern="needle", path_pattern="chats/*") == [(first, 1), (second, 1)]
    assert found(workspace, pattern="needle", limit=2) == [("/z.txt", 1), (first, 1)]
    assert found(workspace, pattern="needle", limit=1) == [("/z.txt", 1)]


def test_results_are_limited_to_the_first_50_matches_by_default(workspace: Workspace) -> None:
    workspace.write("/a.txt", "x\n" * 60)

    assert found(workspace, pattern="x") == [("/a.txt", number) for number in range(1, 51)]
    assert len(found(workspace, pattern="x", limit=0)) == 60
    assert len(found(workspace, pattern="x", limit=3)) == 3


def test_context_is_returned_as_arrays_of_lines(workspace: Workspace) -> None:
    workspace.write("/a.txt", "1\n2\nneedle\n4\n5\n")
    match = {"path": "/a.txt", "line_number": 3, "line_text": "needle"}

    assert workspace.result("grep", pattern="needle", before_context=1)["matches"] == [
        match | {"before_context": ["2"]}
    ]
    assert workspace.result("grep", pattern="needle", after_context=9)["matches"] == [
        match | {"after_context": ["4", "5"]}
    ]
    assert workspace.result("grep", pattern="needle", context=1)["matches"] == [
        match | {"before_context": ["2"], "after_context": ["4"], "context": ["2", "needle", "4"]}
    ]


def test_line_ends_are_not_part_of_lines(workspace: Workspace) -> None:
    workspace.put_file("/a.txt", b"foo\r\nfoo bar\r\n")

    result = workspace.result("grep", pattern="foo$")

    assert result == {"matches": [{"path": "/a.txt", "line_number": 1, "line_text": "foo"}]}


@pytest.mark.parametrize("pattern", ["(", "a**", "[z-a]"])
def test_an_invalid_pattern_is_a_wrong_argument(workspace: Workspace, pattern: str) -> None:
    refused(
        workspace.call("grep", pattern=pattern),
        400,
        "VALIDATION_ERROR",
        fields={"pattern": Says("Invalid regular expression")},
    )


@pytest.mark.parametrize(
    ("args", "field"),
    [({}, "pattern"), ({"pattern": ""}, "pattern"), ({"pattern": "x", "limit": -1}, "limit")],
)
def test_wrong_arguments(workspace: Workspace, args: dict[str, object], field: str) -> None:
    response = workspace.call("grep", **args)

    assert response.status_code == 400
    assert set(response.json()["fields"]) == {field}


def test_an_agent_gets_no_matches_from_protected_files(workspace: Workspace) -> None:
    workspace.put_file("/.env", "KEY=needle\n")
    workspace.write("/a.txt", "needle\n")

    result = workspace.agent("trust: guided\n").result("grep", pattern="needle")

    assert result == {
        "matches": [{"path": "/a.txt", "line_number": 1, "line_text": "needle"}],
        "files_denied": 1,
        "hint": Says("not searched"),
    }
