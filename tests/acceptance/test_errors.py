"""Every documented error: its status, its code and the common envelope. Never 200 with ``success: false``."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.acceptance.serving import Serving
from tests.acceptance.shapes import Says, refused
from tests.acceptance.workspace import Someone, Workspace

NO_TOKEN = "No valid token found in Authorization header or cookie"
NOT_A_MEMBER = "Access forbidden: User is not a member of this workspace"
EVERY_TOOL: list[tuple[str, dict[str, Any]]] = [
    ("ls", {"path": "/"}),
    ("read", {"path": "/a.md"}),
    ("write", {"path": "/b.md", "content": "x"}),
    ("rm", {"path": "/a.md"}),
    ("mv", {"source": "/a.md", "destination": "/b.md"}),
    ("touch", {"path": "/a.md"}),
    ("mkdir", {"path": "/b"}),
    ("edit", {"path": "/a.md", "old_string": "one", "new_string": "two"}),
    ("cat", {"paths": ["/a.md"]}),
    ("file_info", {"path": "/a.md"}),
    ("read_multiple_files", {"paths": ["/a.md"]}),
]
every_tool = pytest.mark.parametrize(("tool", "args"), EVERY_TOOL, ids=[name for name, _ in EVERY_TOOL])


def test_the_envelope_of_a_success(workspace: Workspace) -> None:
    response = workspace.call("ls", path="/")

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"success": True, "result": {"path": "/", "entries": []}, "error": None}


@every_tool
def test_401_without_a_token(workspace: Workspace, tool: str, args: dict[str, Any]) -> None:
    workspace.write("/a.md", "one")

    refused(workspace.seen_with(None).call(tool, **args), 401, "INVALID_TOKEN", NO_TOKEN)
    assert workspace.on_disk("/a.md").read_text() == "one"


@every_tool
def test_403_not_a_workspace_member(workspace: Workspace, grace: Someone, tool: str, args: dict[str, Any]) -> None:
    workspace.write("/a.md", "one")

    refused(workspace.seen_with(grace.token).call(tool, **args), 403, "FORBIDDEN", NOT_A_MEMBER)
    assert workspace.names() == ["/a.md"]
    assert workspace.on_disk("/a.md").read_text() == "one"


def test_403_unknown_and_foreign_workspaces_get_the_same_response(
    http: httpx2.Client, workspace: Workspace, new_workspace: Callable[[Someone], Workspace], grace: Someone
) -> None:
    def ask(workspace_id: str) -> httpx2.Response:
        return http.post(
            f"/workspaces/{workspace_id}/tools", json={"tool": "ls", "args": {}}, headers=workspace.headers
        )

    foreign, unknown = ask(new_workspace(grace).id), ask(str(uuid4()))

    refused(foreign, 403, "FORBIDDEN", NOT_A_MEMBER)
    assert (foreign.status_code, foreign.content) == (unknown.status_code, unknown.content)


def test_403_a_viewer_may_read_and_not_change(workspace: Workspace, grace: Someone) -> None:
    workspace.write("/a.md", "one")
    viewer = workspace.admit(grace, "viewer")

    for tool, args in EVERY_TOOL:
        response = viewer.call(tool, **args)
        if tool in ("ls", "read", "cat", "file_info", "read_multiple_files"):
            assert response.status_code == 200, tool
        else:
            refused(response, 403, "FORBIDDEN")
    assert workspace.names() == ["/a.md"]
    assert workspace.on_disk("/a.md").read_text() == "one"


@pytest.mark.parametrize("name", ["invalid_tool", "git_commit", "LS", "ls ", "", "__class__"])
def test_404_tool_not_found(workspace: Workspace, name: str) -> None:
    refused(workspace.call(name), 404, "NOT_FOUND", f"Tool '{name}' not found")


def test_404_file_not_found(workspace: Workspace) -> None:
    response = workspace.call("read", path="/nonexistent/file.txt")

    refused(response, 404, "NOT_FOUND", "File not found: /nonexistent/file.txt")


def test_400_a_missing_argument_is_named(workspace: Workspace) -> None:
    refused(
        workspace.call("read"), 400, "VALIDATION_ERROR", "Validation failed", fields={"path": "This field is required."}
    )


@pytest.mark.parametrize(
    ("tool", "args", "field", "expected"),
    [
        ("read", {"path": 5}, "path", "string"),
        ("read", {"path": None}, "path", "string"),
        ("read", {"path": ["/a.md"]}, "path", "string"),
        ("read", {"path": "/a.md", "offset": "many"}, "offset", "integer"),
        ("read", {"path": "/a.md", "limit": 1.5}, "limit", "integer"),
        ("ls", {"recursive": "perhaps"}, "recursive", "boolean"),
        ("cat", {"paths": "/a.md"}, "paths", "list"),
        ("cat", {"paths": ["/a.md", 7]}, "paths.1", "string"),
        ("mv", {"source": "/a.md", "destination": 7}, "destination", "string"),
        ("edit", {"path": "/a.md", "old_string": 1, "new_string": "x"}, "old_string", "string"),
        ("write", {"path": "/a.md", "content": "x", "overwrite": "perhaps"}, "overwrite", "boolean"),
    ],
)
def test_400_an_argument_of_the_wrong_type_is_named(
    workspace: Workspace, tool: str, args: dict[str, Any], field: str, expected: str
) -> None:
    response = workspace.call(tool, **args)

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={field: Says(expected)})


def test_400_an_unknown_argument_is_named(workspace: Workspace) -> None:
    response = workspace.call("read", path="/a.md", ofset=10)

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"ofset": Says("path", "offset", "limit")})


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"args": {}}, "tool"),
        ({"tool": "ls"}, "args"),
        ({"tool": 5, "args": {}}, "tool"),
        ({"tool": "ls", "args": []}, "args"),
        ({"tool": "ls", "args": None}, "args"),
        ({"tool": "ls", "args": {}, "extra": 1}, "extra"),
        ({"tool": "ls", "args": {}, "session_id": "x"}, "session_id"),
    ],
)
def test_400_a_wrong_field_of_the_request_is_named(workspace: Workspace, body: dict[str, Any], field: str) -> None:
    refused(workspace.post("/tools", body), 400, "VALIDATION_ERROR", "Validation failed", fields={field: Says("")})


@pytest.mark.parametrize("body", [b"", b"{", b'{"tool": "ls", "args": {}', b"\xff\xfe", b'{"tool": "ls", "args": NaN}'])
def test_400_a_body_that_is_not_json(http: httpx2.Client, workspace: Workspace, body: bytes) -> None:
    response = http.post(
        f"/workspaces/{workspace.id}/tools",
        content=body,
        headers=workspace.headers | {"Content-Type": "application/json"},
    )

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"body": Says("")})


def test_400_a_workspace_id_that_is_no_uuid(http: httpx2.Client, workspace: Workspace) -> None:
    response = http.post("/workspaces/website/tools", json={"tool": "ls", "args": {}}, headers=workspace.headers)

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"workspace_id": Says("UUID")})


def test_409_conflict(workspace: Workspace) -> None:
    workspace.write("/a.md", "one")

    response = workspace.call("edit", path="/a.md", old_string="one", new_string="two", last_read_hash="0" * 64)

    refused(response, 409, "CONFLICT", Says("/a.md", "Read it again"))


def test_500_a_server_error_reveals_only_its_log_id(workspace: Workspace) -> None:
    workspace.project.rmdir()
    workspace.project.write_text("A file where the server needs its directory.")

    response = workspace.call("ls")

    refused(response, 500, "INTERNAL_ERROR", Says("under id"))
    assert str(workspace.project) not in response.text


def test_500_is_logged_under_its_id_without_the_token(server: Serving, workspace: Workspace, ada: Someone) -> None:
    workspace.project.rmdir()
    workspace.project.write_text("A file where the server needs its directory.")

    error = workspace.call("ls").json()["error"]

    error_id = error.removesuffix(".").rpartition(" ")[2]
    log = server.log.read_text()
    assert error_id in log
    assert "NotADirectoryError" in log
    # The claims of the token. A log may contain only their beginning.
    assert ada.token.split(".")[1][:24] not in log
    assert server.jwt_secret not in log
