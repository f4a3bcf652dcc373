"""Two checks before any tool call: authentication, then membership."""

import time
from uuid import UUID

import httpx2
import pytest

from tests.acceptance.serving import Serving
from tests.acceptance.shapes import refused, result_of
from tests.acceptance.workspace import Someone, Workspace
from toolcrib.api.access_tokens import AccessTokens
from toolcrib.core.ids import UserId

CALL = {"tool": "ls", "args": {}}


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer nonsense", "Basic dXNlcjpwYXNz", "Bearer a.b.c", "Bearer tck_nonsense"],
)
def test_an_invalid_token_is_rejected(http: httpx2.Client, workspace: Workspace, header: str) -> None:
    response = http.post(f"/workspaces/{workspace.id}/tools", json=CALL, headers={"Authorization": header})

    refused(response, 401, "INVALID_TOKEN")
    assert response.headers["www-authenticate"] == "Bearer"


def test_an_expired_token_is_rejected(server: Serving, workspace: Workspace, ada: Someone) -> None:
    an_hour_ago = AccessTokens(server.jwt_secret, clock=lambda: time.time() - 3600)
    expired = an_hour_ago.issue(UserId(UUID(ada.id)), 0)

    refused(workspace.seen_with(expired).call("ls"), 401, "INVALID_TOKEN")


def test_a_token_signed_with_another_secret_is_rejected(workspace: Workspace, ada: Someone) -> None:
    forged = AccessTokens("x" * 48).issue(UserId(UUID(ada.id)), 0)

    refused(workspace.seen_with(forged).call("ls"), 401, "INVALID_TOKEN")


def test_a_browser_may_send_the_token_as_a_cookie(
    http: httpx2.Client, server: Serving, workspace: Workspace, ada: Someone
) -> None:
    headers = {"Cookie": f"access_token={ada.token}", "Origin": server.origin}

    response = http.post(f"/workspaces/{workspace.id}/tools", json=CALL, headers=headers)

    assert result_of(response)["path"] == "/"


def test_the_header_takes_precedence_over_the_cookie(
    http: httpx2.Client, server: Serving, workspace: Workspace, ada: Someone
) -> None:
    cookie = {"Cookie": f"access_token={ada.token}", "Origin": server.origin}
    stale_cookie = {"Cookie": "access_token=stale", "Origin": server.origin}

    wrong_header = http.post(
        f"/workspaces/{workspace.id}/tools", json=CALL, headers=cookie | {"Authorization": "Bearer nonsense"}
    )
    right_header = http.post(f"/workspaces/{workspace.id}/tools", json=CALL, headers=stale_cookie | workspace.headers)

    refused(wrong_header, 401, "INVALID_TOKEN")
    assert result_of(right_header)["path"] == "/"


@pytest.mark.parametrize("role", ["owner", "member", "viewer"])
def test_every_member_has_access(workspace: Workspace, grace: Someone, role: str) -> None:
    assert workspace.admit(grace, role).result("ls") == {"path": "/", "entries": []}


def test_a_member_may_change_files(workspace: Workspace, grace: Someone) -> None:
    hers = workspace.admit(grace, "member")

    file_id = hers.write("/a.md", "x")["file_id"]

    [version] = workspace.versions(file_id)
    assert version["author"]["user_id"] == grace.id


def test_a_former_member_has_no_access(workspace: Workspace, http: httpx2.Client, grace: Someone) -> None:
    hers = workspace.admit(grace, "member")
    hers.result("ls")

    removed = http.delete(f"/workspaces/{workspace.id}/members/{grace.id}", headers=workspace.headers)

    assert removed.status_code == 204
    refused(hers.call("ls"), 403, "FORBIDDEN")


def test_an_agents_key_gives_access_to_its_own_workspace_only(
    http: httpx2.Client, workspace: Workspace, ada: Someone
) -> None:
    agent = workspace.agent("trust: autonomous\n")
    other = http.post("/workspaces", json={"name": "other"}, headers=workspace.headers).json()["id"]

    assert agent.result("ls")["path"] == "/"
    refused(http.post(f"/workspaces/{other}/tools", json=CALL, headers=agent.headers), 403, "FORBIDDEN")
