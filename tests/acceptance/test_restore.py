"""Restoring over HTTP: an earlier version of a file, or a deleted file. It loses nothing."""

from typing import Any

import pytest

from tests.acceptance.shapes import A_UUID, Says, refused, result_of, sha256_of
from tests.acceptance.workspace import Workspace


def restore(workspace: Workspace, file_id: str, version_id: str | None = None) -> Any:
    return result_of(workspace.post(f"/files/{file_id}/restore", {"version_id": version_id}))


def test_an_earlier_version_is_restored_as_a_new_one(workspace: Workspace) -> None:
    first = workspace.write("/a.md", "one\n")
    second = workspace.result("write", path="/a.md", content="two\n", overwrite=True)

    restored = restore(workspace, first["file_id"], first["version_id"])

    assert restored == {
        "path": "/a.md",
        "file_id": first["file_id"],
        "version_id": A_UUID,
        "restored_version_id": first["version_id"],
        "hash": sha256_of("one\n"),
    }
    assert restored["version_id"] not in (first["version_id"], second["version_id"])
    assert workspace.on_disk("/a.md").read_text() == "one\n"
    assert workspace.history(first["file_id"]) == [("user", "one\n"), ("user", "two\n"), ("user", "one\n")]


def test_a_json_value_is_restored_as_a_value(workspace: Workspace) -> None:
    first = workspace.write("/a.canvas", {"version": 1})
    workspace.result("write", path="/a.canvas", content="text", overwrite=True)

    restore(workspace, first["file_id"], first["version_id"])

    assert workspace.result("read", path="/a.canvas")["content"] == {"version": 1}


def test_a_restored_version_keeps_the_files_current_path(workspace: Workspace) -> None:
    first = workspace.write("/a.md", "one\n")
    workspace.result("write", path="/a.md", content="two\n", overwrite=True)
    workspace.result("mv", source="/a.md", destination="/b.md")

    assert restore(workspace, first["file_id"], first["version_id"])["path"] == "/b.md"
    assert workspace.names() == ["/b.md"]
    assert workspace.on_disk("/b.md").read_text() == "one\n"


def test_deleted_files_are_listed_latest_first(workspace: Workspace) -> None:
    a = workspace.write("/a.md", "x")["file_id"]
    b = workspace.write("/b.md", "y")["file_id"]
    workspace.write("/c.md", "z")
    workspace.result("rm", path="/b.md")
    workspace.result("rm", path="/a.md")

    assert [(file["file_id"], file["path"], file["deleted"]) for file in workspace.deleted()] == [
        (a, "/a.md", True),
        (b, "/b.md", True),
    ]
    assert len(result_of(workspace.get("/deleted-files", limit=1))["files"]) == 1


def test_a_deleted_file_is_restored_completely(workspace: Workspace) -> None:
    written = workspace.write("/sub/a.md", "one\n")
    workspace.on_disk("/sub/a.md").chmod(0o755)
    workspace.result("rm", path="/sub/a.md")

    restored = restore(workspace, written["file_id"])

    assert restored["path"] == "/sub/a.md"
    assert restored["hash"] == written["hash"]
    on_disk = workspace.on_disk("/sub/a.md")
    assert (on_disk.read_text(), on_disk.stat().st_mode & 0o777) == ("one\n", 0o755)
    assert workspace.deleted() == []
    assert workspace.file_id("/sub/a.md") == written["file_id"]


def test_a_deleted_file_is_restored_at_an_earlier_version(workspace: Workspace) -> None:
    first = workspace.write("/a.md", "one\n")
    workspace.result("write", path="/a.md", content="two\n", overwrite=True)
    workspace.result("rm", path="/a.md")

    restore(workspace, first["file_id"], first["version_id"])

    assert workspace.on_disk("/a.md").read_text() == "one\n"


def test_the_folders_of_a_restored_file_are_created_again(workspace: Workspace) -> None:
    file_id = workspace.write("/a/b/c.md", "x")["file_id"]
    for path in ("/a/b/c.md", "/a/b", "/a"):
        workspace.result("rm", path=path)

    restore(workspace, file_id)

    assert workspace.names(recursive=True) == ["/a", "/a/b", "/a/b/c.md"]


def test_a_deleted_folder_is_restored(workspace: Workspace) -> None:
    folder_id = workspace.result("mkdir", path="/a")["file_id"]
    workspace.result("rm", path="/a")

    assert restore(workspace, folder_id)["hash"] is None
    assert workspace.on_disk("/a").is_dir()
    assert workspace.file_id("/a") == folder_id


@pytest.mark.parametrize("synced", [True, False])
def test_restoring_to_an_occupied_path_is_a_conflict(workspace: Workspace, synced: bool) -> None:
    file_id = workspace.write("/a.md", "old")["file_id"]
    workspace.result("rm", path="/a.md")
    if synced:
        workspace.write("/a.md", "new")
    else:
        workspace.put_file("/a.md", "new")

    refused(workspace.post(f"/files/{file_id}/restore", {}), 409, "CONFLICT", Says("/a.md"))
    assert workspace.on_disk("/a.md").read_text() == "new"


def test_a_file_that_is_not_deleted_needs_a_version_to_restore(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "x")["file_id"]

    response = workspace.post(f"/files/{file_id}/restore", {})

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"version_id": Says("not deleted")})


def test_a_version_of_another_file_is_rejected(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "a")["file_id"]
    other = workspace.write("/b.md", "b")["version_id"]

    response = workspace.post(f"/files/{file_id}/restore", {"version_id": other})

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"version_id": Says("another file")})


def test_a_deletion_cannot_be_restored(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "x")["file_id"]
    workspace.result("rm", path="/a.md")
    deletion = workspace.versions(file_id)[0]["version_id"]

    response = workspace.post(f"/files/{file_id}/restore", {"version_id": deletion})

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"version_id": Says("deletion")})
