"""``mkdir``: its request example and documented behaviour."""

import pytest

from tests.acceptance.shapes import A_UUID, Says, refused
from tests.acceptance.workspace import Workspace


def test_request_example(workspace: Workspace) -> None:
    result = workspace.result("mkdir", path="/docs/v1/api")

    assert result == {"path": "/docs/v1/api", "file_id": A_UUID}
    assert workspace.on_disk("/docs/v1/api").is_dir()
    [version] = workspace.versions(result["file_id"])
    assert (version["kind"], version["path"], version["author"]["kind"]) == ("folder", "/docs/v1/api", "user")


def test_recursive_all_parents_are_created(workspace: Workspace) -> None:
    workspace.result("mkdir", path="/a/b/c")

    entries = workspace.result("ls", recursive=True)["entries"]

    assert [(entry["path"], entry["file_type"], entry["synced"]) for entry in entries] == [
        ("/a", "Folder", True),
        ("/a/b", "Folder", True),
        ("/a/b/c", "Folder", True),
    ]


def test_idempotent_the_existing_folder_is_returned(workspace: Workspace) -> None:
    first = workspace.result("mkdir", path="/a/b")

    assert workspace.result("mkdir", path="/a/b") == first
    assert len(workspace.versions(first["file_id"])) == 1


def test_a_folder_that_write_created_already_has_an_id(workspace: Workspace) -> None:
    workspace.write("/a/b.md", "x")

    assert workspace.result("mkdir", path="/a") == {"path": "/a", "file_id": workspace.file_id("/a")}
    assert workspace.on_disk("/a/b.md").read_text() == "x"


def test_a_folder_on_disk_only_becomes_synced(workspace: Workspace) -> None:
    workspace.put_file("/a/b/c.md", "x")

    result = workspace.result("mkdir", path="/a/b")

    assert result == {"path": "/a/b", "file_id": A_UUID}
    assert result["file_id"] == workspace.file_id("/a/b")
    assert workspace.on_disk("/a/b/c.md").read_text() == "x"


@pytest.mark.parametrize("path", ["/a/file", "/a/file/b", "/a/file/b/c"])
@pytest.mark.parametrize("synced", [True, False])
def test_conflict_with_a_file_at_any_point_in_the_path(workspace: Workspace, path: str, synced: bool) -> None:
    if synced:
        workspace.write("/a/file", "x")
    else:
        workspace.put_file("/a/file", "x")

    refused(workspace.call("mkdir", path=path), 409, "CONFLICT", Says("/a/file"))
    assert workspace.on_disk("/a/file").read_text() == "x"


def test_path_is_required(workspace: Workspace) -> None:
    refused(
        workspace.call("mkdir"),
        400,
        "VALIDATION_ERROR",
        "Validation failed",
        fields={"path": "This field is required."},
    )


def test_a_deleted_folder_can_be_created_again(workspace: Workspace) -> None:
    workspace.result("mkdir", path="/a")
    workspace.result("rm", path="/a")

    workspace.result("mkdir", path="/a")

    assert workspace.names() == ["/a"]
    assert workspace.on_disk("/a").is_dir()
