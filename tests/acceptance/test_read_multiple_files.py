"""``read_multiple_files``: its request example, its two responses and documented behaviour."""

from tests.acceptance.shapes import Says, lines, refused, sha256_of
from tests.acceptance.workspace import Workspace

CONFIG = '{\n  "key": "value"\n}'


def test_request_example(workspace: Workspace) -> None:
    workspace.write("/config.json", CONFIG)
    workspace.write("/README.md", lines(150))

    result = workspace.result("read_multiple_files", paths=["/config.json", "/README.md"], limit=100)

    assert result == {
        "files": [
            {
                "path": "/config.json",
                "success": True,
                "content": CONFIG,
                "hash": sha256_of(CONFIG),
                "synced": True,
                "error": None,
                "total_lines": 3,
                "truncated": False,
            },
            {
                "path": "/README.md",
                "success": True,
                "content": lines(100),
                "hash": sha256_of(workspace.on_disk("/README.md")),
                "synced": True,
                "error": None,
                "total_lines": 150,
                "truncated": True,
            },
        ]
    }


def test_partial_success_some_files_failed(workspace: Workspace) -> None:
    workspace.write("/config.json", CONFIG)

    result = workspace.result("read_multiple_files", paths=["/config.json", "/nonexistent.txt"])

    assert result == {
        "files": [
            {
                "path": "/config.json",
                "success": True,
                "content": CONFIG,
                "hash": sha256_of(CONFIG),
                "synced": True,
                "error": None,
                "total_lines": 3,
                "truncated": False,
            },
            {
                "path": "/nonexistent.txt",
                "success": False,
                "content": None,
                "hash": None,
                "synced": None,
                "error": "File not found: /nonexistent.txt",
                "total_lines": None,
                "truncated": None,
            },
        ]
    }


def test_arguments_example(workspace: Workspace) -> None:
    for path in ("/config.json", "/README.md", "/src/main.rs"):
        workspace.write(path, lines(101))

    result = workspace.result("read_multiple_files", paths=["/config.json", "/README.md", "/src/main.rs"], limit=100)

    reported = [(file["path"], file["content"], file["total_lines"], file["truncated"]) for file in result["files"]]
    assert reported == [
        ("/config.json", lines(100), 101, True),
        ("/README.md", lines(100), 101, True),
        ("/src/main.rs", lines(100), 101, True),
    ]


def test_default_line_limit_is_500_for_each_file(workspace: Workspace) -> None:
    workspace.write("/a.md", lines(500))
    workspace.write("/b.md", lines(501))

    a, b = workspace.result("read_multiple_files", paths=["/a.md", "/b.md"])["files"]

    assert (a["content"], a["total_lines"], a["truncated"]) == (lines(500), 500, False)
    assert (b["content"], b["total_lines"], b["truncated"]) == (lines(500), 501, True)


def test_hash_integrity_it_covers_the_complete_file_and_is_valid_for_edit(workspace: Workspace) -> None:
    workspace.write("/a.md", lines(20))

    [file] = workspace.result("read_multiple_files", paths=["/a.md"], limit=1)["files"]

    assert file["hash"] == sha256_of(lines(20))
    assert workspace.call(
        "edit", path="/a.md", old_string="line 15", new_string="x", last_read_hash=file["hash"]
    ).is_success


def test_a_json_value_is_returned_completely_without_lines(workspace: Workspace) -> None:
    workspace.write("/a.canvas", {"elements": [1, 2, 3]})

    [file] = workspace.result("read_multiple_files", paths=["/a.canvas"], limit=1)["files"]

    assert (file["content"], file["total_lines"], file["truncated"]) == ({"elements": [1, 2, 3]}, None, None)


def test_folders_fail_in_their_entries(workspace: Workspace) -> None:
    workspace.write("/folder/a.md", "x")

    folder, a = workspace.result("read_multiple_files", paths=["/folder", "/folder/a.md"])["files"]

    assert (folder["success"], folder["content"], folder["error"]) == (False, None, Says("folder", "/folder"))
    assert (a["success"], a["content"]) == (True, "x")


def test_protected_names_fail_in_their_entries(workspace: Workspace) -> None:
    workspace.write("/a.md", "x")
    workspace.write("/.env", "PASSWORD=1\n")
    agent = workspace.agent("trust: autonomous\n")

    response = agent.call("read_multiple_files", paths=["/.env", "/a.md"])

    env, a = response.json()["result"]["files"]
    assert (env["success"], env["content"], env["hash"], env["error"]) == (False, None, None, Says(".env", "protected"))
    assert (a["success"], a["content"]) == (True, "x")
    assert "PASSWORD" not in response.text


def test_file_limit_is_50(workspace: Workspace) -> None:
    workspace.write("/a.md", "x")

    files = workspace.result("read_multiple_files", paths=["/a.md"] * 50)["files"]

    assert [file["content"] for file in files] == ["x"] * 50
    refused(
        workspace.call("read_multiple_files", paths=["/a.md"] * 51),
        400,
        "VALIDATION_ERROR",
        "Validation failed",
        fields={"paths": Says("50")},
    )


def test_paths_are_required(workspace: Workspace) -> None:
    refused(
        workspace.call("read_multiple_files", limit=100),
        400,
        "VALIDATION_ERROR",
        "Validation failed",
        fields={"paths": "This field is required."},
    )
