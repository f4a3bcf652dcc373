"""``mv``: its request examples and documented behaviour."""

from collections.abc import Callable

import pytest

from tests.acceptance.shapes import Says, refused
from tests.acceptance.workspace import Workspace


def test_request_example_rename(workspace: Workspace) -> None:
    file_id = workspace.write("/documents/old-name.md", "x")["file_id"]

    result = workspace.result("mv", source="/documents/old-name.md", destination="/documents/new-name.md")

    assert result == {"from_path": "/documents/old-name.md", "to_path": "/documents/new-name.md"}
    assert not workspace.on_disk("/documents/old-name.md").exists()
    assert workspace.on_disk("/documents/new-name.md").read_text() == "x"
    assert workspace.file_id("/documents/new-name.md") == file_id
    assert [version["path"] for version in workspace.versions(file_id)] == [
        "/documents/new-name.md",
        "/documents/old-name.md",
    ]


def test_request_example_move_to_directory(workspace: Workspace) -> None:
    file_id = workspace.write("/file.txt", "x")["file_id"]
    workspace.result("mkdir", path="/archive")

    result = workspace.result("mv", source="/file.txt", destination="/archive/")

    assert result == {"from_path": "/file.txt", "to_path": "/archive/file.txt"}
    assert not workspace.on_disk("/file.txt").exists()
    assert workspace.on_disk("/archive/file.txt").read_text() == "x"
    assert workspace.file_id("/archive/file.txt") == file_id


def test_destination_as_directory_without_a_trailing_slash(workspace: Workspace) -> None:
    workspace.write("/file.txt", "x")
    workspace.result("mkdir", path="/archive")

    result = workspace.result("mv", source="/file.txt", destination="/archive")

    assert result == {"from_path": "/file.txt", "to_path": "/archive/file.txt"}


def test_destination_may_be_a_folder_on_disk_only(workspace: Workspace) -> None:
    workspace.write("/file.txt", "x")
    workspace.on_disk("/archive").mkdir()

    workspace.result("mv", source="/file.txt", destination="/archive/")

    assert workspace.on_disk("/archive/file.txt").read_text() == "x"


def test_a_file_moves_to_the_root(workspace: Workspace) -> None:
    workspace.write("/deep/down/file.txt", "x")

    result = workspace.result("mv", source="/deep/down/file.txt", destination="/")

    assert result == {"from_path": "/deep/down/file.txt", "to_path": "/file.txt"}
    assert workspace.on_disk("/file.txt").read_text() == "x"


def test_validation_a_missing_source_is_not_found(workspace: Workspace) -> None:
    refused(workspace.call("mv", source="/nope.md", destination="/b.md"), 404, "NOT_FOUND", "File not found: /nope.md")


@pytest.mark.parametrize(
    ("destination", "taken"), [("/b.md", "/b.md"), ("/folder/", "/folder/a.md"), ("/folder", "/folder/a.md")]
)
@pytest.mark.parametrize("synced", [True, False])
def test_conflict_an_existing_destination_is_not_overwritten(
    workspace: Workspace, destination: str, taken: str, synced: bool
) -> None:
    workspace.write("/a.md", "mine")
    if synced:
        workspace.write(taken, "theirs")
    else:
        workspace.put_file(taken, "theirs")

    refused(workspace.call("mv", source="/a.md", destination=destination), 409, "CONFLICT", Says("exists", taken))
    assert workspace.on_disk("/a.md").read_text() == "mine"
    assert workspace.on_disk(taken).read_text() == "theirs"


def test_conflict_a_file_is_not_moved_onto_itself(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "x")["file_id"]

    refused(workspace.call("mv", source="/a.md", destination="/a.md"), 409, "CONFLICT", Says("/a.md"))
    assert len(workspace.versions(file_id)) == 1


@pytest.mark.parametrize("destination", ["/nowhere/b.md", "/nowhere/", "/file.txt/", "/file.txt/b.md"])
def test_parent_validation_the_folder_must_exist(workspace: Workspace, destination: str) -> None:
    workspace.write("/a.md", "x")
    workspace.write("/file.txt", "y")

    response = workspace.call("mv", source="/a.md", destination=destination)

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"destination": Says("Folder not found")})
    assert workspace.names() == ["/a.md", "/file.txt"]


def test_a_folder_moves_with_its_contents(workspace: Workspace) -> None:
    inner = workspace.write("/src/deep/a.md", "a")["file_id"]
    folder = workspace.file_id("/src")
    workspace.put_file("/src/on-disk-only.md", "b")
    workspace.result("mkdir", path="/lib")

    result = workspace.result("mv", source="/src", destination="/lib/")

    assert result == {"from_path": "/src", "to_path": "/lib/src"}
    assert not workspace.on_disk("/src").exists()
    assert workspace.names(recursive=True) == [
        "/lib",
        "/lib/src",
        "/lib/src/deep",
        "/lib/src/deep/a.md",
        "/lib/src/on-disk-only.md",
    ]
    assert workspace.file_id("/lib/src") == folder
    assert workspace.file_id("/lib/src/deep/a.md") == inner
    assert workspace.result("read", path="/lib/src/deep/a.md")["content"] == "a"
    assert workspace.result("read", path="/lib/src/on-disk-only.md")["content"] == "b"


@pytest.mark.parametrize("destination", ["/a/b", "/a/", "/a", "/a/b/c"])
def test_a_folder_is_not_moved_into_itself(workspace: Workspace, destination: str) -> None:
    workspace.write("/a/b/x.md", "x")

    refused(workspace.call("mv", source="/a", destination=destination), 409, "CONFLICT", Says("/a"))
    assert workspace.on_disk("/a/b/x.md").read_text() == "x"


def test_the_root_is_not_moved(workspace: Workspace) -> None:
    workspace.result("mkdir", path="/a")

    response = workspace.call("mv", source="/", destination="/a/")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"source": Says("root")})


def test_a_virtual_file_is_not_moved(workspace: Workspace, chat: Callable[[str], str]) -> None:
    path = chat("hello")

    for source in (path, "/chats"):
        response = workspace.call("mv", source=source, destination="/b.chat")
        refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"source": Says(source)})


def test_nothing_is_moved_onto_a_virtual_file(workspace: Workspace, chat: Callable[[str], str]) -> None:
    path = chat("hello")
    workspace.write("/a.md", "x")

    for destination in (path, "/chats"):
        response = workspace.call("mv", source="/a.md", destination=destination)
        refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"destination": Says("/chats", "mkdir")})
    workspace.result("mkdir", path="/chats")
    refused(workspace.call("mv", source="/a.md", destination=path), 409, "CONFLICT", Says("already exists"))
    workspace.result("mv", source="/a.md", destination="/chats")

    assert workspace.names(path="/chats") == [path, "/chats/a.md"]


def test_source_and_destination_are_required(workspace: Workspace) -> None:
    refused(
        workspace.call("mv"),
        400,
        "VALIDATION_ERROR",
        "Validation failed",
        fields={"source": "This field is required.", "destination": "This field is required."},
    )


def test_the_old_path_is_free_again(workspace: Workspace) -> None:
    first = workspace.write("/a.md", "first")["file_id"]
    workspace.result("mv", source="/a.md", destination="/b.md")

    second = workspace.write("/a.md", "second")["file_id"]

    assert second != first
    assert workspace.history(first) == [("user", "first"), ("user", "first")]
