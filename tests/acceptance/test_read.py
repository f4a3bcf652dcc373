"""``read``: its request examples and documented behaviour."""

from typing import Any

import pytest

from tests.acceptance.shapes import Says, lines, refused, sha256_of
from tests.acceptance.workspace import Workspace


def test_default_read_first_500_lines(workspace: Workspace) -> None:
    workspace.write("/documents/report.md", lines(5000))

    result = workspace.result("read", path="/documents/report.md")

    assert result == {
        "path": "/documents/report.md",
        "content": lines(500),
        "hash": sha256_of(workspace.on_disk("/documents/report.md")),
        "synced": True,
        "total_lines": 5000,
        "truncated": True,
        "offset": 0,
        "limit": 500,
    }


def test_read_middle_section_of_file(workspace: Workspace) -> None:
    workspace.write("/src/main.rs", lines(400))

    result = workspace.result("read", path="/src/main.rs", offset=100, limit=50)

    assert result == {
        "path": "/src/main.rs",
        "content": lines(50, start=100),
        "hash": sha256_of(workspace.on_disk("/src/main.rs")),
        "synced": True,
        "total_lines": 400,
        "truncated": True,
        "offset": 100,
        "limit": 50,
    }


def test_read_last_100_lines_like_tail_n_100(workspace: Workspace) -> None:
    workspace.write("/logs/error.log", lines(2000))

    result = workspace.result("read", path="/logs/error.log", offset=-100)

    assert result == {
        "path": "/logs/error.log",
        "content": lines(100, start=1900),
        "hash": sha256_of(workspace.on_disk("/logs/error.log")),
        "synced": True,
        "total_lines": 2000,
        "truncated": False,
        "offset": 1900,
        "limit": 500,
    }


def test_read_last_1000_lines_return_only_first_50(workspace: Workspace) -> None:
    workspace.write("/large.log", lines(3000))

    result = workspace.result("read", path="/large.log", offset=-1000, limit=50)

    assert result == {
        "path": "/large.log",
        "content": lines(50, start=2000),
        "hash": sha256_of(workspace.on_disk("/large.log")),
        "synced": True,
        "total_lines": 3000,
        "truncated": True,
        "offset": 2000,
        "limit": 50,
    }


def test_a_short_file_is_returned_completely(workspace: Workspace) -> None:
    workspace.write("/documents/report.md", "# Annual Report\n\nThis is the content...")

    result = workspace.result("read", path="/documents/report.md")

    assert result == {
        "path": "/documents/report.md",
        "content": "# Annual Report\n\nThis is the content...",
        "hash": sha256_of("# Annual Report\n\nThis is the content..."),
        "synced": True,
        "total_lines": 3,
        "truncated": False,
        "offset": 0,
        "limit": 500,
    }


def test_the_latest_version_is_read(workspace: Workspace) -> None:
    workspace.write("/a.md", "first")
    workspace.result("write", path="/a.md", content="second", overwrite=True)
    workspace.result("edit", path="/a.md", old_string="second", new_string="third")

    assert workspace.result("read", path="/a.md")["content"] == "third"


@pytest.mark.parametrize("offset", [0, 100, -1, -250])
def test_hash_is_of_the_full_content_however_little_is_read(workspace: Workspace, offset: int) -> None:
    workspace.write("/a.md", lines(300))

    assert workspace.result("read", path="/a.md", offset=offset, limit=1)["hash"] == sha256_of(lines(300))


def test_edit_accepts_the_hash_as_last_read_hash(workspace: Workspace) -> None:
    workspace.write("/a.md", lines(1000))
    seen = workspace.result("read", path="/a.md", offset=10, limit=1)

    edited = workspace.call(
        "edit", path="/a.md", old_string="line 10\n", new_string="ten\n", last_read_hash=seen["hash"]
    )

    assert edited.status_code == 200


@pytest.mark.parametrize(
    ("offset", "limit", "content", "start", "truncated"),
    [
        (0, 2, "line 0\nline 1\n", 0, True),
        (3, 2, "line 3\nline 4\n", 3, False),
        (4, 500, "line 4\n", 4, False),
        (5, 1, "", 5, False),
        (99, 1, "", 5, False),
        (-2, 1, "line 3\n", 3, True),
        (-99, 1, "line 0\n", 0, True),
        (0, 5, "line 0\nline 1\nline 2\nline 3\nline 4\n", 0, False),
    ],
)
def test_offset_counts_from_0_or_from_the_end(
    workspace: Workspace, offset: int, limit: int, content: str, start: int, truncated: bool
) -> None:
    workspace.write("/a.md", lines(5))

    result = workspace.result("read", path="/a.md", offset=offset, limit=limit)

    assert (result["content"], result["offset"], result["truncated"]) == (content, start, truncated)
    assert result["total_lines"] == 5


@pytest.mark.parametrize(
    "content", ["", "\n", "no line end", "\r\nwindows\r\n", "\f\v\x85\u2028\u2029", " \t ü 漢 🗄 \n\n"]
)
def test_content_is_not_modified(workspace: Workspace, content: str) -> None:
    workspace.write("/a.md", content)

    result = workspace.result("read", path="/a.md")

    assert result["content"] == content
    assert result["hash"] == sha256_of(content)


@pytest.mark.parametrize("content", [{"elements": [], "version": 1}, [1, 2.5, None], 7, True, None, {}])
def test_a_json_value_is_returned_unchanged_without_lines(workspace: Workspace, content: Any) -> None:
    workspace.write("/a.canvas", content)

    result = workspace.result("read", path="/a.canvas", offset=1, limit=1)

    assert result == {
        "path": "/a.canvas",
        "content": content,
        "hash": sha256_of(workspace.on_disk("/a.canvas")),
        "synced": True,
        "total_lines": None,
        "truncated": None,
        "offset": None,
        "limit": None,
    }


def test_a_folder_cannot_be_read(workspace: Workspace) -> None:
    workspace.result("mkdir", path="/documents")

    response = workspace.call("read", path="/documents")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says("folder", "/documents")})


def test_the_root_cannot_be_read(workspace: Workspace) -> None:
    response = workspace.call("read", path="/")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says("folder")})


def test_a_missing_file_is_not_found(workspace: Workspace) -> None:
    refused(workspace.call("read", path="/nope.md"), 404, "NOT_FOUND", "File not found: /nope.md")


def test_a_deleted_file_is_not_found(workspace: Workspace) -> None:
    workspace.write("/a.md", "x")
    workspace.result("rm", path="/a.md")

    refused(workspace.call("read", path="/a.md"), 404, "NOT_FOUND", "File not found: /a.md")


@pytest.mark.parametrize("limit", [0, -5])
def test_a_limit_below_1_is_rejected(workspace: Workspace, limit: int) -> None:
    workspace.write("/a.md", "x")

    response = workspace.call("read", path="/a.md", limit=limit)

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"limit": Says("1")})
