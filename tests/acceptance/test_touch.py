"""``touch``: its request examples and documented behaviour."""

import os

from tests.acceptance.shapes import A_UUID, moment, refused, sha256_of
from tests.acceptance.workspace import Workspace


def test_request_example_create_new_file(workspace: Workspace) -> None:
    result = workspace.result("touch", path="/documents/placeholder.txt")

    assert result == {"path": "/documents/placeholder.txt", "file_id": A_UUID}
    assert workspace.on_disk("/documents/placeholder.txt").read_bytes() == b""
    assert workspace.history(result["file_id"]) == [("user", "")]


def test_request_example_update_timestamp(workspace: Workspace) -> None:
    written = workspace.write("/documents/existing-file.txt", "content\n")
    before = workspace.result("file_info", path="/documents/existing-file.txt")

    result = workspace.result("touch", path="/documents/existing-file.txt")

    assert result == {"path": "/documents/existing-file.txt", "file_id": written["file_id"]}
    after = workspace.result("file_info", path="/documents/existing-file.txt")
    assert moment(after["updated_at"]) > moment(before["updated_at"])
    assert {**after, "updated_at": None} == {**before, "updated_at": None}


def test_existing_content_is_unchanged(workspace: Workspace) -> None:
    workspace.write("/a.canvas", {"elements": []})
    on_disk = workspace.on_disk("/a.canvas").read_bytes()

    workspace.result("touch", path="/a.canvas")

    assert workspace.on_disk("/a.canvas").read_bytes() == on_disk
    assert workspace.result("read", path="/a.canvas")["content"] == {"elements": []}
    assert workspace.result("read", path="/a.canvas")["hash"] == sha256_of(on_disk)


def test_the_mtime_on_disk_is_updated_too(workspace: Workspace) -> None:
    written = workspace.write("/a.md", "x")
    os.utime(workspace.on_disk("/a.md"), (1_000_000_000, 1_000_000_000))

    workspace.result("touch", path="/a.md")

    assert workspace.on_disk("/a.md").stat().st_mtime > 1_000_000_000
    assert workspace.history(written["file_id"]) == [("user", "x"), ("user", "x")]


def test_recursive_missing_parents_are_created(workspace: Workspace) -> None:
    workspace.result("touch", path="/a/b/c.txt")

    assert workspace.names(recursive=True) == ["/a", "/a/b", "/a/b/c.txt"]


def test_file_type_of_a_new_file_is_document(workspace: Workspace) -> None:
    workspace.result("touch", path="/a.canvas")

    info = workspace.result("file_info", path="/a.canvas")
    assert (info["file_type"], info["size"], info["line_count"]) == ("document", 0, 0)
    assert workspace.result("read", path="/a.canvas")["content"] == ""


def test_directories_are_not_created(workspace: Workspace) -> None:
    workspace.result("touch", path="/not-a-folder/")

    assert workspace.on_disk("/not-a-folder").is_file()


def test_a_file_on_disk_only_becomes_synced(workspace: Workspace) -> None:
    workspace.put_file("/a.md", "external\n")

    file_id = workspace.result("touch", path="/a.md")["file_id"]

    assert workspace.history(file_id) == [("external", "external\n"), ("user", "external\n")]


def test_path_is_required(workspace: Workspace) -> None:
    refused(
        workspace.call("touch"),
        400,
        "VALIDATION_ERROR",
        "Validation failed",
        fields={"path": "This field is required."},
    )
