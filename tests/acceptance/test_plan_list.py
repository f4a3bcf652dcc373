"""``plan_list``: its example and documented behaviour."""

from typing import Any

from tests.acceptance.shapes import Says, refused
from tests.acceptance.workspace import Workspace


def put(workspace: Workspace, name: str, status: str, created_at: str) -> dict[str, Any]:
    """Writes a plan with this date. Returns its entry in the list."""
    metadata = {"title": f"The {name}", "status": status, "created_at": created_at}
    head = "".join(f"{key}: {value}\n" for key, value in metadata.items())
    path = f"/plans/{name}.plan"
    workspace.result("write", path=path, content=f"---\n{head}---\n# {name}\n", file_type="plan")
    return {"path": path, "name": name, "metadata": metadata}


def test_request_example(workspace: Workspace) -> None:
    approved = put(workspace, "gleeful-tangerine-expedition", "approved", "2025-01-15T10:30:00Z")
    put(workspace, "jubilant-river-transformation", "draft", "2025-01-15T10:30:00Z")

    assert workspace.result("plan_list", status="approved", limit=10) == {"plans": [approved], "total": 1}


def test_the_newest_comes_first(workspace: Workspace) -> None:
    middle = put(workspace, "a", "draft", "2025-01-15T10:30:00Z")
    newest = put(workspace, "b", "approved", "2025-01-15T12:30:00+01:00")
    oldest = put(workspace, "c", "draft", "2024-12-31")

    assert workspace.result("plan_list") == {"plans": [newest, middle, oldest], "total": 3}


def test_a_plan_that_was_just_written_comes_first(workspace: Workspace) -> None:
    put(workspace, "a", "draft", "2025-01-15T10:30:00Z")
    paths = [workspace.result("plan_write", title=f"{n}", content="x")["path"] for n in range(3)]

    listed = [plan["path"] for plan in workspace.result("plan_list")["plans"]]

    assert listed == [*reversed(paths), "/plans/a.plan"]


def test_limit_and_total(workspace: Workspace) -> None:
    for number in range(53):
        workspace.put_file(f"/plans/{number:02}.plan", f"---\ncreated_at: 2025-01-01T00:00:{number:02}Z\n---\n")

    default = workspace.result("plan_list")
    assert (len(default["plans"]), default["total"]) == (50, 53)
    assert [plan["name"] for plan in workspace.result("plan_list", limit=2)["plans"]] == ["52", "51"]
    assert len(workspace.result("plan_list", limit=0)["plans"]) == 53
    refused(workspace.call("plan_list", limit=-1), 400, "VALIDATION_ERROR", fields={"limit": Says("0")})


def test_without_plans_the_list_is_empty(workspace: Workspace) -> None:
    assert workspace.result("plan_list") == {"plans": [], "total": 0}
    workspace.write("/plans/notes.md", "# Not a plan\n")
    assert workspace.result("plan_list") == {"plans": [], "total": 0}


def test_plans_are_found_wherever_they_are(workspace: Workspace) -> None:
    workspace.result("plan_write", title="elsewhere", content="x", path="/docs/roadmap.plan")
    workspace.put_file("/plans/2024/by-hand.plan", "# By hand\n")
    workspace.write("/plans/document.plan", "# Written as a document\n")
    workspace.write("/src/no.plan", "# A document that is called so\n")

    listed = {plan["path"]: plan["metadata"] for plan in workspace.result("plan_list")["plans"]}

    assert listed.keys() == {"/docs/roadmap.plan", "/plans/2024/by-hand.plan", "/plans/document.plan"}
    assert listed["/plans/2024/by-hand.plan"] is None
    assert workspace.result("plan_list", status="draft")["total"] == 1


def test_deleted_plans_are_not_listed(workspace: Workspace) -> None:
    path = workspace.result("plan_write", title="T", content="x")["path"]
    other = workspace.result("plan_write", title="T", content="x")["path"]
    workspace.result("rm", path=path)
    workspace.on_disk(other).unlink()

    assert workspace.result("plan_list") == {"plans": [], "total": 0}


def test_a_plan_with_broken_frontmatter_is_listed_with_the_error(workspace: Workspace) -> None:
    workspace.put_file("/plans/broken.plan", "---\ntitle: T\n")
    put(workspace, "whole", "draft", "2025-01-15T10:30:00Z")

    plans = {plan["name"]: plan for plan in workspace.result("plan_list")["plans"]}

    assert plans["broken"] == {
        "path": "/plans/broken.plan",
        "name": "broken",
        "metadata": None,
        "error": Says("frontmatter cannot be parsed"),
    }
    assert "error" not in plans["whole"]


def test_an_unknown_status_is_rejected(workspace: Workspace) -> None:
    refused(workspace.call("plan_list", status="done"), 400, "VALIDATION_ERROR", fields={"status": Says("draft")})


def test_an_agent_does_not_see_plans_it_may_not_read(workspace: Workspace) -> None:
    for path in ("/plans/open.plan", "/.aws/secret.plan", "/docs/other.plan"):
        workspace.result("plan_write", title=path, content="x", path=path)
    reader = workspace.agent("trust: autonomous\n")
    bound = workspace.agent("trust: autonomous\ntool_permissions: {plan_list: {allowed: true, paths: [docs/**]}}\n")

    assert {plan["name"] for plan in reader.result("plan_list")["plans"]} == {"open", "other"}
    assert {plan["name"] for plan in bound.result("plan_list")["plans"]} == {"other"}
