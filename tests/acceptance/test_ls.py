"""``ls``: its request example and documented behaviour."""

from collections.abc import Callable

import pytest

from tests.acceptance.shapes import A_TIME, A_UUID, Says, moment, refused
from tests.acceptance.workspace import Workspace


def test_request_example(workspace: Workspace) -> None:
    workspace.write("/documents/report.md", "# Report\n")
    workspace.write("/documents/archive/2025.md", "old\n")

    result = workspace.result("ls", path="/documents", recursive=False, limit=100)

    assert result == {
        "path": "/documents",
        "entries": [
            {
                "id": A_UUID,
                "synced": True,
                "name": "archive",
                "display_name": "archive",
                "path": "/documents/archive",
                "file_type": "Folder",
                "is_virtual": False,
                "updated_at": A_TIME,
            },
            {
                "id": A_UUID,
                "synced": True,
                "name": "report.md",
                "display_name": "report.md",
                "path": "/documents/report.md",
                "file_type": "Document",
                "is_virtual": False,
                "updated_at": A_TIME,
            },
        ],
    }


def test_every_argument_is_optional(workspace: Workspace) -> None:
    workspace.write("/a.md", "")
    workspace.write("/sub/b.md", "")

    assert workspace.result("ls")["path"] == "/"
    assert workspace.names() == ["/sub", "/a.md"]


def test_non_recursive_mode_returns_immediate_children_only(workspace: Workspace) -> None:
    workspace.write("/docs/v1/api/index.md", "")
    workspace.write("/docs/readme.md", "")

    assert workspace.names(path="/docs") == ["/docs/v1", "/docs/readme.md"]


def test_recursive_mode_returns_all_descendants(workspace: Workspace) -> None:
    workspace.write("/docs/v1/api/index.md", "")
    workspace.write("/docs/readme.md", "")
    workspace.write("/docs-of-others/readme.md", "")

    assert workspace.names(path="/docs", recursive=True) == [
        "/docs/v1",
        "/docs/v1/api",
        "/docs/readme.md",
        "/docs/v1/api/index.md",
    ]


def test_folders_come_first_then_by_path(workspace: Workspace) -> None:
    for path in ("/b.md", "/z/x.md", "/a.md", "/c/x.md"):
        workspace.write(path, "")

    assert workspace.names(path="/") == ["/c", "/z", "/a.md", "/b.md"]


def test_default_limit_is_50_and_0_is_unlimited(workspace: Workspace) -> None:
    names = [f"/{number:03}.md" for number in range(60)]
    for name in names:
        workspace.put_file(name, "")

    assert workspace.names() == names[:50]
    assert workspace.names(limit=7) == names[:7]
    assert workspace.names(limit=0) == names


def test_limit_is_applied_after_merging_and_sorting(workspace: Workspace) -> None:
    workspace.write("/b.md", "")
    workspace.put_file("/a.md", "")
    workspace.put_file("/z/inner.md", "")

    entries = workspace.result("ls", limit=2)["entries"]

    assert [(entry["path"], entry["synced"]) for entry in entries] == [("/z", False), ("/a.md", False)]


def test_a_negative_limit_is_rejected(workspace: Workspace) -> None:
    refused(workspace.call("ls", limit=-1), 400, "VALIDATION_ERROR", "Validation failed", fields={"limit": Says("0")})


def test_directory_validation_rejects_a_file(workspace: Workspace) -> None:
    workspace.write("/a.md", "")

    response = workspace.call("ls", path="/a.md")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says("Not a folder", "/a.md")})


def test_a_folder_that_does_not_exist_is_not_found(workspace: Workspace) -> None:
    refused(workspace.call("ls", path="/nowhere"), 404, "NOT_FOUND", Says("/nowhere"))


def test_the_root_is_listed_as_a_slash_even_when_empty(workspace: Workspace) -> None:
    assert workspace.result("ls", path="/") == {"path": "/", "entries": []}


def test_a_deleted_file_is_not_listed(workspace: Workspace) -> None:
    workspace.write("/a.md", "")
    workspace.write("/b.md", "")
    workspace.result("rm", path="/a.md")

    assert workspace.names() == ["/b.md"]


def test_updated_at_follows_every_change(workspace: Workspace) -> None:
    workspace.write("/a.md", "one")
    [before] = workspace.result("ls")["entries"]

    workspace.result("edit", path="/a.md", old_string="one", new_string="two")

    [after] = workspace.result("ls")["entries"]
    assert after == {**before, "updated_at": A_TIME}
    assert moment(after["updated_at"]) > moment(before["updated_at"])


def test_is_virtual_identifies_system_managed_files(workspace: Workspace, chat: Callable[[str], str]) -> None:
    path = chat("Release notes")
    workspace.write("/a.md", "")

    entries = workspace.result("ls", recursive=True)["entries"]

    assert [(entry["path"], entry["display_name"], entry["is_virtual"]) for entry in entries] == [
        ("/chats", "chats", True),
        ("/a.md", "a.md", False),
        (path, "Release notes", True),
    ]
    assert workspace.names() == ["/chats", "/a.md"]
    assert workspace.names(path="/chats") == [path]
    assert [entry["file_type"] for entry in entries] == ["Folder", "Document", "Chat"]


def test_agents_are_files(workspace: Workspace) -> None:
    definition = "trust: supervised\n# A comment"
    agent = workspace.post("/agents", {"name": "reviewer", "definition": definition}).json()["id"]
    path = f"/agents/{agent}.agent"

    [folder, entry] = workspace.result("ls", recursive=True)["entries"]

    assert (folder["path"], entry["path"], entry["display_name"]) == ("/agents", path, "reviewer")
    assert (entry["file_type"], entry["is_virtual"]) == ("Agent", True)
    assert workspace.result("read", path=path)["content"] == definition
    info = workspace.result("file_info", path=path)
    assert (info["size"], info["line_count"]) == (len(definition), 2)
    deleted = workspace.http.delete(f"/workspaces/{workspace.id}/agents/{agent}", headers=workspace.headers)
    assert deleted.status_code == 204
    assert workspace.names() == []


def test_a_chat_follows_its_session(workspace: Workspace, chat: Callable[[str], str]) -> None:
    path = chat("first")
    session = f"/workspaces/{workspace.id}/sessions/{path.removeprefix('/chats/').removesuffix('.chat')}"

    renamed = workspace.http.patch(session, json={"title": "second"}, headers=workspace.headers)
    assert renamed.status_code == 200
    assert workspace.result("read", path=path)["content"] == "# second\n\n"
    assert [entry["display_name"] for entry in workspace.result("ls", path="/chats")["entries"]] == ["second"]
    assert workspace.http.delete(session, headers=workspace.headers).status_code == 204
    refused(workspace.call("read", path=path), 404, "NOT_FOUND", Says(path))
    refused(workspace.call("ls", path="/chats"), 404, "NOT_FOUND", Says("/chats"))
    assert workspace.names() == []


@pytest.mark.parametrize("type_", ["document", "canvas", "chat", "whiteboard", "agent", "skill", "plan"])
def test_file_types_are_capitalised(workspace: Workspace, type_: str) -> None:
    workspace.result("write", path="/a", content="x", file_type=type_)

    [entry] = workspace.result("ls")["entries"]

    assert entry["file_type"] == type_.capitalize()
