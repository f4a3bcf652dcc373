"""``file_info``: its request example and documented behaviour."""

from collections.abc import Callable

import pytest

from tests.acceptance.shapes import A_TIME, lines, moment, refused, sha256_of
from tests.acceptance.workspace import Workspace


def test_request_example(workspace: Workspace) -> None:
    workspace.write("/config.json", '{\n  "key": "value"\n}\n')

    result = workspace.result("file_info", path="/config.json")

    on_disk = workspace.on_disk("/config.json")
    assert result == {
        "path": "/config.json",
        "file_type": "document",
        "size": on_disk.stat().st_size,
        "line_count": 3,
        "synced": True,
        "is_virtual": False,
        "created_at": A_TIME,
        "updated_at": A_TIME,
        "hash": sha256_of(on_disk),
    }


def test_size_and_hash_are_of_the_bytes_on_disk(workspace: Workspace) -> None:
    workspace.write("/a.canvas", {"ü": 1})

    info = workspace.result("file_info", path="/a.canvas")

    on_disk = workspace.on_disk("/a.canvas").read_bytes()
    assert (info["size"], info["hash"], info["line_count"]) == (len(on_disk), sha256_of(on_disk), 3)


def test_size_is_accurate_after_a_change_on_disk(workspace: Workspace) -> None:
    workspace.write("/a.md", "x")
    workspace.put_file("/a.md", lines(100))

    info = workspace.result("file_info", path="/a.md")

    assert (info["size"], info["line_count"]) == (len(lines(100)), 100)
    assert info["hash"] == sha256_of(lines(100))


@pytest.mark.parametrize(("content", "count"), [("", 0), ("one", 1), ("one\n", 1), ("one\ntwo", 2), ("\n\n", 2)])
def test_line_count(workspace: Workspace, content: str, count: int) -> None:
    workspace.write("/a.md", content)

    assert workspace.result("file_info", path="/a.md")["line_count"] == count
    assert workspace.result("read", path="/a.md")["total_lines"] == count


def test_a_binary_file_has_no_line_count(workspace: Workspace) -> None:
    workspace.put_file("/a.bin", b"\0\1\2\n")

    info = workspace.result("file_info", path="/a.bin")

    assert (info["size"], info["line_count"], info["hash"]) == (4, None, sha256_of(b"\0\1\2\n"))


def test_timestamps(workspace: Workspace) -> None:
    workspace.write("/a.md", "one")
    created = workspace.result("file_info", path="/a.md")

    workspace.result("write", path="/a.md", content="two", overwrite=True)

    updated = workspace.result("file_info", path="/a.md")
    assert created["created_at"] == created["updated_at"]
    assert updated["created_at"] == created["created_at"]
    assert moment(updated["updated_at"]) > moment(created["updated_at"])


def test_edit_accepts_the_hash_as_last_read_hash(workspace: Workspace) -> None:
    workspace.write("/a.md", "one")
    seen = workspace.result("file_info", path="/a.md")["hash"]

    assert workspace.call("edit", path="/a.md", old_string="one", new_string="two", last_read_hash=seen).is_success


def test_a_folder_has_neither_size_nor_lines_nor_hash(workspace: Workspace) -> None:
    workspace.result("mkdir", path="/a")

    assert workspace.result("file_info", path="/a") == {
        "path": "/a",
        "file_type": "folder",
        "size": None,
        "line_count": None,
        "synced": True,
        "is_virtual": False,
        "created_at": A_TIME,
        "updated_at": A_TIME,
        "hash": None,
    }


def test_virtual_files(workspace: Workspace, chat: Callable[[str], str]) -> None:
    path = chat("hello")

    info = workspace.result("file_info", path=path)

    assert (info["is_virtual"], info["synced"], info["file_type"]) == (True, True, "chat")
    assert (info["size"], info["line_count"], info["hash"]) == (9, 2, sha256_of("# hello\n\n"))
    assert workspace.result("read", path=path)["content"] == "# hello\n\n"
    assert workspace.result("read", path=path)["hash"] == info["hash"]
    folder = workspace.result("file_info", path="/chats")
    assert (folder["is_virtual"], folder["file_type"], folder["size"]) == (True, "folder", None)


def test_existence_can_be_verified(workspace: Workspace) -> None:
    refused(workspace.call("file_info", path="/nope.md"), 404, "NOT_FOUND", "File not found: /nope.md")


def test_path_is_required(workspace: Workspace) -> None:
    refused(
        workspace.call("file_info"),
        400,
        "VALIDATION_ERROR",
        "Validation failed",
        fields={"path": "This field is required."},
    )
