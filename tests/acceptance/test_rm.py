"""``rm``: its request example and documented behaviour."""

from collections.abc import Callable

from tests.acceptance.shapes import A_UUID, Says, refused
from tests.acceptance.workspace import Workspace


def test_request_example(workspace: Workspace) -> None:
    file_id = workspace.write("/documents/old-report.md", "old\n")["file_id"]

    result = workspace.result("rm", path="/documents/old-report.md")

    assert result == {"path": "/documents/old-report.md", "file_id": file_id}
    assert not workspace.on_disk("/documents/old-report.md").exists()
    assert workspace.history(file_id) == [("user", "old\n"), ("user", None)]


def test_a_deleted_file_stays_in_the_database(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "x")["file_id"]

    workspace.result("rm", path="/a.md")

    [deleted] = workspace.deleted()
    assert (deleted["file_id"], deleted["path"], deleted["deleted"]) == (file_id, "/a.md", True)


def test_filesystem_only_files_are_deleted_with_file_id_null(workspace: Workspace) -> None:
    file = workspace.put_file("/a.md", "x")

    assert workspace.result("rm", path="/a.md") == {"path": "/a.md", "file_id": None}
    assert not file.exists()


def test_an_empty_folder_is_deleted(workspace: Workspace) -> None:
    folder_id = workspace.result("mkdir", path="/a/b")["file_id"]

    assert workspace.result("rm", path="/a/b") == {"path": "/a/b", "file_id": folder_id}
    assert not workspace.on_disk("/a/b").exists()
    assert workspace.on_disk("/a").is_dir()


def test_an_empty_folder_on_disk_only_is_deleted(workspace: Workspace) -> None:
    workspace.on_disk("/a").mkdir()

    assert workspace.result("rm", path="/a") == {"path": "/a", "file_id": None}
    assert not workspace.on_disk("/a").exists()


def test_folder_protection_a_folder_with_children_is_a_conflict(workspace: Workspace) -> None:
    workspace.write("/a/b.md", "x")

    refused(workspace.call("rm", path="/a"), 409, "CONFLICT", Says("not empty", "/a"))
    assert workspace.on_disk("/a/b.md").read_text() == "x"


def test_folder_protection_a_folder_with_a_file_further_down_is_a_conflict(workspace: Workspace) -> None:
    workspace.write("/a/b/c/d.md", "x")

    refused(workspace.call("rm", path="/a"), 409, "CONFLICT", Says("not empty", "/a"))


def test_folder_protection_counts_files_on_disk_only(workspace: Workspace) -> None:
    workspace.result("mkdir", path="/a")
    file = workspace.put_file("/a/b.md", "x")

    refused(workspace.call("rm", path="/a"), 409, "CONFLICT", Says("not empty", "/a"))
    assert file.read_text() == "x"


def test_folder_protection_counts_virtual_files(workspace: Workspace, chat: Callable[[str], str]) -> None:
    chat("hello")
    workspace.result("mkdir", path="/chats")

    refused(workspace.call("rm", path="/chats"), 409, "CONFLICT", Says("not empty", "/chats"))


def test_a_folder_can_be_deleted_once_its_children_are(workspace: Workspace) -> None:
    workspace.write("/a/b.md", "x")
    workspace.result("rm", path="/a/b.md")

    workspace.result("rm", path="/a")

    assert workspace.names() == []
    assert not workspace.on_disk("/a").exists()


def test_a_sibling_with_the_same_prefix_does_not_block_deletion(workspace: Workspace) -> None:
    workspace.result("mkdir", path="/a")
    workspace.write("/ab/c.md", "x")

    assert workspace.call("rm", path="/a").status_code == 200


def test_not_found_error(workspace: Workspace) -> None:
    refused(workspace.call("rm", path="/nope.md"), 404, "NOT_FOUND", "File not found: /nope.md")


def test_a_deleted_path_cannot_be_deleted_again(workspace: Workspace) -> None:
    workspace.write("/a.md", "x")
    workspace.result("rm", path="/a.md")

    refused(workspace.call("rm", path="/a.md"), 404, "NOT_FOUND", "File not found: /a.md")


def test_the_root_cannot_be_deleted(workspace: Workspace) -> None:
    refused(workspace.call("rm", path="/"), 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says("root")})


def test_a_virtual_file_is_not_deleted(workspace: Workspace, chat: Callable[[str], str]) -> None:
    path = chat("hello")

    for refusing in (path, "/chats"):
        response = workspace.call("rm", path=refusing)
        refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says(refusing)})

    assert workspace.names(recursive=True) == ["/chats", path]


def test_recovery_through_the_files_api(workspace: Workspace) -> None:
    workspace.write("/a.md", "x")
    file_id = workspace.result("rm", path="/a.md")["file_id"]

    restored = workspace.post(f"/files/{file_id}/restore", {})

    assert restored.status_code == 200
    assert workspace.result("read", path="/a.md")["content"] == "x"
    assert workspace.file_id("/a.md") == file_id == A_UUID
