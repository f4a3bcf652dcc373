"""Versions over HTTP: finding, listing, reading and comparing them, and access to them."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.acceptance.shapes import A_TIME, A_UUID, Says, refused, result_of, sha256_of
from tests.acceptance.workspace import Someone, Workspace

# Finding


def test_a_file_is_found_by_its_path(workspace: Workspace) -> None:
    workspace.write("/a.md", "x")

    found = result_of(workspace.get("/files", path="/a.md"))

    assert found == workspace.result("file_info", path="/a.md")


def test_an_absent_path_is_not_found(workspace: Workspace) -> None:
    refused(workspace.get("/files", path="/nope.md"), 404, "NOT_FOUND", "File not found: /nope.md")


# Listing


def test_versions_are_listed_newest_first(workspace: Workspace, ada: Someone) -> None:
    first = workspace.write("/a.md", "one\n")
    second = workspace.result("edit", path="/a.md", old_string="one", new_string="two\nthree")

    listed = result_of(workspace.get(f"/files/{first['file_id']}/versions"))

    author = {"kind": "user", "user_id": ada.id, "agent_id": None, "run_id": None, "call_id": A_UUID}
    same = {
        "file_id": first["file_id"],
        "change_set_id": A_UUID,
        "path": "/a.md",
        "kind": "file",
        "deleted": False,
        "mode": "0644",
        "author": author,
        "created_at": A_TIME,
    }
    assert listed == {
        "file": {
            "file_id": first["file_id"],
            "version_id": second["version_id"],
            "path": "/a.md",
            "file_type": "document",
            "is_virtual": False,
            "deleted": False,
            "number": 2,
            "size": 10,
            "line_count": 2,
            "mode": "0644",
            "hash": sha256_of("two\nthree\n"),
            "created_at": A_TIME,
            "updated_at": A_TIME,
        },
        "versions": [
            {
                "version_id": second["version_id"],
                "number": 2,
                "size": 10,
                "line_count": 2,
                "hash": sha256_of("two\nthree\n"),
                **same,
            },
            {
                "version_id": first["version_id"],
                "number": 1,
                "size": 4,
                "line_count": 1,
                "hash": sha256_of("one\n"),
                **same,
            },
        ],
    }


def test_versions_are_listed_page_by_page(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "0")["file_id"]
    for number in range(4):
        workspace.result("write", path="/a.md", content=str(number + 1), overwrite=True)

    newest = result_of(workspace.get(f"/files/{file_id}/versions", limit=2))["versions"]
    older = result_of(workspace.get(f"/files/{file_id}/versions", limit=2, before=newest[-1]["number"]))["versions"]

    assert [version["number"] for version in (*newest, *older)] == [5, 4, 3, 2]


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 501}, {"before": 10**30}, {"before": "x"}])
def test_an_invalid_page_is_rejected(workspace: Workspace, query: dict[str, Any]) -> None:
    file_id = workspace.write("/a.md", "x")["file_id"]
    [field] = query

    response = workspace.get(f"/files/{file_id}/versions", **query)

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={field: Says("")})


def test_versions_of_a_deleted_file_are_listed(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "x")["file_id"]
    workspace.result("rm", path="/a.md")

    listed = result_of(workspace.get(f"/files/{file_id}/versions"))

    assert listed["file"]["deleted"] is True
    assert [version["deleted"] for version in listed["versions"]] == [True, False]


def test_an_agents_change_names_the_agent_and_its_responsible_user(workspace: Workspace, ada: Someone) -> None:
    agent = workspace.agent("trust: autonomous\ntool_permissions: {write: {allowed: true}}\n")

    file_id = agent.write("/a.md", "x")["file_id"]

    [version] = workspace.versions(file_id)
    assert version["author"] == {
        "kind": "agent",
        "user_id": ada.id,
        "agent_id": A_UUID,
        "run_id": None,
        "call_id": A_UUID,
    }


# Reading


@pytest.mark.parametrize("content", ["text\n", "", {"elements": []}, [1], None])
def test_a_version_is_read_unchanged(workspace: Workspace, content: Any) -> None:
    first = workspace.write("/a", content)
    workspace.result("write", path="/a", content="other", overwrite=True)

    version = result_of(workspace.get(f"/versions/{first['version_id']}"))

    assert version["content"] == content
    assert version["hash"] == first["hash"]
    assert version == {**workspace.versions(first["file_id"])[1], "content": content}


def test_bytes_that_are_not_text_are_read_as_base64(workspace: Workspace) -> None:
    workspace.put_file("/a.bin", b"\0\1\2")
    file_id = workspace.result("touch", path="/a.bin")["file_id"]

    version = result_of(workspace.get(f"/versions/{workspace.versions(file_id)[0]['version_id']}"))

    assert version["content"] == {"encoding": "base64", "data": "AAEC"}


def test_a_deletion_has_no_content(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "x")["file_id"]
    workspace.result("rm", path="/a.md")

    deletion = result_of(workspace.get(f"/versions/{workspace.versions(file_id)[0]['version_id']}"))

    assert (deletion["deleted"], deletion["content"], deletion["hash"]) == (True, None, None)


# Comparing


def test_versions_are_compared_as_a_unified_diff(workspace: Workspace) -> None:
    old = workspace.write("/a.md", "one\ntwo\nthree\n")
    new = workspace.result("edit", path="/a.md", old_string="two\n", new_string="2\nzwei\n")

    compared = result_of(workspace.get(f"/versions/{old['version_id']}/compare/{new['version_id']}"))

    newest, oldest = workspace.versions(old["file_id"])
    assert compared == {
        "from": oldest,
        "to": newest,
        "added": 2,
        "removed": 1,
        "diff": "--- /a.md\n+++ /a.md\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+zwei\n three\n",
    }


def test_a_missing_last_line_end_is_marked(workspace: Workspace) -> None:
    old = workspace.write("/a.md", "one\n")
    new = workspace.result("write", path="/a.md", content="one", overwrite=True)

    compared = result_of(workspace.get(f"/versions/{old['version_id']}/compare/{new['version_id']}"))

    assert compared["diff"] == "--- /a.md\n+++ /a.md\n@@ -1 +1 @@\n-one\n+one\n\\ No newline at end of file\n"


def test_only_a_line_feed_ends_a_line_in_a_comparison(workspace: Workspace) -> None:
    old = workspace.write("/a.md", "one\ftwo\x85three\u2028four\rfive\n")
    new = workspace.result("edit", path="/a.md", old_string="four", new_string="4")

    compared = result_of(workspace.get(f"/versions/{old['version_id']}/compare/{new['version_id']}"))

    assert compared["diff"] == (
        "--- /a.md\n+++ /a.md\n@@ -1 +1 @@\n-one\ftwo\x85three\u2028four\rfive\n+one\ftwo\x85three\u20284\rfive\n"
    )
    assert (compared["added"], compared["removed"]) == (1, 1)


def test_the_same_version_twice_has_no_difference(workspace: Workspace) -> None:
    version_id = workspace.write("/a.md", "one\n")["version_id"]

    compared = result_of(workspace.get(f"/versions/{version_id}/compare/{version_id}"))

    assert (compared["diff"], compared["added"], compared["removed"]) == ("", 0, 0)


def test_binary_versions_are_not_compared(workspace: Workspace) -> None:
    workspace.put_file("/a.bin", b"\0\1")
    version_id = workspace.versions(workspace.result("touch", path="/a.bin")["file_id"])[0]["version_id"]

    response = workspace.get(f"/versions/{version_id}/compare/{version_id}")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"version": Says("/a.bin", "not text")})


# Access


def test_a_viewer_sees_every_version_and_restores_none(workspace: Workspace, grace: Someone) -> None:
    first = workspace.write("/a.md", "one\n")
    workspace.result("rm", path="/a.md")
    viewer = workspace.admit(grace, "viewer")

    assert viewer.history(first["file_id"]) == [("user", "one\n"), ("user", None)]
    assert [file["file_id"] for file in viewer.deleted()] == [first["file_id"]]
    compare = viewer.get(f"/versions/{first['version_id']}/compare/{first['version_id']}")
    assert result_of(compare)["diff"] == ""
    refused(viewer.post(f"/files/{first['file_id']}/restore", {}), 403, "FORBIDDEN")
    assert not workspace.on_disk("/a.md").exists()


def _paths(file_id: str, version_id: str) -> list[str]:
    return [
        f"/files/{file_id}/versions",
        f"/versions/{version_id}",
        f"/versions/{version_id}/compare/{version_id}",
    ]


def test_a_stranger_sees_no_version(workspace: Workspace, grace: Someone) -> None:
    made = workspace.write("/a.md", "x")
    stranger = workspace.seen_with(grace.token)

    for path in (*_paths(made["file_id"], made["version_id"]), "/deleted-files"):
        refused(stranger.get(path), 403, "FORBIDDEN")
    refused(stranger.get("/files", path="/a.md"), 403, "FORBIDDEN")
    refused(stranger.post(f"/files/{made['file_id']}/restore", {}), 403, "FORBIDDEN")


def test_versions_of_another_workspace_are_not_found_here(
    workspace: Workspace, new_workspace: Callable[[Someone], Workspace], ada: Someone
) -> None:
    made = new_workspace(ada).write("/a.md", "x")

    for path in _paths(made["file_id"], made["version_id"]):
        refused(workspace.get(path), 404, "NOT_FOUND")
    refused(workspace.post(f"/files/{made['file_id']}/restore", {}), 404, "NOT_FOUND")


def test_unknown_ids_are_not_found(workspace: Workspace) -> None:
    for path in _paths(str(uuid4()), str(uuid4())):
        refused(workspace.get(path), 404, "NOT_FOUND")
    refused(workspace.post(f"/files/{uuid4()}/restore", {}), 404, "NOT_FOUND")


def test_an_agent_does_not_see_versions_of_protected_names(workspace: Workspace) -> None:
    protected = workspace.write("/.env", "PASSWORD=1\n")
    plain = workspace.write("/a.md", "x")
    agent = workspace.agent("trust: autonomous\ntoolsets: [workspace, history]\n")

    for path in _paths(protected["file_id"], protected["version_id"]):
        response = agent.get(path)
        refused(response, 400, "VALIDATION_ERROR", Says(".env", "protected"))
        assert "PASSWORD" not in response.text
    assert result_of(agent.get(f"/versions/{plain['version_id']}"))["content"] == "x"


def test_an_agent_without_the_history_toolset_sees_no_versions(workspace: Workspace) -> None:
    made = workspace.write("/a.md", "x")
    agent = workspace.agent("trust: autonomous\n")

    for path in (*_paths(made["file_id"], made["version_id"]), "/deleted-files"):
        refused(agent.get(path), 403, "NOT_PERMITTED", Says("history"))
