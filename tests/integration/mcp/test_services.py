"""Real MCP programs from npm and PyPI that need a token and a network, against doubles of their services."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from tests.fakes.service_doubles import GitLab, Redmine, Service
from tests.integration.conftest import WorkspaceFixture
from tests.integration.mcp.conftest import added, from_pypi, reference
from toolcrib.core.errors import ToolFailed
from toolcrib.core.mcp_servers import McpServer, McpWorkspaceAccess
from toolcrib.sandbox.egress_proxy import EgressNetwork
from toolcrib.sandbox.sandbox import Sandbox

TOKEN = "glpat-0123456789abcdefXYZ"
ISSUE = {"project_id": "tools/crib", "title": "Oil the lathe"}


async def to_loopback(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    """The doubles are on loopback, which takes the role of the public internet."""
    return Sandbox(network=EgressNetwork(resolve=to_loopback, allows=lambda address: address.is_loopback))


@asynccontextmanager
async def served(service: Service) -> AsyncIterator[int]:
    """Serve a double on loopback and yield its port."""
    server = uvicorn.Server(uvicorn.Config(service, lifespan="off", log_config=None, timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


async def gitlab(workspace: WorkspaceFixture, name: str, port: int, **how: Any) -> McpServer:
    address = f"GITLAB_API_URL=http://gitlab.example.com:{port}/api/v4"
    return await added(workspace, name, command=["/usr/bin/env", address, *reference("gitlab")], **how)


async def redmine(workspace: WorkspaceFixture, name: str, port: int, *, folder: str = "", **how: Any) -> McpServer:
    command = from_pypi(
        "mcp_redmine.server",
        REDMINE_URL=f"http://redmine.example.com:{port}",
        REDMINE_ALLOWED_DIRECTORIES=folder,
    )
    return await added(workspace, name, command=command, secrets={"REDMINE_API_KEY": TOKEN}, **how)


async def test_a_server_from_npm_works_with_its_secret_and_host_and_not_without(workspace: WorkspaceFixture) -> None:
    service = GitLab(TOKEN)
    async with served(service) as port:
        secret, host = {"GITLAB_PERSONAL_ACCESS_TOKEN": TOKEN}, (f"gitlab.example.com:{port}",)
        await gitlab(workspace, "gitlab", port, secrets=secret, hosts=host)
        await gitlab(workspace, "closed", port, secrets=secret)
        await gitlab(workspace, "elsewhere", port, secrets=secret, hosts=("gitlab.example.org",))
        await gitlab(workspace, "stranger", port, secrets={"GITLAB_PERSONAL_ACCESS_TOKEN": f"{TOKEN}!"}, hosts=host)
        nameless = await gitlab(workspace, "nameless", port, hosts=host, approve=False)

        made = await workspace.result("mcp:gitlab/create_issue", **ISSUE)
        refused = {name: await workspace.call(f"mcp:{name}/create_issue", **ISSUE) for name in ("closed", "elsewhere")}
        requests = list(service.requests)
        wrong = await workspace.call("mcp:stranger/create_issue", **ISSUE)
        await workspace.engine.toolbox.close()

    assert "Oil the lathe" in made["text"]
    assert [issue["title"] for issue in service.issues] == ["Oil the lathe"]
    assert requests == ["POST /api/v4/projects/tools%2Fcrib/issues"], "the others did not get there"
    for name, outcome in refused.items():
        assert isinstance(outcome.error, ToolFailed)
        assert f"toolcrib mcp update {name} --host HOST" in outcome.error.message
    elsewhere = refused["elsewhere"].error
    assert elsewhere is not None
    assert f"The network is closed for gitlab.example.com:{port} (not granted)" in elsewhere.message
    assert isinstance(wrong.error, ToolFailed)
    assert "Unauthorized" in wrong.error.message
    assert nameless.last_error is not None
    assert "GITLAB_PERSONAL_ACCESS_TOKEN environment variable is not set" in nameless.last_error


@pytest.mark.long
async def test_a_server_from_pypi_works_with_its_secret_and_host_and_not_without(workspace: WorkspaceFixture) -> None:
    service = Redmine(TOKEN)
    async with served(service) as port:
        granted = await redmine(workspace, "redmine", port, hosts=(f"redmine.example.com:{port}",))
        await redmine(workspace, "closed", port, hosts=("redmine.example.org",))
        tenant, rows = workspace.tenant, workspace.engine.toolbox.rows

        listed = await workspace.result("mcp:redmine/redmine_request", path="/issues.json")
        refused = await workspace.result("mcp:closed/redmine_request", path="/issues.json")
        requests = list(service.requests)
        await rows.update(tenant, granted.id, secrets={"REDMINE_API_KEY": "another-key-0123"})
        wrong = await workspace.result("mcp:redmine/redmine_request", path="/issues.json")
        await rows.update(tenant, granted.id, secrets={"REDMINE_API_KEY": TOKEN}, hosts=())
        withdrawn = await workspace.result("mcp:redmine/redmine_request", path="/issues.json")
        await workspace.engine.toolbox.close()

    assert "Sharpen the saw" in listed["text"]
    assert requests == ["GET /issues.json"]
    assert f"[The network is closed for redmine.example.com:{port} (not granted)." in refused["text"]
    assert "Sharpen the saw" not in refused["text"]
    assert "401" in wrong["text"], "a changed secret counts from the next call on"
    assert "Sharpen the saw" not in withdrawn["text"], "so does a withdrawn host"
    assert len(service.requests) == 2


@pytest.mark.long
async def test_a_server_from_pypi_downloads_into_the_workspace_as_a_change_set(workspace: WorkspaceFixture) -> None:
    (workspace.project / "README").write_text("here\n")
    saved = {"attachment_id": 9, "save_path": "/project/in/note.txt"}
    async with served(Redmine(TOKEN)) as port:
        host = (f"redmine.example.com:{port}",)
        for name, access in (("writer", McpWorkspaceAccess.TRANSACTION), ("reader", McpWorkspaceAccess.READ_ONLY)):
            await redmine(workspace, name, port, folder="/project", hosts=host, workspace_access=access)
        denied = await workspace.result("mcp:reader/redmine_download", **saved)
        nothing = not (workspace.project / "in").exists()
        outcome = await workspace.call("mcp:writer/redmine_download", **saved)
        await workspace.engine.toolbox.close()

    assert nothing
    assert "Read-only file system" in denied["text"]
    assert outcome.succeeded, outcome.error
    assert outcome.change_set_id is not None
    assert outcome.result["changed"]["paths"] == ["in", "in/note.txt"]
    assert (workspace.project / "in" / "note.txt").read_bytes() == Redmine.attachment
    await workspace.result("undo", calls=[str(outcome.call_id)])
    assert not (workspace.project / "in").exists()
