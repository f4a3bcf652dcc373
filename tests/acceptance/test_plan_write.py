"""``plan_write``: its example and documented behaviour."""

import pytest

from tests.acceptance.shapes import A_TIME, A_UUID, Like, Says, refused, sha256_of
from tests.acceptance.workspace import Someone, Workspace

A_PLAN = Like("three words in /plans", r"/plans/[a-z]+-[a-z]+-[a-z]+\.plan")
CONTENT = "# Overview\n\n## Goals\n- Goal 1\n- Goal 2"


def test_request_example(workspace: Workspace) -> None:
    result = workspace.result("plan_write", title="Feature Implementation Plan", content=CONTENT, status="draft")

    on_disk = workspace.on_disk(result["path"])
    assert result == {
        "path": A_PLAN,
        "file_id": A_UUID,
        "version_id": A_UUID,
        "hash": sha256_of(on_disk),
        "metadata": {"title": "Feature Implementation Plan", "status": "draft", "created_at": A_TIME},
    }
    created_at = result["metadata"]["created_at"]
    assert on_disk.read_text() == (
        f"---\ntitle: Feature Implementation Plan\nstatus: draft\ncreated_at: {created_at}\n---\n{CONTENT}"
    )
    assert workspace.result("file_info", path=result["path"])["file_type"] == "plan"
    assert [entry["file_type"] for entry in workspace.result("ls", path="/plans")["entries"]] == ["Plan"]


def test_every_plan_gets_a_unique_name(workspace: Workspace) -> None:
    paths = {workspace.result("plan_write", title="T", content="x")["path"] for _ in range(5)}

    assert len(paths) == 5
    assert all(path == A_PLAN for path in paths)


def test_the_status_is_draft_by_default(workspace: Workspace) -> None:
    assert workspace.result("plan_write", title="T", content="x")["metadata"]["status"] == "draft"


@pytest.mark.parametrize("status", ["draft", "approved", "implemented", "archived"])
def test_statuses(workspace: Workspace, status: str) -> None:
    assert workspace.result("plan_write", title="T", content="x", status=status)["metadata"]["status"] == status


def test_an_unknown_status_is_rejected(workspace: Workspace) -> None:
    response = workspace.call("plan_write", title="T", content="x", status="done")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"status": Says("draft", "archived")})


def test_a_custom_path(workspace: Workspace) -> None:
    result = workspace.result("plan_write", title="T", content="x", path="/docs//roadmap.plan")

    assert result["path"] == "/docs/roadmap.plan"
    assert workspace.result("file_info", path="/docs/roadmap.plan")["file_type"] == "plan"


@pytest.mark.parametrize("path", ["/plans/roadmap.md", "/plans", "/.plan"])
def test_a_path_that_does_not_end_with_plan_is_rejected(workspace: Workspace, path: str) -> None:
    response = workspace.call("plan_write", title="T", content="x", path=path)

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says("`.plan`")})


def test_an_existing_plan_is_updated_and_its_frontmatter_kept(workspace: Workspace) -> None:
    by_hand = "---\n# Ada decides.\nowner: ada  # ask her\ntitle: Old\ncreated_at: 2025-01-15T10:30:00Z\n---\nold\n"
    first = workspace.result("write", path="/plans/a-b-c.plan", content=by_hand, file_type="plan")

    result = workspace.result("plan_write", title="New", content="new\n", path="/plans/a-b-c.plan", status="approved")

    assert workspace.on_disk("/plans/a-b-c.plan").read_text() == (
        "---\n# Ada decides.\nowner: ada  # ask her\ntitle: New\ncreated_at: 2025-01-15T10:30:00Z\n"
        "status: approved\n---\nnew\n"
    )
    assert result["file_id"] == first["file_id"]
    assert result["metadata"] == {
        "owner": "ada",
        "title": "New",
        "created_at": "2025-01-15T10:30:00Z",
        "status": "approved",
    }
    assert len(workspace.versions(first["file_id"])) == 2


@pytest.mark.parametrize("known", [True, False], ids=["a document", "on disk only"])
def test_a_file_of_another_type_becomes_a_plan(workspace: Workspace, known: bool) -> None:
    if known:
        workspace.write("/plans/a-b-c.plan", "# Old\n")
    else:
        workspace.put_file("/plans/a-b-c.plan", "# Old\n")

    workspace.result("plan_write", title="T", content="# New\n", path="/plans/a-b-c.plan")

    assert workspace.result("file_info", path="/plans/a-b-c.plan")["file_type"] == "plan"
    assert workspace.result("plan_read", name="a-b-c")["content"] == "# New\n"


def test_broken_frontmatter_is_not_overwritten(workspace: Workspace) -> None:
    workspace.put_file("/plans/a-b-c.plan", "---\ntitle: [\n---\nold\n")

    response = workspace.call("plan_write", title="T", content="x", path="/plans/a-b-c.plan")

    refused(response, 400, "VALIDATION_ERROR", Says("frontmatter cannot be parsed", "line 3"))
    assert workspace.on_disk("/plans/a-b-c.plan").read_text() == "---\ntitle: [\n---\nold\n"


@pytest.mark.parametrize("field", ["title", "content"])
def test_title_and_content_are_required(workspace: Workspace, field: str) -> None:
    given = {"title": "T", "content": "x"}
    del given[field]

    refused(workspace.call("plan_write", **given), 400, "VALIDATION_ERROR", fields={field: Says("required")})


def test_a_blank_title_is_rejected(workspace: Workspace) -> None:
    refused(workspace.call("plan_write", title=" ", content="x"), 400, "VALIDATION_ERROR", fields={"title": Says("1")})


def test_a_title_of_any_characters_is_kept(workspace: Workspace) -> None:
    title = 'Überblick: "eins" # zwei\n--- 😀'

    path = workspace.result("plan_write", title=title, content="x")["path"]

    assert workspace.result("plan_read", path=path)["metadata"]["title"] == title


def test_viewers_do_not_write_plans(workspace: Workspace, grace: Someone) -> None:
    refused(workspace.admit(grace, "viewer").call("plan_write", title="T", content="x"), 403, "FORBIDDEN")


def test_an_agent_writes_plans_only_if_allowed(workspace: Workspace) -> None:
    reader = workspace.agent("trust: autonomous\n")
    planner = workspace.agent("trust: guided\ntool_permissions: {plan_write: {allowed: true, paths: [plans/**]}}\n")

    refused(reader.call("plan_write", title="T", content="x"), 403, "NOT_PERMITTED")
    # It is a safe tool, so no approval is needed.
    assert planner.result("plan_write", title="T", content="x")["path"] == A_PLAN
    refused(planner.call("plan_write", title="T", content="x", path="/a.plan"), 403, "NOT_PERMITTED")
