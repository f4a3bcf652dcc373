"""``write``: its request examples and documented behaviour."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.pending_approvals import decide, ended, hire
from tests.acceptance.shapes import A_TIME, A_UUID, Says, refused, sha256_of
from tests.acceptance.workspace import Someone, Workspace


def test_request_example_create_new_file(workspace: Workspace) -> None:
    content = "# My Notes\n\nCreated via Tools API"

    result = workspace.result("write", path="/documents/notes.md", content=content, file_type="document")

    assert result == {
        "path": "/documents/notes.md",
        "file_id": A_UUID,
        "version_id": A_UUID,
        "hash": sha256_of(content),
    }
    assert workspace.on_disk("/documents/notes.md").read_text() == content
    assert [v["version_id"] for v in workspace.versions(result["file_id"])] == [result["version_id"]]


def test_request_example_create_file_with_json_object(workspace: Workspace) -> None:
    content = {"elements": [], "version": 1}

    result = workspace.result("write", path="/dashboards/main.canvas", content=content, file_type="canvas")

    on_disk = workspace.on_disk("/dashboards/main.canvas")
    assert result == {
        "path": "/dashboards/main.canvas",
        "file_id": A_UUID,
        "version_id": A_UUID,
        "hash": sha256_of(on_disk),
    }
    assert on_disk.read_text() == '{\n  "elements": [],\n  "version": 1\n}\n'
    assert workspace.result("read", path="/dashboards/main.canvas")["content"] == content
    assert workspace.result("file_info", path="/dashboards/main.canvas")["file_type"] == "canvas"
    assert workspace.history(result["file_id"]) == [("user", content)]


def test_binary_content_is_written_as_read_returns_it(workspace: Workspace) -> None:
    body = b"PK\x03\x04\x00\xff"
    workspace.put_file("/old.zip", body)
    content = workspace.result("read", path="/old.zip")["content"]
    agent = hire(workspace)

    asked = agent.asks(path="/new.zip", content=content)

    [change] = workspace.get(f"/paused-calls/{asked['pause_id']}").json()["changes"]
    assert (change["path"], change["no_diff"], change["after"]["size"]) == ("/new.zip", "binary", 6)
    decide(workspace, asked["pause_id"])
    assert ended(agent.workspace, asked["call_id"])["result"]["hash"] == sha256_of(body)
    # Reading waits until what was committed is on disk.
    assert workspace.result("read", path="/new.zip")["content"] == content
    assert workspace.on_disk("/new.zip").read_bytes() == body


def test_invalid_base64_is_refused(workspace: Workspace) -> None:
    answer = workspace.call("write", path="/a.zip", content={"encoding": "base64", "data": "!"})

    refused(answer, 400, "VALIDATION_ERROR", fields={"content": Says("base64")})


def test_request_example_overwrite_existing_file(workspace: Workspace) -> None:
    first = workspace.write("/documents/notes.md", "# My Notes\n")
    content = "# Completely Replaced Content\n\nThis replaces the entire file"

    result = workspace.result("write", path="/documents/notes.md", content=content, overwrite=True)

    assert result == {
        "path": "/documents/notes.md",
        "file_id": first["file_id"],
        "version_id": A_UUID,
        "hash": sha256_of(content),
    }
    assert result["version_id"] != first["version_id"]
    assert workspace.on_disk("/documents/notes.md").read_text() == content
    assert workspace.history(result["file_id"]) == [("user", "# My Notes\n"), ("user", content)]


def test_error_example_file_exists_without_overwrite(workspace: Workspace) -> None:
    first = workspace.write("/documents/notes.md", "# My Notes\n")

    response = workspace.call("write", path="/documents/notes.md", content="other")

    refused(
        response,
        400,
        "VALIDATION_ERROR",
        "Validation failed",
        fields={
            "path": "File already exists: /documents/notes.md. To overwrite, set overwrite=true. However, for "
            "modifying existing files, the 'edit' tool is recommended instead of overwriting."
        },
    )
    assert workspace.on_disk("/documents/notes.md").read_text() == "# My Notes\n"
    assert len(workspace.versions(first["file_id"])) == 1


def test_overwrite_of_a_file_that_does_not_exist_creates_it(workspace: Workspace) -> None:
    workspace.result("write", path="/a.md", content="x", overwrite=True)

    assert workspace.on_disk("/a.md").read_text() == "x"


def test_nested_folders_are_created(workspace: Workspace) -> None:
    workspace.write("/a/b/c/d.md", "x")

    entries = workspace.result("ls", recursive=True)["entries"]

    assert [(entry["path"], entry["file_type"], entry["synced"]) for entry in entries] == [
        ("/a", "Folder", True),
        ("/a/b", "Folder", True),
        ("/a/b/c", "Folder", True),
        ("/a/b/c/d.md", "Document", True),
    ]
    assert workspace.on_disk("/a/b/c").is_dir()


@pytest.mark.parametrize(
    ("content", "on_disk"),
    [
        ("text", "text"),
        ("", ""),
        ('{"a": 1}', '{"a": 1}'),
        (5, "5\n"),
        (1.5, "1.5\n"),
        (True, "true\n"),
        (None, "null\n"),
        ([], "[]\n"),
        ({"ü": ["漢"]}, '{\n  "ü": [\n    "漢"\n  ]\n}\n'),
    ],
)
def test_content_can_be_any_json_value(workspace: Workspace, content: Any, on_disk: str) -> None:
    result = workspace.write("/a", content)

    assert workspace.on_disk("/a").read_text() == on_disk
    assert result["hash"] == sha256_of(on_disk)
    assert workspace.result("read", path="/a")["content"] == content


@pytest.mark.parametrize("type_", ["document", "canvas", "chat", "whiteboard", "agent", "skill", "plan"])
def test_file_types_are_accepted(workspace: Workspace, type_: str) -> None:
    workspace.result("write", path="/a", content="x", file_type=type_)

    assert workspace.result("file_info", path="/a")["file_type"] == type_


def test_file_type_defaults_to_document(workspace: Workspace) -> None:
    workspace.result("write", path="/a", content="x")

    assert workspace.result("file_info", path="/a")["file_type"] == "document"


def test_an_unknown_file_type_is_rejected(workspace: Workspace) -> None:
    response = workspace.call("write", path="/a", content="x", file_type="video")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"file_type": Says("document", "canvas")})
    assert not workspace.on_disk("/a").exists()


def test_mkdir_and_not_write_creates_a_folder(workspace: Workspace) -> None:
    response = workspace.call("write", path="/a", content={}, file_type="folder")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"file_type": Says("mkdir")})
    assert not workspace.on_disk("/a").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_folder_protection(workspace: Workspace, overwrite: bool) -> None:
    workspace.write("/folder/inner.md", "x")

    response = workspace.call("write", path="/folder", content="text", overwrite=overwrite)

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says("folder", "/folder")})
    assert workspace.on_disk("/folder/inner.md").read_text() == "x"


def test_nothing_is_written_below_a_file(workspace: Workspace) -> None:
    workspace.write("/a.md", "x")

    refused(workspace.call("write", path="/a.md/b.md", content="y"), 409, "CONFLICT", Says("/a.md"))


def test_virtual_file_protection(workspace: Workspace, chat: Callable[[str], str]) -> None:
    path = chat("hello")

    for refusing in (path, "/chats"):
        response = workspace.call("write", path=refusing, content="mine", overwrite=True)
        refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says(refusing)})
    response = workspace.call("touch", path=path)
    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says(path)})

    assert not workspace.on_disk("/chats").exists()
    assert workspace.result("read", path=path)["content"] == "# hello\n\n"


def test_a_real_file_may_exist_beside_virtual_ones(workspace: Workspace, chat: Callable[[str], str]) -> None:
    path = chat("hello")

    workspace.write("/chats/notes.md", "mine")

    assert workspace.on_disk("/chats/notes.md").read_text() == "mine"
    assert workspace.names(recursive=True) == ["/chats", path, "/chats/notes.md"]
    [folder, *_] = workspace.result("ls")["entries"]
    assert (folder["path"], folder["is_virtual"]) == ("/chats", False)


def test_path_and_content_are_required(workspace: Workspace) -> None:
    response = workspace.call("write", file_type="document")

    refused(
        response,
        400,
        "VALIDATION_ERROR",
        "Validation failed",
        fields={"path": "This field is required.", "content": "This field is required."},
    )


def test_every_write_is_a_version_by_its_author(workspace: Workspace, ada: Someone) -> None:
    file_id = workspace.write("/a.md", "one\n")["file_id"]
    workspace.result("write", path="/a.md", content="one\ntwo\n", overwrite=True)

    newest, oldest = workspace.versions(file_id)

    assert newest == {
        "version_id": A_UUID,
        "file_id": file_id,
        "number": oldest["number"] + 1,
        "change_set_id": A_UUID,
        "path": "/a.md",
        "kind": "file",
        "deleted": False,
        "size": 8,
        "line_count": 2,
        "mode": "0644",
        "hash": sha256_of("one\ntwo\n"),
        "author": {"kind": "user", "user_id": ada.id, "agent_id": None, "run_id": None, "call_id": A_UUID},
        "created_at": A_TIME,
    }
    assert oldest["hash"] == sha256_of("one\n")


def test_the_same_content_again_is_a_version_too(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "same")["file_id"]

    workspace.result("write", path="/a.md", content="same", overwrite=True)

    assert workspace.history(file_id) == [("user", "same"), ("user", "same")]


def test_a_deleted_file_does_not_block_its_path(workspace: Workspace) -> None:
    old = workspace.write("/a.md", "old")["file_id"]
    workspace.result("rm", path="/a.md")

    new = workspace.write("/a.md", "new")["file_id"]

    assert new != old
    assert workspace.history(old) == [("user", "old"), ("user", None)]
    assert workspace.history(new) == [("user", "new")]
