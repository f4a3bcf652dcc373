"""File sync status: untracked files."""

from typing import Any

import pytest

from tests.acceptance.shapes import A_TIME, A_UUID, Says, refused, result_of, sha256_of
from tests.acceptance.workspace import Workspace

# Discovery


def test_ls_returns_synced_and_unsynced_files(workspace: Workspace) -> None:
    written = workspace.write("/synced.md", "x")
    workspace.put_file("/unsynced.md", "y")
    workspace.on_disk("/folder").mkdir()

    unknown = {"id": None, "synced": False, "is_virtual": False, "updated_at": A_TIME}
    assert workspace.result("ls")["entries"] == [
        {"name": "folder", "display_name": "folder", "path": "/folder", "file_type": "Folder", **unknown},
        {
            "id": written["file_id"],
            "synced": True,
            "name": "synced.md",
            "display_name": "synced.md",
            "path": "/synced.md",
            "file_type": "Document",
            "is_virtual": False,
            "updated_at": A_TIME,
        },
        {
            "name": "unsynced.md",
            "display_name": "unsynced.md",
            "path": "/unsynced.md",
            "file_type": "Document",
            **unknown,
        },
    ]


def test_ls_lists_untracked_files_recursively(workspace: Workspace) -> None:
    workspace.write("/a/synced.md", "x")
    workspace.put_file("/a/b/unsynced.md", "y")

    entries = workspace.result("ls", recursive=True)["entries"]

    assert [(entry["path"], entry["synced"]) for entry in entries] == [
        ("/a", True),
        ("/a/b", False),
        ("/a/b/unsynced.md", False),
        ("/a/synced.md", True),
    ]


def test_a_folder_on_disk_only_can_be_listed(workspace: Workspace) -> None:
    workspace.put_file("/folder/a.md", "x")

    assert workspace.names(path="/folder") == ["/folder/a.md"]


def test_reading_imports_nothing(workspace: Workspace) -> None:
    workspace.put_file("/a.md", "x")

    for tool, args in _LOOKING:
        workspace.result(tool, **args)

    [entry] = workspace.result("ls")["entries"]
    assert (entry["id"], entry["synced"]) == (None, False)


# Access

_LOOKING: list[tuple[str, dict[str, Any]]] = [
    ("ls", {"recursive": True}),
    ("read", {"path": "/a.md"}),
    ("cat", {"paths": ["/a.md"]}),
    ("file_info", {"path": "/a.md"}),
    ("read_multiple_files", {"paths": ["/a.md"]}),
]


def test_read_falls_back_to_disk(workspace: Workspace) -> None:
    workspace.put_file("/a.md", "one\ntwo\n")

    assert workspace.result("read", path="/a.md") == {
        "path": "/a.md",
        "content": "one\ntwo\n",
        "hash": sha256_of("one\ntwo\n"),
        "synced": False,
        "total_lines": 2,
        "truncated": False,
        "offset": 0,
        "limit": 500,
    }


def test_cat_falls_back_to_disk(workspace: Workspace) -> None:
    workspace.put_file("/a.md", "one\n")
    workspace.write("/b.md", "two\n")

    files = workspace.result("cat", paths=["/a.md", "/b.md"])["files"]

    assert [(file["content"], file["synced"]) for file in files] == [("one\n", False), ("two\n", True)]


def test_file_info_falls_back_to_disk(workspace: Workspace) -> None:
    workspace.put_file("/a.md", "one\n")

    assert workspace.result("file_info", path="/a.md") == {
        "path": "/a.md",
        "file_type": "document",
        "size": 4,
        "line_count": 1,
        "synced": False,
        "is_virtual": False,
        "created_at": A_TIME,
        "updated_at": A_TIME,
        "hash": sha256_of("one\n"),
    }


def test_file_info_of_a_folder_falls_back_to_disk(workspace: Workspace) -> None:
    workspace.on_disk("/folder").mkdir()

    info = workspace.result("file_info", path="/folder")

    assert (info["file_type"], info["synced"], info["size"], info["hash"]) == ("folder", False, None, None)


def test_read_multiple_files_falls_back_to_disk(workspace: Workspace) -> None:
    workspace.put_file("/a.md", "one\n")
    workspace.write("/b.md", "two\n")

    files = workspace.result("read_multiple_files", paths=["/a.md", "/b.md"])["files"]

    assert [(file["content"], file["synced"]) for file in files] == [("one\n", False), ("two\n", True)]


@pytest.mark.parametrize("tool", ["read", "file_info"])
def test_404_only_if_found_in_neither(workspace: Workspace, tool: str) -> None:
    refused(workspace.call(tool, path="/a.md"), 404, "NOT_FOUND", "File not found: /a.md")


# Mutation


def test_edit_imports_first_and_then_operates(workspace: Workspace) -> None:
    workspace.put_file("/sub/a.md", "one\n")

    result = workspace.result("edit", path="/sub/a.md", old_string="one", new_string="two")

    assert result["file_id"] == A_UUID
    assert workspace.history(result["file_id"]) == [("external", "one\n"), ("user", "two\n")]
    assert workspace.result("read", path="/sub/a.md")["synced"] is True
    assert workspace.on_disk("/sub/a.md").read_text() == "two\n"


def test_edit_takes_the_hash_of_a_file_on_disk_only(workspace: Workspace) -> None:
    workspace.put_file("/a.md", "one\n")
    seen = workspace.result("read", path="/a.md")["hash"]

    right = workspace.call("edit", path="/a.md", old_string="one", new_string="two", last_read_hash=seen)
    stale = workspace.call("edit", path="/a.md", old_string="two", new_string="three", last_read_hash=seen)

    assert right.status_code == 200
    refused(stale, 409, "CONFLICT")


def test_mv_imports_first_and_then_operates(workspace: Workspace) -> None:
    workspace.put_file("/a.md", "one\n")

    workspace.result("mv", source="/a.md", destination="/b.md")

    file_id = workspace.file_id("/b.md")
    assert [(v["author"]["kind"], v["path"]) for v in workspace.versions(file_id)] == [
        ("user", "/b.md"),
        ("external", "/a.md"),
    ]
    assert workspace.on_disk("/b.md").read_text() == "one\n"
    assert not workspace.on_disk("/a.md").exists()


def test_mv_imports_a_folder_on_disk_only(workspace: Workspace) -> None:
    workspace.put_file("/src/deep/a.md", "one\n")

    workspace.result("mv", source="/src", destination="/lib")

    assert workspace.file_id("/lib") == A_UUID
    assert workspace.result("read", path="/lib/deep/a.md")["content"] == "one\n"
    assert not workspace.on_disk("/src").exists()


def test_write_without_overwrite_keeps_a_file_on_disk_only(workspace: Workspace) -> None:
    workspace.put_file("/a.md", "theirs")

    response = workspace.call("write", path="/a.md", content="mine")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says("already exists")})
    assert workspace.on_disk("/a.md").read_text() == "theirs"


def test_overwriting_a_file_on_disk_only_keeps_its_content(workspace: Workspace) -> None:
    workspace.put_file("/a.md", "theirs")

    result = workspace.result("write", path="/a.md", content="mine", overwrite=True)

    assert workspace.history(result["file_id"]) == [("external", "theirs"), ("user", "mine")]


# Deletion


def test_rm_of_a_file_on_disk_only_can_be_undone(workspace: Workspace) -> None:
    workspace.put_file("/sub/a.bin", b"\0\1\2")

    result = workspace.result("rm", path="/sub/a.bin")

    assert result == {"path": "/sub/a.bin", "file_id": None}
    assert not workspace.on_disk("/sub/a.bin").exists()
    [deleted] = workspace.deleted()
    assert deleted["path"] == "/sub/a.bin"
    restored = result_of(workspace.post(f"/files/{deleted['file_id']}/restore", {}))
    assert restored["path"] == "/sub/a.bin"
    assert workspace.on_disk("/sub/a.bin").read_bytes() == b"\0\1\2"


def test_rm_of_a_synced_file_deletes_it_from_database_and_disk(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "x")["file_id"]

    assert workspace.result("rm", path="/a.md") == {"path": "/a.md", "file_id": file_id}
    assert not workspace.on_disk("/a.md").exists()
    assert workspace.names() == []
