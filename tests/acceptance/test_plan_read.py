"""``plan_read``: its example and documented behaviour."""

from typing import Any

import pytest

from tests.acceptance.shapes import Says, lines, refused, sha256_of
from tests.acceptance.workspace import Workspace

PATH = "/plans/gleeful-tangerine-expedition.plan"
HEAD = "---\ntitle: Feature Implementation Plan\nstatus: draft\ncreated_at: 2025-01-15T10:30:00Z\n---\n"
CONTENT = "# Overview\n\n## Goals\n- Goal 1\n- Goal 2"


@pytest.mark.parametrize("named", [{"path": PATH}, {"name": "gleeful-tangerine-expedition"}], ids=["path", "name"])
def test_request_example(workspace: Workspace, named: dict[str, str]) -> None:
    workspace.result("write", path=PATH, content=HEAD + CONTENT, file_type="plan")

    assert workspace.result("plan_read", **named) == {
        "path": PATH,
        "metadata": {
            "title": "Feature Implementation Plan",
            "status": "draft",
            "created_at": "2025-01-15T10:30:00Z",
        },
        "content": CONTENT,
        "hash": sha256_of(HEAD + CONTENT),
        "total_lines": 5,
    }


def test_a_name_may_include_its_extension(workspace: Workspace) -> None:
    workspace.write(PATH, HEAD)

    assert workspace.result("plan_read", name="gleeful-tangerine-expedition.plan")["path"] == PATH


def test_a_legacy_plan_has_no_metadata_and_unchanged_content(workspace: Workspace) -> None:
    workspace.put_file("/plans/old.plan", CONTENT)

    result = workspace.result("plan_read", name="old")

    assert (result["metadata"], result["content"], result["total_lines"]) == (None, CONTENT, 5)


@pytest.mark.parametrize(
    ("window", "start", "end"),
    [
        ({}, 0, 500),
        ({"limit": 2}, 0, 2),
        ({"offset": 598}, 598, 600),
        ({"offset": 10, "limit": 2}, 10, 12),
        ({"offset": -3}, 597, 600),
        ({"cursor": 10, "limit": 2}, 10, 12),
        ({"cursor": 10, "offset": 20, "limit": 2}, 20, 22),
        ({"offset": 700}, 600, 600),
    ],
)
def test_offset_and_limit_count_below_the_frontmatter(
    workspace: Workspace, window: dict[str, int], start: int, end: int
) -> None:
    workspace.write(PATH, HEAD + lines(600))

    result = workspace.result("plan_read", path=PATH, **window)

    assert result["content"] == lines(end - start, start=start)
    assert result["total_lines"] == 600
    assert result["metadata"]["status"] == "draft"


@pytest.mark.parametrize("given", [{}, {"path": PATH, "name": "gleeful-tangerine-expedition"}])
def test_either_path_or_name_is_required(workspace: Workspace, given: dict[str, Any]) -> None:
    response = workspace.call("plan_read", **given)

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"args": Says("either path or name")})


@pytest.mark.parametrize("name", ["", "..", "a/b", "/plans/a-b-c.plan", "x" * 300, 7])
def test_an_invalid_name_is_rejected(workspace: Workspace, name: object) -> None:
    refused(workspace.call("plan_read", name=name), 400, "VALIDATION_ERROR", fields={"name": Says("")})


def test_a_file_that_is_no_plan_is_rejected(workspace: Workspace) -> None:
    workspace.write("/a.md", "x")

    refused(workspace.call("plan_read", path="/a.md"), 400, "VALIDATION_ERROR", fields={"path": Says("not a plan")})


def test_a_missing_plan_is_not_found(workspace: Workspace) -> None:
    response = workspace.call("plan_read", name="bold-meadow-revelation")

    refused(response, 404, "NOT_FOUND", "File not found: /plans/bold-meadow-revelation.plan")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("---\ntitle: T\n", "no later line is `---`"),
        ("---\ntitle: T\n  status: draft\n---\n", "line 3"),
        ("---\n- a\n---\n", "expected fields"),
    ],
)
def test_broken_frontmatter_is_reported(workspace: Workspace, content: str, why: str) -> None:
    workspace.write(PATH, HEAD + CONTENT)
    workspace.put_file(PATH, content)

    refused(
        workspace.call("plan_read", path=PATH),
        400,
        "VALIDATION_ERROR",
        Says("The frontmatter cannot be parsed", why, "Fix it with `edit`"),
    )
