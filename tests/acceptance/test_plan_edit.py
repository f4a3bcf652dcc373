"""``plan_edit``: its example and documented behaviour."""

from typing import Any

import pytest

from tests.acceptance.shapes import A_UUID, Says, refused, sha256_of
from tests.acceptance.workspace import Workspace

PATH = "/plans/gleeful-tangerine-expedition.plan"
HEAD = "---\n# Ada decides.\ntitle: Goal 1  # and more\nstatus: draft\ncreated_at: 2025-01-15T10:30:00Z\n---\n"
BODY = "# Overview\n\n## Goals\n- Goal 1\n- Goal 2"


@pytest.fixture
def plan(workspace: Workspace) -> dict[str, Any]:
    return dict(workspace.result("write", path=PATH, content=HEAD + BODY, file_type="plan"))


def test_request_example(workspace: Workspace, plan: dict[str, Any]) -> None:
    result = workspace.result("plan_edit", path=PATH, old_string="- Goal 1", new_string="- Goal 1 (completed)")

    expected = HEAD + BODY.replace("- Goal 1", "- Goal 1 (completed)")
    assert result == {"path": PATH, "file_id": plan["file_id"], "version_id": A_UUID, "hash": sha256_of(expected)}
    assert result["version_id"] != plan["version_id"]
    assert workspace.on_disk(PATH).read_text() == expected
    assert workspace.result("file_info", path=PATH)["file_type"] == "plan"


@pytest.mark.usefixtures("plan")
def test_the_frontmatter_is_not_searched(workspace: Workspace) -> None:
    workspace.result("plan_edit", path=PATH, old_string="Goal 1", new_string="Goal 0")
    assert workspace.on_disk(PATH).read_text() == HEAD + BODY.replace("Goal 1", "Goal 0")

    response = workspace.call("plan_edit", path=PATH, old_string="status: draft", new_string="status: approved")

    refused(response, 400, "VALIDATION_ERROR", fields={"old_string": Says("Not found")})


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize("line", [0, 3, 5])
def test_insert_lines_are_counted_below_the_frontmatter(workspace: Workspace, line: int) -> None:
    workspace.result("plan_edit", path=PATH, insert_line=line, insert_content="new\n")

    expected = (BODY + "\n" if line == 5 else BODY).splitlines(keepends=True)
    expected.insert(line, "new\n")
    assert workspace.on_disk(PATH).read_text() == HEAD + "".join(expected)


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"old_string": "Goal", "new_string": "x"}, "old_string", ("Found 3 times", "lines 3, 4, 5")),
        ({"old_string": "- goal 2", "new_string": "x"}, "old_string", ("Line 5 differs", "case")),
        ({"old_string": "", "new_string": "x"}, "old_string", ("empty",)),
        ({"insert_line": 6, "insert_content": "x"}, "insert_line", ("5 lines",)),
        ({"old_string": "Goal"}, "args", ("old_string and new_string", "insert_line and insert_content")),
        ({}, "args", ("old_string and new_string",)),
    ],
)
def test_errors_count_lines_within_the_plan(
    workspace: Workspace, given: dict[str, Any], field: str, words: tuple[str, ...]
) -> None:
    response = workspace.call("plan_edit", path=PATH, **given)

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={field: Says(*words)})
    assert workspace.on_disk(PATH).read_text() == HEAD + BODY


def test_last_read_hash_prevents_conflicts(workspace: Workspace, plan: dict[str, Any]) -> None:
    seen = workspace.result("plan_read", path=PATH)["hash"]
    assert seen == plan["hash"]
    workspace.result("plan_edit", path=PATH, old_string="Goal 2", new_string="Goal 3", last_read_hash=seen)

    response = workspace.call("plan_edit", path=PATH, old_string="Goal 3", new_string="x", last_read_hash=seen)

    refused(response, 409, "CONFLICT", Says(f"{PATH} changed since you read it"))


def test_only_plan_files_are_edited(workspace: Workspace) -> None:
    workspace.write("/a.md", "x")

    response = workspace.call("plan_edit", path="/a.md", old_string="x", new_string="y")

    refused(response, 400, "VALIDATION_ERROR", fields={"path": Says("/a.md is not a plan file", "`.plan`")})


def test_a_legacy_plan_is_edited_as_one_text(workspace: Workspace) -> None:
    workspace.put_file("/plans/old.plan", BODY)

    workspace.result("plan_edit", path="/plans/old.plan", insert_line=0, insert_content="top")

    assert workspace.on_disk("/plans/old.plan").read_text() == f"top\n{BODY}"


@pytest.mark.usefixtures("plan")
def test_broken_frontmatter_is_reported_and_left_unchanged(workspace: Workspace) -> None:
    workspace.put_file(PATH, "---\ntitle: T\nbody\n")

    response = workspace.call("plan_edit", path=PATH, old_string="body", new_string="x")

    refused(response, 400, "VALIDATION_ERROR", Says("frontmatter cannot be parsed"))
    assert workspace.on_disk(PATH).read_text() == "---\ntitle: T\nbody\n"


def test_a_plan_with_crlf_keeps_it(workspace: Workspace) -> None:
    content = (HEAD + BODY).replace("\n", "\r\n")
    workspace.write(PATH, content)

    result = workspace.result("plan_edit", path=PATH, old_string="## Goals\n- Goal 1", new_string="## Goals\n- G")

    assert workspace.on_disk(PATH).read_bytes() == content.replace("- Goal 1\r\n", "- G\r\n").encode()
    assert "CRLF" in result["note"]


def test_a_missing_plan_is_not_found(workspace: Workspace) -> None:
    response = workspace.call("plan_edit", path=PATH, old_string="a", new_string="b")

    refused(response, 404, "NOT_FOUND", f"File not found: {PATH}")
