"""The cURL examples of the guide's "Code Examples", each under its own name."""

from tests.acceptance.shapes import A_TIME, A_UUID, Says, refused, sha256_of
from tests.acceptance.workspace import Workspace

THOUGHTS = "# My Thoughts\n\nThis is a new file."


def test_list_root_directory(workspace: Workspace) -> None:
    workspace.write("/notes/thoughts.md", THOUGHTS)

    result = workspace.result("ls", path="/", recursive=False)

    assert result == {
        "path": "/",
        "entries": [
            {
                "id": A_UUID,
                "synced": True,
                "name": "notes",
                "display_name": "notes",
                "path": "/notes",
                "file_type": "Folder",
                "is_virtual": False,
                "updated_at": A_TIME,
            }
        ],
    }


def test_create_a_new_file(workspace: Workspace) -> None:
    result = workspace.result("write", path="/notes/thoughts.md", content=THOUGHTS)

    assert result == {
        "path": "/notes/thoughts.md",
        "file_id": A_UUID,
        "version_id": A_UUID,
        "hash": sha256_of(THOUGHTS),
    }
    assert workspace.on_disk("/notes/thoughts.md").read_text() == THOUGHTS


def test_read_file_contents(workspace: Workspace) -> None:
    workspace.write("/notes/thoughts.md", THOUGHTS)

    result = workspace.result("read", path="/notes/thoughts.md")

    assert result == {
        "path": "/notes/thoughts.md",
        "content": THOUGHTS,
        "hash": sha256_of(workspace.on_disk("/notes/thoughts.md")),
        "synced": True,
        "total_lines": 3,
        "truncated": False,
        "offset": 0,
        "limit": 500,
    }


def test_update_file_new_version_needs_overwrite(workspace: Workspace) -> None:
    first = workspace.write("/notes/thoughts.md", THOUGHTS)
    updated = "# Updated Thoughts\n\nThis is the updated content."

    as_shown = workspace.call("write", path="/notes/thoughts.md", content=updated)
    with_overwrite = workspace.result("write", path="/notes/thoughts.md", content=updated, overwrite=True)

    refused(
        as_shown,
        400,
        "VALIDATION_ERROR",
        "Validation failed",
        fields={"path": Says("File already exists: /notes/thoughts.md", "overwrite=true")},
    )
    assert with_overwrite == {
        "path": "/notes/thoughts.md",
        "file_id": first["file_id"],
        "version_id": A_UUID,
        "hash": sha256_of(updated),
    }
    assert workspace.history(first["file_id"]) == [("user", THOUGHTS), ("user", updated)]


def test_delete_file(workspace: Workspace) -> None:
    file_id = workspace.write("/notes/thoughts.md", THOUGHTS)["file_id"]

    result = workspace.result("rm", path="/notes/thoughts.md")

    assert result == {"path": "/notes/thoughts.md", "file_id": file_id}
    assert not workspace.on_disk("/notes/thoughts.md").exists()


def test_move_rename_file(workspace: Workspace) -> None:
    workspace.write("/notes/thoughts.md", THOUGHTS)
    workspace.result("mkdir", path="/docs")

    result = workspace.result("mv", source="/notes/thoughts.md", destination="/docs/thoughts.md")

    assert result == {"from_path": "/notes/thoughts.md", "to_path": "/docs/thoughts.md"}
    assert workspace.on_disk("/docs/thoughts.md").read_text() == THOUGHTS
    assert not workspace.on_disk("/notes/thoughts.md").exists()


def test_touch_file_update_timestamp_or_create(workspace: Workspace) -> None:
    created = workspace.result("touch", path="/notes/placeholder.txt")
    updated = workspace.result("touch", path="/notes/placeholder.txt")

    assert created == updated == {"path": "/notes/placeholder.txt", "file_id": A_UUID}
    assert workspace.on_disk("/notes/placeholder.txt").read_bytes() == b""
