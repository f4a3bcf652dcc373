"""``find``: its request example and documented behaviour."""

from collections.abc import Callable

import pytest

from tests.acceptance.shapes import A_TIME, Says, refused
from tests.acceptance.workspace import Workspace


def found(workspace: Workspace, **args: object) -> list[str]:
    return [match["path"] for match in workspace.result("find", **args)["matches"]]


def test_request_example(workspace: Workspace) -> None:
    workspace.write("/src/main.rs", "fn main() {}\n")
    workspace.write("/src/lib.rs", "")
    workspace.write("/other.rs", "")

    result = workspace.result("find", name="*.rs", path="/src")

    document = {"synced": True, "file_type": "document", "updated_at": A_TIME}
    assert result == {
        "matches": [
            {"path": "/src/lib.rs", "name": "lib.rs", "size": 0} | document,
            {"path": "/src/main.rs", "name": "main.rs", "size": 13} | document,
        ]
    }


def test_every_argument_is_optional(workspace: Workspace) -> None:
    workspace.write("/sub/a.txt", "")

    assert found(workspace) == ["/sub", "/sub/a.txt"]


@pytest.mark.parametrize(
    ("name", "paths"),
    [("*.txt", ["/a.txt", "/b.txt"]), ("?.txt", ["/a.txt", "/b.txt"]), ("[b-z]*", ["/b.txt"]), ("A*", [])],
)
def test_name_patterns(workspace: Workspace, name: str, paths: list[str]) -> None:
    for path in ("/a.txt", "/b.txt", "/a.md"):
        workspace.write(path, "")

    assert found(workspace, name=name) == paths


def test_folders_and_files_are_distinguished(workspace: Workspace) -> None:
    workspace.write("/src/a.txt", "")

    assert found(workspace, file_type="folder") == ["/src"]
    assert found(workspace, file_type="document") == ["/src/a.txt"]


def test_without_recursion_only_direct_children_are_found(workspace: Workspace) -> None:
    workspace.write("/src/deep/a.txt", "")
    workspace.write("/src/b.txt", "")

    assert found(workspace, path="/src", recursive=False) == ["/src/b.txt", "/src/deep"]


def test_sizes_are_those_on_disk(workspace: Workspace) -> None:
    for size in (0, 10, 100, 1_000):
        workspace.write(f"/{size}.bin", "x" * size)
    workspace.put_file("/10.bin", "x" * 500)

    assert found(workspace, min_size=100) == ["/10.bin", "/100.bin", "/1000.bin"]
    assert found(workspace, min_size=100, max_size=500) == ["/10.bin", "/100.bin"]
    assert found(workspace, max_size=0) == ["/0.bin"]
    assert [match["size"] for match in workspace.result("find", name="10.bin")["matches"]] == [500]


def test_untracked_files_are_found(workspace: Workspace) -> None:
    workspace.put_file("/other.txt", "")

    [match] = workspace.result("find", name="other.*")["matches"]

    assert match["synced"] is False


def test_virtual_files_are_found(workspace: Workspace, chat: Callable[[str], str]) -> None:
    path = chat("hello")
    workspace.write("/real.chat", "hello")

    assert found(workspace, name="*.chat") == [path, "/real.chat"]
    assert found(workspace, path="/chats") == [path]
    assert found(workspace, file_type="chat") == [path]
    assert found(workspace, file_type="folder") == ["/chats"]
    assert found(workspace, name="*.chat", recursive=False) == ["/real.chat"]
    # "# hello", and an empty line.
    assert found(workspace, min_size=9, max_size=9) == [path]
    assert found(workspace, min_size=10) == []


def test_results_are_limited_to_50_by_default(workspace: Workspace) -> None:
    for number in range(60):
        workspace.put_file(f"/{number:02}.txt", "")

    assert found(workspace) == [f"/{number:02}.txt" for number in range(50)]
    assert len(found(workspace, limit=0)) == 60


@pytest.mark.parametrize(
    ("args", "field"), [({"min_size": -1}, "min_size"), ({"file_type": "spoon"}, "file_type"), ({"limit": -1}, "limit")]
)
def test_wrong_arguments(workspace: Workspace, args: dict[str, object], field: str) -> None:
    response = workspace.call("find", **args)

    assert response.status_code == 400
    assert set(response.json()["fields"]) == {field}


def test_a_base_that_does_not_exist_is_not_found(workspace: Workspace) -> None:
    refused(workspace.call("find", path="/nowhere"), 404, "NOT_FOUND", Says("/nowhere"))
